"""Builders, workers and the driver of a campaign are killed at random, and the table is as if they had not been."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "experiments" / "chaos" / "run.py"


@pytest.mark.slow(50, together="ray")
@pytest.mark.skipif(find_spec("ray") is None, reason="needs gemmtune[ray]")
@pytest.mark.timeout(400)
def test_a_campaign_whose_processes_are_killed_loses_and_doubles_nothing(tmp_path, postgres_server):
    """One kill of each kind, on PostgreSQL: experiments/chaos kills hundreds, and test_resume.py drivers on SQLite."""
    report = tmp_path / "report.json"
    size = ("--problems", "3", "--budget", "16", "--batch", "2", "--seconds", "0.1", "--actors", "2", "1")
    kills = ("--kills", "4", "--seed", "20261121", "--pause", "0.4")
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


@pytest.mark.slow(20, together="waiting")
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("postgres_server")  # skips where there is no server
def test_drivers_that_share_a_server_end_as_alone_though_one_and_the_server_are_killed(tmp_path):
    report = tmp_path / "report.json"
    size = ("--spans", "0-2", "1-3", "--budget", "24", "--seconds", "0.4")
    done = subprocess.run(
        [sys.executable, "-P", SCRIPT.with_name("drivers.py"), *size, "--kills", "2", "--seed", "3", "--json", report],
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(report.read_text())
    assert (sum(told["kills"].values()), told["wrong"]) == (2, [])
    assert {found["distinct"] for found in told["rounds"]} == {3 * 25}
