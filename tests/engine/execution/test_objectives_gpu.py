"""Each objective on a real GPU, through the commands a user types."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.store.database import Database
from gemmtune.engine.toolchain.gpu_info import present_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU and gemmtune[triton]"),
    pytest.mark.timeout(300),
]

GEMMTUNE = [sys.executable, "-P", "-m", "gemmtune"]


def gemmtune(folder: Path, *arguments: str) -> str:
    done = subprocess.run([*GEMMTUNE, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def stored(folder: Path) -> list[Measurement]:
    with Database.open(folder / "out/measurements.db") as database:
        return list(database.measurements())


def test_what_fits_l2_is_faster_on_a_warm_one(tmp_path: Path) -> None:
    tune = ("tune", "--problem", "16x2048x2048:bf16:nt", "--budget", "8", "--json")  # 8 MiB of weights
    cold = json.loads(gemmtune(tmp_path, *tune))
    warm = json.loads(gemmtune(tmp_path, *tune, "--objective", "latency_warm", "--replace"))
    assert (cold["objective"], warm["objective"], cold["unit"], warm["unit"]) == ("latency", "latency_warm", "ns", "ns")
    for name in ("score", "baseline_score"):
        assert warm["tasks"][0][name] < cold["tasks"][0][name], name
    assert {m.protocol for m in stored(tmp_path)} == {"graph-cold-l2", "graph-warm-l2"}
    shown = json.loads(gemmtune(tmp_path, "show", "out/measurements.db", "--json"))
    assert [final["protocol"] for final in shown["finals"]] == ["graph-cold-l2", "graph-warm-l2"]


def test_energy_is_measured_beside_latency_and_their_front_is_shown(tmp_path: Path) -> None:
    tune = ("tune", "--problem", "16x4096x4096:bf16:nt", "--sampler", "random", "--budget", "6")
    text = gemmtune(tmp_path, *tune, "--objective", "latency_energy")
    measured = stored(tmp_path)
    right = [m for m in measured if m.status is Status.OK]
    assert len(right) >= 2
    for m in right:
        assert m.protocol == "graph-cold-l2+energy"
        assert m.energy_joules is not None
        assert m.estimate is not None
        watts = m.energy_joules / (m.estimate.time_ns * 1e-9)
        assert 20 < watts < 3000, (m.config, watts)  # a board draws 70 to 700 W; the loop is not timed in the same way

    for output in (text, gemmtune(tmp_path, "show", "out/measurements.db")):
        assert "Pareto front of " in output
        assert "latency µs  energy mJ  config" in output
    (task,) = json.loads(gemmtune(tmp_path, *tune, "--objective", "latency_energy", "--json"))["tasks"]
    points = [(point["latency_ns"], point["energy_J"]) for point in task["front"]]
    assert points == sorted(points)
    assert [energy for _, energy in points] == sorted((energy for _, energy in points), reverse=True)
    assert task["score"] == points[0][0]

    record = json.loads(gemmtune(tmp_path, *tune, "--objective", "energy", "--json", "--replace"))
    assert record["unit"] == "J"
    assert record["tasks"][0]["score"] == min(m.energy_joules for m in right if m.task.space == "triton_mm")
    assert stored(tmp_path) == measured  # the same protocol, the same configs: nothing is left to measure
