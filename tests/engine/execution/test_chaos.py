"""Builders, workers and the driver of a campaign are killed at random, and the table is as if they had not been."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gemmtune.engine.platform.gpu_info import present_device

pytest.importorskip("ray", reason="needs gemmtune[ray]")

SCRIPT = Path(__file__).parents[3] / "experiments" / "chaos" / "run.py"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_campaign_whose_processes_are_killed_loses_and_doubles_nothing(tmp_path, request, database):
    server, budget, pause = (), 24, 0.8
    if database == "postgres":
        if present_device() is not None:
            pytest.skip("with a GPU the command line measures")
        # Driven by the command that a user types; on SQLite, by a script whose jobs take time and send binaries. Here
        # they take none: a campaign lasts long enough for several kills only if it has more of them.
        budget, pause = 128, 0.3
        server = ("--cli", "--database", request.getfixturevalue("postgres_server").url("postgres"))
    report = tmp_path / "report.json"
    size = ("--kills", "8", "--seed", "20261121", "--budget", str(budget), "--pause", str(pause))
    done = subprocess.run(
        [sys.executable, "-P", SCRIPT, *size, "--json", report, *server],
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(report.read_text())
    assert sum(told["kills"].values()) == 8
    assert told["kills"].keys() == {"worker", "builder", "driver"} | ({"connection"} if server else set())
    assert told["measurements"] == 10 * (budget + 1)
    assert told["wrong"] == []
