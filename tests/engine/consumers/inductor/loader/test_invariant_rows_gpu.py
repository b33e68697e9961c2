"""From a batch-invariant campaign to torch.compile on a GPU: equal rows have equal bits at every m."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gemmtune.engine.records.gemm.problem import gemm
from gemmtune.engine.tables.table_file import read_table
from gemmtune.engine.toolchain.gpu_info import present_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU and gemmtune[triton]"),
    pytest.mark.timeout(600),
]

N, K, LARGEST = 1024, 4096, 4096
SIZES = (2, 16, 128, 1024, 4096)


def test_equal_rows_have_equal_bits_at_every_m_from_1_to_4096(tmp_path):
    problems = [f"--problem={m}x{N}x{K}:bf16:nt:dynamic_m=true" for m in SIZES]
    options = ["--batch-invariant", "--budget", "16", "--no-report", "--out", str(tmp_path)]
    run("-m", "gemmtune", "tune", *problems, *options)
    table = read_table(tmp_path / "table.json")
    assert table.batch_invariant
    assert [gemm(row.problem).m for row in table.rows] == sorted(SIZES, key=str)
    probe = Path(__file__).with_name("invariant_gpu_probe.py")
    answer = json.loads(run(str(probe), str(tmp_path / "inductor"), str(N), str(K), str(LARGEST)).splitlines()[-1])
    assert answer["differing"] == 0
    assert answer["report"]["misses"] == []


def run(*arguments):
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
