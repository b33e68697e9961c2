"""`gemmtune compare`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gemmtune as gt
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.store.landscapes.landscape_file import write_landscapes

DECODE = "16x4096x4096:bf16:nt"
CACHE = Path(__file__).parents[1] / "store/landscapes/foreign/kernel_tuner_cache.json"


@pytest.fixture
def hills(tmp_path) -> Path:
    """A landscape of 400 configs."""
    points = {}
    for x in range(20):
        for y in range(20):
            config = Config({"x": x, "y": y})
            points[config] = Point(config, Status.OK, 1e3 + (x - 7) ** 2 + 2 * (y - 12) ** 2)
    path = tmp_path / "hills.csv"
    write_landscapes(path, [Landscape("hills", str(path), (Param("x", (0,)), Param("y", (0,))), points)])
    return path


def test_compare_draws_curves_and_tells_how_far_each_sampler_came(run, hills):
    status, out, err = run("compare", hills, "--sampler", "random, evolution", "--budget", "48", "--seeds", "3")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "1 landscape, budget 48, 3 seeds, batch 8, a campaign per seed:"
    headers = next(line for line in lines if line.startswith("sampler"))
    assert headers.split() == ["sampler", "16", "32"]
    rows = {line.split()[0]: line for line in lines[lines.index(headers) + 2 :][:2]}
    assert {"random", "evolution"} <= rows.keys()
    record = json.loads(Path("comparison/comparison.json").read_text())
    found = {curve["arm"]: curve for curve in record["curves"] if curve["landscape"] == "hills"}
    assert f"{found['evolution']['fraction_of_optimum'][31]:.3f}" in rows["evolution"]
    assert found["evolution"]["score"]["value"] > found["random"]["score"]["value"]
    assert Path("comparison/curves.png").read_bytes().startswith(b"\x89PNG")
    page = Path("comparison/report.html").read_text()
    assert f"{found['evolution']['fraction_of_optimum'][31]:.3f}" in page
    assert record["ranking"]["ranks"] == {"evolution": 1, "random": 2}
    assert 'src="http' not in page
    assert lines[-2:] == ["comparison/report.html", "comparison/curves.png"]


def test_compare_reads_other_tuners_files_and_gives_the_same_bytes_again(run):
    arguments = ("compare", CACHE, "--sampler", "random,exhaustive", "--budget", "4", "--seeds", "2", "--json")
    status, out, err = run(*arguments, "--out", "one")
    assert (status, err) == (0, "")
    run(*arguments, "--out", "two")
    for name in ("study.json", "comparison.json", "curves.png", "report.html"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes()
    record = json.loads(out)
    assert record == json.loads(Path("one/comparison.json").read_text())
    exhaustive = next(curve for curve in record["curves"] if curve["arm"] == "exhaustive")
    assert exhaustive["fraction_of_optimum"] == [0.5, 0.64, 0.8, 1.0]
    assert exhaustive["evaluations_to"]["0.99"] == {"median": 4, "share": 1.0}


def test_compare_adds_a_sampler_to_a_saved_study(run, hills):
    budget = ("--budget", "20", "--seeds", "2", "--batch", "4", "--apart")
    run("compare", hills, "--sampler", "random", *budget, "--out", "one")
    status, out, err = run(
        "compare", "--extend", "one", "--sampler", "evolution(children=8, initial=2)", "--out", "two"
    )
    assert (status, err) == (0, "")
    assert out.startswith("1 landscape, budget 20, 2 seeds, batch 4, searches apart:")
    run("compare", hills, "--sampler", "random,evolution(children=8,initial=2)", *budget, "--out", "both")
    for name in ("study.json", "comparison.json"):
        assert Path("two", name).read_bytes() == Path("both", name).read_bytes()
    for arguments, said in (
        (("one",), "compare --extend adds the samplers that --sampler names: name one"),
        (("one", "--sampler", "random"), "the study has sampler random already"),
        (("nowhere", "--sampler", "tpe"), "nowhere"),
    ):
        status, _, err = run("compare", "--extend", *arguments, "--out", "three")
        assert (status, said in err, Path("three").exists()) == (2, True, False)


def test_compare_says_what_budget_the_score_needs(run, hills):
    _, out, _ = run("compare", hills, "--sampler", "random,tpe", "--budget", "3", "--seeds", "2")
    assert "P looks at more evaluations than the budget of 3: " in out
    assert json.loads(Path("comparison/comparison.json").read_text())["curves"][0]["score"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sampler", "random,nosuch"), "no sampler 'nosuch'; known: "),
        (("--sampler", " ,"), "--sampler ' ,' names none; known: auto, "),
    ],
)
def test_compare_refuses_before_it_searches(run, hills, arguments, said):
    status, out, err = run("compare", hills, *arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert not Path("comparison").exists()


def test_json_of_one_sampler_is_the_promised_object(run, small):
    ran = run("compare", small, "--sampler", "random", "--budget", "6", "--seeds", "3", "--json")
    assert (ran.status, ran.err) == (0, "")
    record = ran.record
    assert list(record) == ["sampler", "budget", "seeds", "fraction_of_optimum", "problems"]
    assert (record["sampler"], record["budget"], record["seeds"]) == ("random", 6, 3)
    assert list(record["problems"]) == [DECODE]
    assert 0 < record["problems"][DECODE] == record["fraction_of_optimum"] <= 1
    study = gt.replay(small, "random", budget=6, seeds=3)
    assert record["fraction_of_optimum"] == study.fraction_of_optimum["random"]


def test_one_sampler_for_a_person_ends_with_the_mean(run, small):
    lines = run("compare", small, "--sampler", "exhaustive", "--budget", "1000", "--seeds", "1").out.splitlines()
    assert lines[0] == "sampler exhaustive, budget 1000, 1 seed, batch 8, a campaign per seed: optimum / best found"
    assert [line.split() for line in lines[-2:]] == [[DECODE, "1.0000"], ["mean", "1.0000"]]
