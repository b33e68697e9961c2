"""A campaign through Ray on this machine's GPUs, by the command a user types."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gemmtune.engine.records.measurement import Evidence, Status
from gemmtune.engine.store.database import Database
from gemmtune.engine.toolchain.gpu_info import equal_gpus, present_device

pytest.importorskip("ray", reason="needs gemmtune[ray]")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU and gemmtune[triton]"),
    pytest.mark.timeout(600),
]

PROBLEMS = ("16x4096x4096:bf16:nt", "256x4096x4096:bf16:nt", "1024x6144x4096:bf16:nt", "64x4096x14336:bf16:nt")


@pytest.mark.parametrize("executor", ["local", "ray"])
def test_every_gpu_measures_and_every_problem_has_its_final(tmp_path, executor):
    named = [part for problem in PROBLEMS for part in ("--problem", problem)]
    command = [sys.executable, "-P", "-m", "gemmtune", "tune", *named, "--fleet", executor, "--budget", "24"]
    done = subprocess.run([*command, "--out", tmp_path], capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    with Database.open(tmp_path / "measurements.db", read_only=True) as store:
        measured, finals = list(store.measurements()), store.finals()
    assert len(measured) == len({(m.task, m.config) for m in measured}) == 25 * len(PROBLEMS)
    assert {m.evidence for m in measured} == {Evidence.MEASURED}
    assert {final.problem.name for final in finals} == set(PROBLEMS)
    assert {m.worker for m in measured if m.status is Status.OK} >= {final.worker for final in finals}
    assert len({m.worker for m in measured if m.status is Status.OK}) == len(equal_gpus())
