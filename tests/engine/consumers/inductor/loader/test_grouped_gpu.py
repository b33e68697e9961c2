"""On a GPU, torch.compile runs rows of grouped products in both directions, in graphs, ranges and from its caches."""

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
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.testing.exporter_conformance import example_table
from gemmtune.engine.toolchain.gpu_info import present_device

DEVICE = present_device()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        DEVICE is None or DEVICE.arch not in ("sm_90a", "sm_100a") or find_spec("quack") is None,
        reason="needs a GPU of sm_90a or sm_100a and gemmtune[triton,cute]",
    ),
]
FORWARD, OF_INPUT = "grouped:rows:m1024:g4:n384:k256:bf16:nt", "grouped:rows:m1024:g4:n256:k384:bf16:nn"
SCALED = FORWARD.replace("bf16:nt", "e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32])")
OF_WEIGHT = "grouped:inner:m384:g4:n256:k1024:bf16:tn"


def choice(problem):
    space = registry.space("quack_grouped")
    seed = space.seeds(Task(problem, DEVICE, "quack_grouped"))[0]
    return Choice("quack_grouped", seed, 100.0, 99.0, 101.0, 32, Evidence.MEASURED, "by hand", "events-cold-l2")


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports of two processes that share torch's caches."""
    folder = tmp_path_factory.mktemp("grouped")
    products = [*map(Grouped.parse, (FORWARD, OF_INPUT, OF_WEIGHT, SCALED))]
    rows = tuple(Row(product, (choice(product),), None, 0.0, ()) for product in products)
    ranges = (RangeRow(products[0], 512, 1024, choice(products[0]), ()),)
    write_all(InductorExporter().export(replace(example_table(), device=DEVICE, rows=rows, ranges=ranges)), folder)
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}
    found = []
    for which in ("first", "cached"):
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("grouped_gpu_probe.py")), str(folder), which],
            env={**os.environ, **caches},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-8000:]
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return found


def test_results_are_right_however_rows_spread(reports):
    for report in reports:
        assert max(report["errors"].values()) < 8e-3, report["errors"]


def test_rows_run_their_binaries_and_nothing_is_benchmarked(reports):
    first, cached = reports
    for code in (first["code"], first.get("second", first["code"])):
        assert "extern_kernels.gemmtune_quack_grouped_" in code
    assert first["benchmarks"] == {}
    outcomes = {use["problem"]: use["outcome"] for use in first["use"]["uses"]}
    assert {outcomes[name] for name in (FORWARD, OF_INPUT, OF_WEIGHT, SCALED)} == {"row"}
    assert outcomes["grouped:rows:m600:g4:n384:k256:bf16:nt"] == "row"
    assert outcomes["grouped:rows:m40:g4:n384:k256:bf16:nt"] == "miss"
    assert cached["hits"] > 0
