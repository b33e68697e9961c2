"""A final on a real GPU, through the commands a user types: held once, stored, shown, and shipped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gemmtune.engine.records.measurement import Status
from gemmtune.engine.seams.executor import FINALISTS
from gemmtune.engine.store.database import Database
from gemmtune.engine.tables.table_file import read_table
from gemmtune.engine.toolchain.gpu_info import present_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU and gemmtune[triton]"),
    pytest.mark.timeout(300),
]

GEMMTUNE = [sys.executable, "-P", "-m", "gemmtune"]
PROBLEM = "16x4096x4096:bf16:nt"


def gemmtune(folder: Path, *arguments: str) -> str:
    done = subprocess.run([*GEMMTUNE, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_final_is_held_once_and_is_what_ships(tmp_path: Path) -> None:
    tune = ("tune", "--problem", PROBLEM, "--budget", "24")
    summary = gemmtune(tmp_path, *tune)
    with Database.open(tmp_path / "out/measurements.db") as database:
        measured, finals = list(database.measurements()), database.finals()
    (final,) = finals

    assert (final.protocol, final.failed) == ("graph-cold-l2", ())
    met = {(finalist.task.space, finalist.config) for finalist in final.finalists}
    right = {(m.task.space, m.config) for m in measured if m.status is Status.OK}
    assert met <= right
    assert len(met) == min(FINALISTS + 1, len(right))
    assert [finalist.task.space for finalist in final.finalists].count("aten") == 1
    times = [finalist.estimate.time_ns for finalist in final.finalists]
    assert times == sorted(times)
    assert all(len(finalist.samples_ns) >= 16 for finalist in final.finalists)  # two rounds of 8
    assert final.leader.behind == (0, 0)
    assert final.leader in final.tie_band
    assert 0 <= final.regret_bound < 0.05

    (row,) = read_table(tmp_path / "out/table.json").rows
    assert row.regret_bound == final.regret_bound
    assert row.tie_band[0] == final.leader.config
    assert f"≤ {final.regret_bound:.2%}" in summary
    shown = json.loads(gemmtune(tmp_path, "show", "out/measurements.db", "--json"))
    assert [record["leader"]["config"] for record in shown["finals"]] == [dict(final.leader.config)]
    assert "\n1 final\n" in gemmtune(tmp_path, "show", "out/measurements.db")

    before = (tmp_path / "out/table.json").read_bytes()
    assert gemmtune(tmp_path, *tune) == summary
    with Database.open(tmp_path / "out/measurements.db") as database:
        assert list(database.measurements()) == measured
        assert database.finals() == finals
    assert (tmp_path / "out/table.json").read_bytes() == before
