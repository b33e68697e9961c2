"""Each option reaches the function that does the work, which is a fake here; so do the defaults that help states."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmtune.engine.api import recording, replaying, reporting, tuning
from gemmtune.engine.cli import choices, output
from gemmtune.engine.cli.choices import Kind
from gemmtune.engine.records.errors import Stopped
from gemmtune.engine.report.layout import Report
from gemmtune.engine.store.database import Database


@pytest.fixture
def asked(monkeypatch):
    """Return a function that puts a fake in a function's place; it keeps the arguments of its calls."""

    def fake(module, name, answer):
        found = []

        def function(*arguments, **options):
            found.append((arguments, options))
            return answer

        monkeypatch.setattr(module, name, function)
        return found

    return fake


def test_record_measures_every_config_of_the_named_problems(run, asked):
    landscape = SimpleNamespace(points=range(7))
    calls = asked(recording, "record", {Path("a.csv.gz"): [landscape, landscape]})
    assert run("sweep").out == "a.csv.gz: 2 problems, 14 configs\n"
    options = ("--space", "a", "--space", "b", "--out", "there", "--objective", "energy", "--database", "m.db")
    where = ("--device", "H200", "--fleet", "ray", "--builders", "3", "--lock-clocks", "1500")
    run("sweep", "--problem", "1x2x3", *options, *where)
    [((default,), plain), ((problems,), given)] = calls
    assert ([*default], problems) == ([], ["1x2x3"])
    plain.pop("callbacks")
    given.pop("callbacks")
    assert plain == {
        "spaces": ("triton_mm",),
        "objective": "latency",
        "device": None,
        "fleet": "local",
        "ray_address": None,
        "builders": None,
        "lock_clocks": None,
        "database": None,
        "out": Path("recorded"),
    }
    assert given == {
        "spaces": ["a", "b"],
        "objective": "energy",
        "device": "H200",
        "fleet": "ray",
        "ray_address": None,
        "builders": 3,
        "lock_clocks": 1500,
        "database": "m.db",
        "out": Path("there"),
    }


DEFAULT = {
    "space": None,
    "sampler": None,
    "pruner": None,
    "objective": None,
    "budget": None,
    "seed": None,
    "batch": None,
    "seconds": None,
    "gpu_seconds": None,
    "regret": None,
    "margin": None,
    "portfolio": False,
    "ranges": False,
    "backend": "auto",
    "device": None,
    "fleet": "local",
    "ray_address": None,
    "builders": None,
    "lock_clocks": None,
    "database": None,
    "out": Path("out"),
    "replace_table": False,
    "report": False,
}
URL = "postgresql://me:secret@host/db"


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ((), {}),
        (("--budget", "5", "--seed", "7", "--batch", "3"), {"budget": 5, "seed": 7, "batch": 3}),
        (("--seconds", "1.5", "--gpu-seconds", "2.5"), {"seconds": 1.5, "gpu_seconds": 2.5}),
        (("--regret", "0.02", "--margin", "0.03"), {"regret": 0.02, "margin": 0.03}),
        (("--portfolio", "--ranges", "--replace"), {"portfolio": True, "ranges": True, "replace_table": True}),
        (("--space", "aten", "--pruner", "static"), {"space": ["aten"], "pruner": ["static"]}),
        (("--device", "H200", "--fleet", "ray", "--builders", "2"), {"device": "H200", "fleet": "ray", "builders": 2}),
        (("--lock-clocks", "1400", "--database", URL), {"database": URL, "lock_clocks": 1400}),
        (("--replay", "a.csv", "--replay", "b.csv"), {"backend": [Path("a.csv"), Path("b.csv")]}),
    ],
)
def test_tune_passes_its_options_on(run, asked, monkeypatch, arguments, changes):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    calls = asked(
        tuning, "tune", SimpleNamespace(report=Report({"done": True}, ["done"]), broken=[], is_cancelled=False)
    )
    found = run("tune", "--problem", "1x2x3", "--kernel", "a.py:A", "--hold-out", "4x5x6", *arguments)
    assert (found.status, found.out) == (0, "done\n")
    [((problems,), given)] = calls
    assert problems == ["1x2x3", "triton:a.py:A"]
    assert list(given["hold_out"]) == ["4x5x6"]
    assert {name: given[name] for name in DEFAULT} == DEFAULT | changes
    assert given["command"].startswith("gemmtune tune --problem 1x2x3 --kernel a.py:A")
    assert "secret" not in given["command"]  # which the record and the report show


def test_a_campaign_file_may_be_a_pipe_which_is_read_once(run, asked):
    calls = asked(
        tuning, "tune", SimpleNamespace(report=Report({"done": True}, ["done"]), broken=[], is_cancelled=False)
    )
    reader, writer = os.pipe()
    os.write(writer, b'problems = ["1x2x3"]\n')
    os.close(writer)
    found = run("tune", f"/dev/fd/{reader}")
    os.close(reader)
    assert found.status == 0, found.err
    [(_, given)] = calls
    assert [(each.m, each.n, each.k) for each in given["campaign"].problems] == [(1, 2, 3)]


