"""On a GPU, torch.compile runs rows of attention, forward, backward and decoding, with right results."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.records.flex.attention import Flex
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
    pytest.mark.skipif(DEVICE is None or DEVICE.capability < (8, 0), reason="needs a GPU of sm_80"),
]
HEAD = "b1:h4:kvh2:q512:kv512:d64:bf16"
DOCUMENTS = f"{HEAD}:mask=causal_document:score=softcap(20)"
NAMES = (
    *(f"flex:{phase}:{sizes}" for phase in ("forward", "backward") for sizes in (f"{HEAD}:mask=causal", DOCUMENTS)),
    f"flex:decode:{HEAD.replace('q512', 'q1')}",
    f"flex:forward:{HEAD}:mask=and(at(t0,b,q,kv),lt(kv,at(t1,b)))",
)
RANGE = f"flex:forward:{HEAD.replace('512', '1024')}:mask=causal:dynamic=s"


def row(name):
    of = Task(Flex.parse(name), DEVICE, "flex_attention")
    config = registry.space("flex_attention").seeds(of)[-1]  # seldom torch's default
    choice = Choice("flex_attention", config, 100.0, 99.0, 101.0, 32, Evidence.MEASURED, "by hand", "events-cold-l2")
    return Row(of.problem, (choice,), None, 0.0, ())


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flex")
    rows, ranged = tuple(map(row, NAMES)), row(RANGE)
    ranges = (RangeRow(ranged.problem, 128, 1024, ranged.choices[0], ((1024, 0.0),)),)
    write_all(InductorExporter().export(replace(example_table(), device=DEVICE, rows=rows, ranges=ranges)), folder)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("flex_gpu_probe.py")), str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_outputs_and_gradients_are_right(report):
    assert max(report["errors"].values()) < 2e-2, report["errors"]


def test_every_kernel_is_a_rows_and_nothing_is_benchmarked(report):
    assert report["benchmarks"] == {}
    names = (*NAMES, RANGE.replace("1024", "300"))
    assert {use["problem"]: use["outcome"] for use in report["use"]["uses"]} == dict.fromkeys(names, "row")
