"""Own Triton kernels on a GPU: what a faulty one costs, and what the loaded table saves."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import gemmtune as gt
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.store.database import Database
from gemmtune.engine.toolchain.gpu_info import present_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU"),
    pytest.mark.timeout(300),
]

FAULTY = Path(__file__).with_name("faulty_kernel.py")
SOFTMAX = Path(__file__).parents[3] / "docs/examples/own_kernel/softmax.py"


def statuses(folder, name):
    result = gt.tune(f"triton:{FAULTY}:{name}", sampler="exhaustive", budget=16, database=folder / "m.db")
    with Database.open(str(folder / "m.db"), read_only=True) as store:
        found = [m for m in store.measurements() if m.task.space == "triton_kernel"]
    return result, {(m.config["FAULT"], m.config["BLOCK"]): m for m in found}


def test_wrong_and_crashing_configs_cost_a_worker_and_not_the_campaign(tmp_path):
    result, found = statuses(tmp_path, "Copy")
    right = {key: m for key, m in found.items() if key[0] == 0}
    assert {key: m.status for key, m in right.items()} == {(0, 256): Status.OK, (0, 1024): Status.OK}, right
    assert {m.status for key, m in found.items() if key[0] == 1} == {Status.WRONG_RESULT}
    assert {m.status for key, m in found.items() if key[0] == 3} == {Status.RUN_FAILED}
    (row,) = result.rows
    assert row.choices[0].config.get("FAULT", 0) == 0
    assert row.baseline is not None


def test_an_endless_config_costs_its_deadline(tmp_path):
    _, found = statuses(tmp_path, "Endless")
    assert {key[0]: m.status for key, m in found.items()} == {0: Status.OK, 2: Status.TIMED_OUT}


def test_a_loaded_table_benchmarks_nothing(tmp_path):
    import torch
    import triton

    gt.tune(f"triton:{SOFTMAX}:Softmax", budget=8, out=tmp_path, report=False)
    loader, example = (_module(path) for path in (tmp_path / "triton/gemmtune_triton.py", SOFTMAX))
    heard = []
    triton.knobs.autotuning.listener = lambda **facts: heard.append(facts["key"])
    try:
        assert loader.load(example.softmax_kernel) == 2
        for rows, columns in ((32768, 1024), (30000, 1024), (4096, 8192)):
            x = torch.randn((rows, columns), device="cuda").bfloat16()
            out = torch.empty_like(x)
            grid = lambda meta, rows=rows: (triton.cdiv(rows, meta["ROWS"] * meta["STEPS"]),)  # noqa: E731
            example.softmax_kernel[grid](out, x, rows, columns, COLUMNS=triton.next_power_of_2(columns))
            right = torch.softmax(x.double(), 1)
            assert (out.double() - right).norm() / right.norm() < 8e-3
        assert heard == []
    finally:
        triton.knobs.autotuning.listener = None


def _module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


FORMS = """
import torch
import triton
import triton.language as tl


def zero(nargs):
    nargs["out"].zero_()


@triton.autotune([triton.Config({"SPLIT": split}, pre_hook=zero) for split in (1, 4)], key=["n"])
@triton.jit
def sums(out, x, n, SPLIT: tl.constexpr):
    at = tl.program_id(0) * (n // SPLIT) + tl.arange(0, 64)
    for start in range(0, n // SPLIT, 64):
        tl.atomic_add(out + tl.arange(0, 64), tl.load(x + at + start))


@triton.autotune([triton.Config({"BLOCK": 256}, num_ctas=ctas) for ctas in (1, 2)], key=["n"], restore_value=["x"])
@triton.jit
def double(x, n, by: tl.float64, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, (tl.load(x + at) * by).to(tl.float32))


class Sums:
    kernel, outputs, cases = sums, ("out",), {"one": {"n": 1 << 16}}
    def arguments(self, case, make):
        return {"out": make.empty((64,), torch.float32), "x": make.normal((case["n"],), torch.float32), "n": case["n"]}
    def grid(self, case, meta):
        return (meta["SPLIT"],)
    def reference(self, case, arguments):
        return arguments["x"].double().view(-1, 64).sum(0)


class Double:
    kernel, outputs, cases = double, ("x",), {"one": {"n": 1 << 16}}
    def arguments(self, case, make):
        return {"x": make.normal((case["n"],), torch.float32), "n": case["n"], "by": 2.0}
    def grid(self, case, meta):
        return (case["n"] // meta["BLOCK"],)
    def reference(self, case, arguments):
        return arguments["x"].double() * 2
"""


@pytest.mark.parametrize("name", ["Sums", "Double"])
def test_hooks_clusters_fp64_scalars_and_operands_in_place_are_right_and_timed(tmp_path, name):
    (tmp_path / "forms.py").write_text(FORMS)
    result = gt.tune(
        f"triton:{tmp_path / 'forms.py'}:{name}", sampler="exhaustive", budget=8, database=tmp_path / "m.db"
    )
    with Database.open(str(tmp_path / "m.db"), read_only=True) as store:
        assert {m.status for m in store.measurements()} == {Status.OK}
    assert result.rows[0].baseline is not None
