"""The exported files inside the installed torch's Inductor, on a machine without a GPU: see inductor_probe.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import Choice, Row
from gemmtune.engine.tables.inductor_exporter import InductorExporter
from gemmtune.engine.testing.exporter_conformance import example_table

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed: Inductor cannot render")

TILES = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 128, "GROUP_M": 4, "num_stages": 3, "num_warps": 8}
TRITON = (
    "64x96x256:bf16:nt",
    "64x96x256:bf16:nn",
    "64x96x256:bf16:tn",
    "64x96x256:bf16:tt",
    "64x96x200:bf16:nt",
    "1x96x256:bf16:nt",
    "1x96x256:bf16:tn",
    "64x1x256:bf16:nt",
    "64x1x256:bf16:nn",
    "64x96x256:fp16:nt",
    "64x96x256:fp32:nn",
)
DEEP = "16x16x4096:bf16:nt"  # k ≥ 64·max(m, n): Inductor itself would not offer triton::mm
ATEN = ("128x96x256:bf16:nt", "2048x4096x4096:bf16:nt")


def row(problem, space, config):
    choice = Choice(space, Config(config), 100.0, 99.0, 101.0, 32, Evidence.MEASURED, "torch 2.13.0", "events-cold-l2")
    return Row(Problem.parse(problem), (choice,), None, 0.0, ())


ROWS = (*(row(p, "triton_mm", TILES) for p in (*TRITON, DEEP)), *(row(p, "aten", {}) for p in ATEN))


def export(folder, rows):
    folder.mkdir()
    for name, text in InductorExporter().export(replace(example_table(), rows=rows)).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inductor")
    cases = [
        {"name": p.name, "m": p.m, "n": p.n, "k": p.k, "dtype": p.a_dtype.torch_name, "layout": p.name.split(":")[2]}
        for p in (r.problem for r in ROWS)
    ]
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}
    probe = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("inductor_probe.py")),
            str(export(folder / "export", ROWS)),
            str(export(folder / "other", ROWS[:1])),
            json.dumps(cases),
        ],
        env={**os.environ, **caches, "PYTHONWARNINGS": "ignore"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert probe.returncode == 0, probe.stderr[-3000:]
    return json.loads(probe.stdout)


@pytest.mark.parametrize(
    ("handler", "problem"), [*(("cases", p) for p in (*TRITON, DEEP)), *(("stock", p) for p in TRITON)]
)
def test_a_triton_row_is_the_only_choice_with_its_blocks(report, handler, problem):
    found = report[handler][problem]
    k = Problem.parse(problem).k
    assert (found["choices"], found["node"]) == (1, "TritonTemplateBuffer")
    assert found["name"].startswith("triton_mm_")
    blocks = {**{name: str(TILES[name]) for name in TILES if name.isupper()}, "EVEN_K": str(k % 128 == 0)}
    assert {name: found["blocks"][name] for name in blocks} == blocks
    assert (found["blocks"]["ACC_TYPE"], found["blocks"]["USE_FAST_ACCUM"]) == ("tl.float32", "False")
    assert found["stages_warps"] == ["3", "8"]


@pytest.mark.parametrize("handler", ["cases", "stock"])
@pytest.mark.parametrize("problem", ATEN)
def test_an_aten_row_is_the_only_choice(report, handler, problem):
    found = report[handler][problem]
    assert (found["choices"], found["name"], found["node"]) == (1, "mm", "ExternKernelOut")


def test_nothing_is_benchmarked(report):
    assert [found["benchmarks"] for found in report["cases"].values()] == [{}] * len(ROWS)
    assert report["cases_said"] == []


def test_a_miss_is_stock_inductor(report):
    assert report["miss"]["choices"] > 10
    assert report["miss"]["node"] == "MultiTemplateBuffer"
    assert report["miss_said"] == []


def test_a_gpu_under_68_sms_gets_its_row(report):
    assert (report["small_gpu"]["choices"], report["small_gpu"]["node"]) == (1, "TritonTemplateBuffer")


def test_a_symbolic_k_misses_for_its_even_k_would_be_a_guess(report):
    assert report["symbolic_k"] is None


def test_another_gpu_is_said_once_and_misses(report):
    assert report["other_gpu_said"] == ["gemmtune's table is for NVIDIA H200; on NVIDIA L4 no row applies"]
    assert report["other_gpu"]["choices"] > 10


def test_settings_that_rule_a_row_out_are_said_once(report):
    (said,) = report["no_options_said"]
    assert "pass options=gemmtune_inductor.options() to torch.compile" in said


def test_the_handler_holds_in_every_thread_and_leaves_every_thread(report):
    assert report["handlers"] == ["_TableChoices"] * 3  # this thread, a new one, one that had resolved its own before
    assert report["handlers_after"] == ["InductorChoices"] * 3


def test_the_table_is_part_of_the_compile_cache_key_in_every_thread(report):
    keys = [set(report[name]) for name in ("keys_before", "keys_other", "keys_table", "keys_after")]
    assert [len(k) for k in keys] == [1, 1, 1, 1]  # all threads agree
    assert len(keys[0] | keys[1] | keys[2]) == 3
    assert keys[0] == keys[3]


def test_the_autograd_cache_key_covers_all_of_the_graph_cache_key(report):
    assert report["autograd_key_extends_graph_key"]
