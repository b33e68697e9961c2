"""`gemmtune_inductor.record` in a program that is killed, and tables for a model that changed after its capture."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import gemmtune as gt
from gemmtune.engine.campaign.plan_file import read_plan
from gemmtune.engine.tables.inductor.exporter import InductorExporter
from gemmtune.engine.testing.exporter_conformance import example_table

pytestmark = [
    pytest.mark.slow(15),
    pytest.mark.skipif(find_spec("torch") is None or find_spec("triton") is None, reason="torch or triton is missing"),
]


def test_a_killed_program_leaves_its_products_with_their_runs(tmp_path):
    for name, text in InductorExporter().export(example_table()).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    probe = Path(__file__).with_name("record_probe.py")
    done = subprocess.run(
        [sys.executable, str(probe), str(tmp_path)],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    found = gt.capture(str(tmp_path / "problems.jsonl"))
    assert {product.problem.name: product.count for product in found.products} == {
        "16x1024x256:bf16:nt": 5,
        "16x256x1024:bf16:nt:addmm": 5,
    }
    assert [dict(product.epilogues) for product in found.products] == [{"gelu_tanh": 5}, {"add(matrix)": 5}]
    assert len(read_plan(tmp_path / "problems.jsonl").problems) == 2