def test_a_broken_exporter_ends_tune_with_status_2(run, asked):
    asked(tuning, "tune", SimpleNamespace(report=Report({"done": True}, ["done"]), broken=["mine"], is_cancelled=False))
    assert run("tune", "--problem", "1x2x3", "--json").status == 2


STUDY = {"budget": 128, "seeds": 20, "batch": 8, "workers": 1, "cold": False}
OPTIONS = ("--budget", "3", "--seeds", "4", "--batch", "5", "--workers", "6", "--cold")
GIVEN = {"budget": 3, "seeds": 4, "batch": 5, "workers": 6, "cold": True}


def test_compare_of_one_sampler_prints_its_fractions_and_writes_nothing(run, asked):
    result = SimpleNamespace(
        sampler="random", budget=3, seeds=4, fraction_of_optimum=0.98765, problems={"p": 0.9, "q": 0.95}
    )
    settings = {"batch": 5, "cold": True, "apart": False}
    study = SimpleNamespace(results={"random": result}, settings=settings, written=[], notes=[])
    calls = asked(replaying, "replay", study)
    lines = [line.split() for line in run("compare", "a.csv", "--sampler", "random", *OPTIONS).out.splitlines()]
    assert ["p", "0.9000"] in lines
    assert ["mean", "0.9877"] in lines
    [((files, samplers), given)] = calls
    assert (files, samplers) == ([Path("a.csv")], ["random"])
    assert {name: given[name] for name in (*STUDY, "out")} == {**GIVEN, "out": None}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {**STUDY, "apart": False, "out": Path("comparison")}),
        ((*OPTIONS, "--apart", "--out", "there"), {**GIVEN, "apart": True, "out": Path("there")}),
    ],
)
def test_compare_passes_its_options_on(run, asked, options, expected):
    study = SimpleNamespace(to_json=lambda: {"a": 1}, results={"tpe": None, "random": None})
    calls = asked(replaying, "replay", study)
    found = run("compare", "a.csv", "b.csv", "--sampler", " tpe, random,,tpe", "--json", *options)
    assert found.record == {"a": 1}
    [((files, samplers), given)] = calls
    assert (files, samplers) == ([Path("a.csv"), Path("b.csv")], ["tpe", "random"])
    assert {name: given[name] for name in expected} == expected


def test_show_names_the_page_that_it_wrote(run, asked):
    with Database.open("m.db"):
        pass
    calls = asked(reporting, "report", Path("x.html"))
    assert run("show", "m.db", "--html", "x.html", "--device", "L4").out.endswith("\nwritten: x.html\n")
    assert calls == [(("m.db", Path("x.html")), {"device": "L4"})]


def test_status_is_shown_again_every_two_seconds_until_it_is_stopped(run, monkeypatch):
    with Database.open("m.db"):
        pass
    slept, shown = [], []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            raise Stopped(2)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(output, "show_over", lambda report: shown.append(report.to_json()["measurements"]))
    assert run("campaigns", "m.db", "--watch").status == 0
    assert (slept, shown) == ([2.0] * 3, [0] * 3)
    assert run("campaigns", "m.db").out.startswith("0 problems, 0 measurements")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("16x32x64:b", ["16x32x64:bf16"]),
        ("16x32x64:bf16:n", ["16x32x64:bf16:nn", "16x32x64:bf16:nt"]),
        ("16x32x64:bf16:nt:b", ["16x32x64:bf16:nt:bmm", "16x32x64:bf16:nt:baddbmm"]),
        ("16x32x64:bf16:nt:mm:d", ["16x32x64:bf16:nt:mm:dynamic_m=true"]),
        ("16x32x64:x", []),
    ],
)
def test_a_shell_completes_the_next_part_of_a_problem(text, found):
    assert choices.completed_problem(text) == found


def test_recorded_problems_and_names_are_completed():
    assert "16x4096x4096:bf16:nt" in choices.completed_problem("16x")
    assert all(name.startswith("16x") for name in choices.completed_problem("16x"))
    assert choices.completed(Kind.DEVICES)("h20") == ["H200"]
    assert not {"aten", "triton_default", "vllm_moe_shipped"} & {*choices.names(Kind.SPACES)}
    assert choices.one_of(Kind.PRUNERS) == "one of prior or static"


def test_sizes_of_a_layer_are_asked_for_before_torch_is(run):
    for arguments, said in (
        (("--graphs", "m:f"), "here none is"),
        (("--graphs", "m:f", "--input", "bf16[4,4]"), "here none is"),
        ((), "name what to show"),
    ):
        found = run("show", *arguments)
        assert (found.status, said in found.err) == (2, True), found.err
