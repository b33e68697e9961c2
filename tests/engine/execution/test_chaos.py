"""Builders, workers and the driver of a campaign are killed at random, and the table is as if they had not been."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs gemmtune[ray]")

pytestmark = pytest.mark.slow(40)

SCRIPT = Path(__file__).parents[3] / "experiments" / "chaos" / "run.py"


@pytest.mark.timeout(400)
def test_a_campaign_whose_processes_are_killed_loses_and_doubles_nothing(tmp_path, postgres_server):
    """One kill of each kind, on PostgreSQL: experiments/chaos kills hundreds, and test_resume.py drivers on SQLite."""
    report = tmp_path / "report.json"
    size = ("--problems", "3", "--budget", "16", "--seconds", "0.1", "--actors", "2", "1")
    kills = ("--kills", "4", "--seed", "20261121", "--pause", "0.8")
    done = subprocess.run(
        [sys.executable, "-P", SCRIPT, *size, *kills, "--json", report, "--database", postgres_server.url("postgres")],
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(report.read_text())
    assert told["kills"] == dict.fromkeys(("worker", "builder", "driver", "connection"), 1)
    assert told["measurements"] == 3 * (16 + 1)
    assert told["wrong"] == []
