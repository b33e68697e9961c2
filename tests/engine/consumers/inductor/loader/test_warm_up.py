"""A serving process does not compile again the code that `gemmtune export --warm` compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow
from gemmtune.engine.testing.exporter_conformance import example_table

pytestmark = [pytest.mark.slow(9), pytest.mark.timeout(900)]

HERE = Path(__file__).parent
TILES = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 4, "num_stages": 3, "num_warps": 4}
SERVING = "import gc, sys, lazy_torch, inductor_warm_probe; inductor_warm_probe.main(*sys.argv[1:]); gc.freeze()"
"""Imports of the serving process that `gemmtune export --warm` does not have."""
LOGS = "+torch._inductor.codecache,+torch._functorch._aot_autograd.autograd_cache"


def test_a_process_that_loads_warmed_up_code_compiles_nothing(tmp_path):
    """On a CPU the table has no row to use, and one graph serves every m."""
    if find_spec("torch") is None or find_spec("triton") is None:
        pytest.skip("torch or triton is not installed")
    assert served_after_warm_up(tmp_path, example_table().device, hidden=True) == {"fxgraph_cache_hit": 1}


@pytest.mark.gpu
def test_a_process_that_loads_warmed_up_code_compiles_nothing_for_a_gpu(tmp_path):
    """Two graphs serve the ranges, and one the sizes beyond."""
    if find_spec("torch") is None or find_spec("triton") is None:
        pytest.skip("torch or triton is not installed")
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU on this machine")
    device = replace(example_table().device, name=torch.cuda.get_device_name())
    assert served_after_warm_up(tmp_path, device, hidden=False) == {"fxgraph_cache_hit": 3}


def served_after_warm_up(folder, device, *, hidden):
    """Return the answers of Inductor's graph cache; print the log lines of a miss that the warm-up lacks."""
    table = replace(example_table(), device=device, rows=(), ranges=(ranged(2, 64, 16), ranged(65, 256, 64)))
    write_all(InductorExporter().export(table), folder)
    exported, artifacts = str(folder / "inductor_table.json"), str(folder / "warm.bin")
    command = ("export", exported, "--warm", "inductor_warm_probe:forward", "--out", artifacts)
    ahead = run(folder / "ahead", hidden, "-m", "gemmtune", *command)
    served = run(folder / "served", hidden, "-c", SERVING, str(folder), artifacts)
    answers = json.loads(served.stdout.splitlines()[-1])
    if set(answers) != {"fxgraph_cache_hit"}:
        now, then = cache_lines(served.stderr), cache_lines(ahead.stderr)
        sys.stderr.write("\n".join([*sorted(now - then), "lines of the warm-up alone:", *sorted(then - now)]))
    return answers


def ranged(first, last, block_m):
    config = Config(TILES | {"BLOCK_M": block_m})
    choice = Choice("triton_mm", config, 100.0, 99.0, 101.0, 1, Evidence.MEASURED, "by hand", "by hand")
    problem = Problem.parse(f"{last}x384x512:bf16:nt:addmm:dynamic_m=true")
    return RangeRow(problem, first, last, choice, ((last, 0.0),))


def run(folder, hidden, *arguments):
    """Run Python in its own process with its own caches, with or without GPUs."""
    folder.mkdir()
    settings = {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCH_LOGS": LOGS,
        "PYTHONPATH": os.pathsep.join((str(HERE), *sys.path)),
    }
    settings |= {"CUDA_VISIBLE_DEVICES": ""} if hidden else {}
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **settings},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return done


def cache_lines(log):
    """Return the log lines of compile caches and their keys, without time, process and graph."""
    lines = (line for line in log.splitlines() if "codecache.py" in line or "autograd_cache.py" in line)
    return {line.partition(".py:")[2].partition("] [")[2].partition("] ")[2][:500] for line in lines}
