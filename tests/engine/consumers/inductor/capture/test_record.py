"""`gemmtune_inductor.record` in a program that is killed, and tables for a model that changed after its capture."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import gemmtune as gt
from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.api.plans import read_plan
from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.testing.exporter_conformance import example_table

pytestmark = pytest.mark.slow(5, together="probes")


def test_a_killed_program_leaves_its_products_with_their_runs(probe, tmp_path):
    write_all(InductorExporter().export(example_table()), tmp_path)
    done = probe(Path(__file__).with_name("record_probe.py"), tmp_path, str(tmp_path))
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    found = gt.capture(str(tmp_path / "problems.jsonl"))
    assert {product.problem.name: product.count for product in found.products} == {
        "16x1024x256:bf16:nt": 5,
        "16x256x1024:bf16:nt:addmm": 5,
    }
    assert [dict(product.epilogues) for product in found.products] == [{"gelu_tanh": 5}, {"add(matrix)": 5}]
    assert [(work.operation, work.count) for work in found.unseen] == [
        ("aten.convolution.default", 5)
    ]  # a graph of its own
    assert len(read_plan(tmp_path / "problems.jsonl").problems) == 2
