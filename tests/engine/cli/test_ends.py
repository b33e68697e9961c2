"""A command that somebody else's code ends says whose it was, in one line, with exit status 2."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from unittest.mock import Mock
from uuid import uuid4

import pytest

from gemmtune.engine.io import blame
from gemmtune.engine.seams import registry

SAMPLER = """
import gemmtune as gt

class Mine(gt.Sampler):
    def __init__(self, search):
        {init}

    def ask(self, count):
        {ask}

    def tell(self, trials):
        {tell}
"""
FINE = {"init": "super().__init__(search)", "ask": "return self.search.feasible[:count]", "tell": "pass"}
SAMPLERS = [
    ({"init": "raise SystemExit(0)"}, "sampler Mine failed in __init__: SystemExit: 0 ({}.py, line 6)"),
    ({"ask": "raise SystemExit(0)"}, "sampler Mine failed in ask: SystemExit: 0 ({}.py, line 9)"),
    ({"tell": "raise SystemExit"}, "sampler Mine failed in tell: SystemExit ({}.py, line 12)"),
    ({"ask": "return 1 / 0"}, "sampler Mine failed in ask: ZeroDivisionError: division by zero ({}.py, line 9)"),
    ({"tell": "open('nowhere')"}, "sampler Mine failed in tell: FileNotFoundError"),
    ({"init": "self.queue = self.initial_configs()"}, "sampler Mine failed in __init__: AttributeError: 'Mine' object"),
    ({"init": "self.queue = []"}, "Mine.__init__ does not call super().__init__(search)"),
    ({"ask": "raise KeyboardInterrupt"}, "code that is not gemmtune's failed: KeyboardInterrupt ({}.py, line 9)"),
    ({"ask": "raise gt.UsageError('another budget')"}, "another budget ({}.py, line 9)"),
    ({"ask": "pass"}, "sampler Mine returned None from ask, not a list of configs"),
    ({"ask": "return iter(self.search.feasible)"}, "from ask, not a list of configs"),
    ({"ask": "return [{'BLOCK_M': 64}]"}, "from ask, not a list of configs"),
]


def written(folder, text: str) -> str:
    """Write a module that no other test has, and return its name."""
    name = f"ends_{uuid4().hex}"
    (folder / f"{name}.py").write_text(text)
    return name


@pytest.mark.parametrize(("wrong", "said"), SAMPLERS, ids=range(len(SAMPLERS)))
def test_a_sampler_that_fails_is_named(run, small, tmp_path, refusal, wrong, said):
    name = written(tmp_path, SAMPLER.format(**(FINE | wrong)))
    refusal(run("compare", small, "--sampler", f"./{name}.py:Mine", "--seeds", "1"), said.format(name))


@pytest.mark.parametrize("command", ["tune", "compare"])
def test_every_command_that_searches_names_it(run, small, tmp_path, refusal, command):
    name = written(tmp_path, SAMPLER.format(**(FINE | {"ask": "raise SystemExit(0)"})))
    named = ("--sampler", f"./{name}.py:Mine,random", "--seeds", "1") if command == "compare" else ()
    options = named or ("--sampler", f"./{name}.py:Mine", "--replay", small, "--device", "H200", "--json")
    ran = run(command, *((small,) if named else ()), *options)
    refusal(ran._replace(err=ran.err.splitlines(keepends=True)[-1]), f"SystemExit: 0 ({name}.py, line 9)")
    assert not (tmp_path / "out/table.json").exists()


def test_a_sampler_whose_import_ends_the_process_is_named(run, small, tmp_path, refusal):
    name = written(tmp_path, "\nraise SystemExit(0)")
    refusal(run("compare", small, "--sampler", f"./{name}.py:Mine"), f"SystemExit: 0 ({name}.py, line 2); put what")


PLUGINS = """
import sys
import gemmtune as gt
from gemmtune.objectives.latency import Latency
from gemmtune.spaces.triton_mm import TritonMmSpace

class Space(TritonMmSpace):
    def params(self, task):
        raise SystemExit(0)

class Objective(Latency):
    def score(self, measurement):
        sys.exit("done")

class Pruner(gt.Pruner):
    def judge(self, *arguments):
        ...

    def __init__(self):
        raise SystemExit(0)

class Own(BaseException):
    pass

class Raising(Latency):
    def score(self, measurement):
        raise Own
"""


@pytest.mark.parametrize(
    ("kind", "attribute", "said"),
    [
        ("space", "Space", "SystemExit: 0 ({}.py, line 9)"),
        ("objective", "Objective", "SystemExit: done ({}.py, line 13)"),
        ("objective", "Raising", "Own ({}.py, line 27)"),
        ("pruner", "Pruner", "pruner 'mine' ({}:Pruner of an unknown package) cannot be loaded: SystemExit: 0 ({0}.py"),
    ],
)
def test_a_plug_in_that_ends_the_process_is_named(run, small, tmp_path, monkeypatch, refusal, kind, attribute, said):
    name = written(tmp_path, PLUGINS)
    monkeypatch.syspath_prepend(str(tmp_path))
    points = entry_points()
    mine = EntryPoint("mine", f"{name}:{attribute}", f"gemmtune.{kind}s")
    every = EntryPoints([*(point for group in points.groups for point in points.select(group=group)), mine])
    monkeypatch.setattr(registry, "entry_points", lambda: every)
    tuned = ("tune", f"--{kind}", "mine", "--replay", small, "--device", "H200", "--budget", "4", "--json")
    ran = run(*(("list", "spaces", "mine", "--problem", "16x4096x4096:bf16:nt") if kind == "space" else tuned))
    refusal(ran, said.replace("{}", "{0}").format(name))


@pytest.fixture(params=["by its name", "by its metadata"])
def packages(request, monkeypatch):
    """How the folder of installed packages, which typer is in, is known."""
    if request.param == "by its metadata":
        monkeypatch.setattr(blame, "_FOREIGN", set())


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("error", [MemoryError(), ImportError("libx.so: failed to map segment from shared object")])
def test_a_lack_of_memory_is_told_in_one_line(run, monkeypatch, refusal, error):
    monkeypatch.setattr("gemmtune.engine.records.catalogue.devices", Mock(side_effect=error))
    refusal(run("list", "devices"), "memory ran out", "ulimit -v")


@pytest.mark.usefixtures("packages")
def test_a_bug_of_gemmtune_shows_its_traceback_and_ends_as_no_answer_does(run, monkeypatch):
    monkeypatch.setattr("gemmtune.engine.records.catalogue.devices", sys.getrefcount)
    ran = run("list", "devices")
    assert (ran.status, ran.out) == (70, "")
    assert ran.err.startswith("Traceback (most recent call last):\n")
    assert ran.err.splitlines()[-1].startswith("TypeError: ")
