"""Own Triton kernels from landscapes to the exported table, without a GPU."""

from __future__ import annotations

import json
from math import log2
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed")

import gemmtune as gt
from gemmtune.engine.api.plans import parse_problems
from gemmtune.engine.api.reporting import table_of_database
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import expand_workloads, kind_of
from gemmtune.engine.search.enumeration import feasible_configs
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes, write_landscapes

FILE = Path(__file__).parents[3] / "docs/examples/own_kernel/softmax.py"
SOFTMAX = f"triton:{FILE}:Softmax"
H200 = catalogue.device("H200")
DEFAULT = {"ROWS": 1, "STEPS": 1, "num_warps": 4, "num_stages": 2}
BEST = Config({"ROWS": 4, "STEPS": 2, "num_warps": 4, "num_stages": 3})


def time_ns(case, config):
    values = dict(config) or DEFAULT
    off = abs(log2(values["ROWS"] / 4)) + abs(log2(values["STEPS"] / 2)) + abs(log2(values["num_warps"] / 4))
    return case.size * (2.5 + 0.2 * off + 0.05 * abs(values["num_stages"] - 3))


def landscape(case, name):
    space, task = registry.space(name), Task(case, H200, name)
    times = {config: time_ns(case, config) for config in feasible_configs(space, task)}
    points = {config: Point(config, Status.OK, ns, (ns,) * 8) for config, ns in times.items()}
    context = {"device": "H200", "space": name, "protocol": "graph-cold-l2", "toolchain": "triton 3.7.0"}
    return Landscape(case.name, "", space.params(task), points, case, context)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("landscapes")
    files = {name: folder / f"{name}.csv.gz" for name in ("triton_kernel", "triton_default")}
    for name, file in files.items():
        write_landscapes(file, [landscape(case, name) for case in expand_workloads(SOFTMAX)])
    return [str(file) for file in files.values()]


def test_landscapes_keep_the_workload(recorded):
    assert [each.problem for each in read_landscapes(recorded[0])] == list(expand_workloads(SOFTMAX))


def test_a_search_ends_in_a_table_that_the_loader_reads(recorded, tmp_path):
    result = gt.tune(SOFTMAX, backend=recorded, budget=32, out=tmp_path, portfolio=True, report=False)
    assert [row.baseline.space for row in result.rows] == ["triton_default"] * 2
    assert all(row.choices[0].time_ns < row.baseline.time_ns for row in result.rows)
    assert result.best(expand_workloads(SOFTMAX)[1].name).config == BEST
    table = json.loads((tmp_path / "triton/triton_table.json").read_text())
    assert table["kernels"][0]["nearest"] == "n_rows"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["triton"]
    assert "triton_default µs" in result.summary()
    with gt.Database.open(result.database, read_only=True) as store:
        assert {m.task.problem for m in store.measurements()} == set(expand_workloads(SOFTMAX))


def test_a_sampler_replays_on_recorded_kernels(recorded):
    study = gt.replay(gt.landscapes(recorded[0]), sampler="transfer", budget=8, seeds=1)
    assert 0.8 < study.fraction_of_optimum["transfer"] <= 1


def test_a_class_stands_for_its_cases():
    assert [case.size for case in parse_problems([SOFTMAX, "16x4096x4096:bf16:nt"])] == [32768, 4096, 16]
    with pytest.raises(UsageError, match="is in no file, which builders read it from"):
        parse_problems(type("Nowhere", (), {"__module__": "no_such_module"}))


TWO_DEFAULTS = """
import torch, triton, triton.language as tl

@triton.autotune([triton.Config({"BLOCK": block}) for block in (128, 64)], key=["n"])
@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)

class Copy:
    kernel = kernel
    cases = {"one": {"n": 256}}
    outputs = ("out",)

    def arguments(self, case, make):
        n = case["n"]
        return {"x": make.normal((n,), torch.float32), "out": make.empty((n,), torch.float32), "n": n}

    def grid(self, case, config):
        return (triton.cdiv(case["n"], config["BLOCK"]),)

    def reference(self, case, arguments):
        return arguments["x"]
"""


def test_a_case_finds_what_a_campaign_measured_with_another_untuned_config(tmp_path):
    file = tmp_path / "copy_of.py"
    file.write_text(TWO_DEFAULTS)
    case = expand_workloads(f"triton:{file}:Copy")[0]
    first, second = kind_of("triton").untuned(case)
    assert first == case != second
    task, ns = Task(second, H200, "triton_kernel"), 1000.0
    estimate = Estimate(ns, ns, ns)
    how = {"toolchain": Toolchain((("triton", "3.7.0"),)), "worker": "host:0:1", "created_at": "2026-11-21T10:00:00Z"}
    how |= {"protocol": "graph-cold-l2", "samples_ns": (ns,) * 8, "estimate": estimate}
    measured = Measurement(task=task, config=second.untuned_config, status=Status.OK, evidence=Evidence.MEASURED, **how)
    with Database.open(tmp_path / "found.db") as database:
        database.add([measured])
        for text in (case, case.name, f"triton:{file}:Copy", second):
            assert [m.task for m in database.measurements(text)] == [task]
            assert database.best(text).task == task
        assert not list(database.measurements(Task(case, H200, "triton_kernel")))
        table = table_of_database(database)
    choice = table.rows[0].choices[0]
    assert table.lookup(case) == table.lookup(case.name) == choice
    assert table.code(f"triton:{file}:Copy", "config").startswith('triton.Config({"BLOCK": 64}')
