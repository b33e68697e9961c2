"""Plug-ins by name, file or module."""

from __future__ import annotations

import sys
from uuid import uuid4

import pytest

import gemmtune as gt
from gemmtune.engine.campaign.plan_file import read_plan
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.plugin_class import adopted, class_named
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.samplers.random import RandomSampler


@pytest.fixture
def name(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    found = f"samplers_{uuid4().hex}"
    base = "gemmtune.engine.search.samplers.random import RandomSampler"
    text = f"from {base}\nclass Mine(RandomSampler): ...\nnumber = 3\ndef function(): ...\n"
    for folder in (tmp_path, tmp_path / "below"):
        folder.mkdir(exist_ok=True)
        (folder / f"{found}.py").write_text(text)
    return found


def test_a_name_without_a_colon_is_a_registered_one(tmp_path):
    assert class_named(Sampler, "random", tmp_path) == "random"


@pytest.mark.parametrize("where", ["{}.py", "./{}.py", "below/{}.py", "{}"])
def test_a_class_is_taken_from_a_file_or_a_module_of_the_folder(tmp_path, name, where):
    before = len(sys.path)
    found = class_named(Sampler, f"{where.format(name)}:Mine", tmp_path)
    assert issubclass(found, RandomSampler)
    assert (found.__module__, found.__name__) == (name, "Mine")
    assert sys.path[0] == str(tmp_path / "below" if "below" in where else tmp_path)
    class_named(Sampler, f"{where.format(name)}:Mine", tmp_path)
    assert len(sys.path) == before + 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("other.py:Mine", "no file other.py to take sampler Mine from"),
        ("{}.py:number", "{}.py:number is int, which cannot be called"),
        ("{}:function", "{}:function is not a subclass of gemmtune.Sampler"),
        ("builtins:dict", "builtins:dict is not a subclass of gemmtune.Sampler"),
        ("{}.py:Absent", "cannot import {}.py:Absent"),
    ],
)
def test_anything_else_is_refused(tmp_path, name, text, said):
    with pytest.raises(UsageError, match=said.format(name)):
        class_named(Sampler, text.format(name), tmp_path)


class Worst(gt.Objective):
    protocol, unit = "graph-cold-l2", "ns"

    def score(self, measurement):
        if measurement.status is not gt.Status.OK:
            raise ValueError("a failure has no score")
        return max(measurement.samples_ns)


def test_a_class_goes_by_its_own_name_and_a_registered_one_by_its():
    from gemmtune.objectives.latency import Latency

    assert registry.adopt(gt.Objective, Latency) == "latency"
    assert adopted(gt.Objective, "latency") == "latency"
    assert adopted(gt.Objective, Worst) == "Worst"
    assert isinstance(registry.objective("Worst"), Worst)
    assert "Worst" not in registry.names(gt.Objective)
    with pytest.raises(UsageError, match=r"objective 'latency' is registered as .*: give the class another name"):
        registry.adopt(gt.Objective, type("latency", (Worst,), {}))
    with pytest.raises(UsageError, match=r"'int'> is not a subclass of gemmtune.Objective"):
        registry.adopt(gt.Objective, int)


def test_a_campaign_takes_classes_for_objective_pruner_and_exporter(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])

    class Spills(gt.Pruner):
        def judge(self, candidate, history):
            return gt.Verdict.yes()

    class Names(gt.Exporter):
        def export(self, table):
            return {"names.txt": " ".join(row.problem.name for row in table.rows)}

    problem = "16x4096x4096:bf16:nt"
    found = gt.tune([problem], backend=gt.landscapes("h200"), budget=4, objective=Worst, pruner=[Spills])
    assert found.table.objective == "Worst"
    assert [path.read_text() for path in found.table.export(Names, tmp_path)] == [problem]
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(
        f'problems = ["{problem}"]\nobjective = "./adopted_here.py:Best"\n'
        'pruner = ["static", "./adopted_here.py:None_"]\n'
    )
    (tmp_path / "adopted_here.py").write_text(
        "import gemmtune as gt\nfrom gemmtune.objectives.latency import Latency\nclass Best(Latency): ...\n"
        "class None_(gt.Pruner):\n    def judge(self, candidate, history): return gt.Verdict.yes()\n"
    )
    plan = read_plan(campaign)
    assert (plan.objective, plan.pruners) == ("Best", ("static", "None_"))
