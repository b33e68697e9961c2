"""Builders, workers and the driver of a campaign are killed at random, and the table is as if they had not been."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs gemmtune[ray]")

SCRIPT = Path(__file__).parents[3] / "experiments" / "chaos" / "run.py"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "database",
    [pytest.param("sqlite", marks=pytest.mark.slow(45)), pytest.param("postgres", marks=pytest.mark.slow(40))],
)
def test_a_campaign_whose_processes_are_killed_loses_and_doubles_nothing(tmp_path, request, database):
    server = ()
    if database == "postgres":
        server = ("--database", request.getfixturevalue("postgres_server").url("postgres"))
    report = tmp_path / "report.json"
    size = ("--kills", "5", "--seed", "20261121", "--budget", "24", "--pause", "0.8")
    done = subprocess.run(
        [sys.executable, "-P", SCRIPT, *size, "--json", report, *server],
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(report.read_text())
    assert sum(told["kills"].values()) == 5  # one of each kind, then at random; experiments/chaos kills hundreds
    assert told["kills"].keys() == {"worker", "builder", "driver"} | ({"connection"} if server else set())
    assert told["measurements"] == 10 * (24 + 1)
    assert told["wrong"] == []
