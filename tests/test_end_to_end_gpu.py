"""The main job on a real GPU, through the commands a user types: tune, kill, tune again, export, torch.compile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gemmtune.engine.records.measurement import Status
from gemmtune.engine.store.database import Database
from gemmtune.engine.toolchain.gpu_info import present_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU and gemmtune[triton]"),
    pytest.mark.timeout(600),
]

GEMMTUNE = [sys.executable, "-P", "-m", "gemmtune"]
# The four layers of Llama-3.1-8B (qkv, o, down, gate_up) at growing m, and a layer whose k is no multiple of 8.
PROBLEMS = [
    "1x6144x4096:bf16:nt",
    "16x4096x4096:bf16:nt",
    "64x4096x14336:bf16:nt",
    "512x28672x4096:bf16:nt",
    "1024x1280x3420:bf16:nt",
]
# Every layout and dtype, and sizes that fill no tile.
CORNERS = [
    "1x1x1:bf16:nn",
    "7x5x3:fp16:tt",
    "100x1000x1001:bf16:nn",
    "33x65x129:bf16:tn",
    "128x256x512:fp16:nt",
    "130x514x1026:fp32:nn",
    "256x512x1024:tf32:nt",
    "64x1x4096:bf16:tt",
]


# The last tokens of a batch, a slice of rows by one matrix for all, a LoRA layer's sum, and scores with a mask.
UNUSUAL = [
    "8x1024x512:bf16:nn:lda=65536",
    "4x64x48x32:bf16:nn:bmm:lda=96:batch_stride_b=0",
    "64x256x128:bf16:nn:addmm:bias=matrix:alpha=0.5",
    "4x64x64x32:bf16:nt:baddbmm:alpha=0.125",
]

# The last tokens of prompts, batches, a long k, and an output of fp32; what the probe calls is of other sizes.
OPEN = [
    "8x320x512:bf16:nn:lda=65536",
    "4x16x32x64:bf16:nn:bmm",
    "16x16x32x64:bf16:nn:bmm",
    "16x16x32768:bf16:nn",
    "64x96x256:bf16:nn:out_dtype=fp32",
]


def tune_command(out: Path, *options: str, problems: list[str] = PROBLEMS) -> list[str]:
    named = [part for problem in problems for part in ("--problem", problem)]
    return [*GEMMTUNE, "tune", *named, "--out", str(out), *options]


def run_calls(calls: str, out: Path) -> dict[str, Any]:
    """Return what the probe prints of a list of calls with the table in `out`."""
    probe = Path(__file__).with_name("products_probe.py")
    command = [sys.executable, "-P", probe, out / "inductor", calls]
    done = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_tune_export_and_torch_compile_takes_every_row(tmp_path: Path) -> None:
    subprocess.run(tune_command(tmp_path, "--budget", "48"), check=True, timeout=300)
    table = json.loads((tmp_path / "table.json").read_text())
    assert len(table["rows"]) == len(PROBLEMS)
    check = Path(__file__).parents[1] / "experiments" / "inductor-table" / "run.py"
    report = tmp_path / "report.json"
    subprocess.run([sys.executable, check, tmp_path / "inductor", "--json", report], check=True, timeout=300)
    rows = json.loads(report.read_text())["rows"]
    assert [row["problem"] for row in rows] == sorted(PROBLEMS)
    assert all(not row["failures"] for row in rows)


def test_a_killed_campaign_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    command = tune_command(tmp_path, "--budget", "32")
    database = tmp_path / "measurements.db"
    with subprocess.Popen(command, start_new_session=True) as campaign:
        until = time.monotonic() + 120
        while _rows(database) < 40 and time.monotonic() < until:
            time.sleep(0.2)
        os.kill(campaign.pid, signal.SIGKILL)
    with Database.open(database) as store:
        before = list(store.measurements())
    assert 40 <= len(before) < 33 * len(PROBLEMS)
    subprocess.run(command, check=True, timeout=300)
    with Database.open(database) as store:
        after = list(store.measurements())
    assert after[: len(before)] == before
    assert len(after) == 33 * len(PROBLEMS)  # 32 a task and the baseline of each problem
    assert len({(m.task, m.config) for m in after}) == len(after)


def test_every_layout_and_dtype_and_ragged_size_is_right(tmp_path: Path) -> None:
    subprocess.run(tune_command(tmp_path, "--budget", "6", problems=CORNERS), check=True, timeout=300)
    with Database.open(tmp_path / "measurements.db") as store:
        failed = [(m.task.key, m.config, m.status, m.reason) for m in store.measurements() if m.status is not Status.OK]
        tasks = store.tasks()
    assert not failed
    assert len(tasks) == 2 * len(CORNERS)


def test_products_of_views_scalars_and_batches_with_a_bias_are_tuned_and_run_their_rows(tmp_path: Path) -> None:
    subprocess.run(tune_command(tmp_path, "--budget", "12", problems=UNUSUAL), check=True, timeout=300)
    found = run_calls("unusual", tmp_path)
    assert found["benchmarks"] == {}
    assert (found["use"]["products"], found["use"]["misses"]) == (len(UNUSUAL), [])
    assert found["use"]["rows"] + found["use"]["aten_rows"] == len(UNUSUAL)
    assert {each["problem"] for each in found["use"]["uses"]} == set(UNUSUAL)
    assert max(found["errors"]) < 8e-3


def test_open_prompts_and_batches_a_long_k_and_an_output_of_fp32_run_their_rows(tmp_path: Path) -> None:
    spaces = ("--space", "triton_mm", "--space", "decompose_k")
    subprocess.run(tune_command(tmp_path, "--budget", "12", *spaces, problems=OPEN), check=True, timeout=300)
    found = run_calls("open", tmp_path)
    assert (found["benchmarks"], found["use"]["misses"]) == ({}, [])
    assert found["use"]["rows"] + found["use"]["aten_rows"] == found["use"]["products"] == len(OPEN) + 1
    assert {each["problem"] for each in found["use"]["uses"]} == set(OPEN)
    assert max(found["errors"]) < 8e-3


def _rows(database: Path) -> int:
    if not database.exists():
        return 0
    with Database.open(database) as store:
        return sum(1 for _ in store.measurements())
