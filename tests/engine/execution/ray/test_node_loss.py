"""A machine leaves the cluster in the middle of a campaign, and what it had goes to the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs gemmtune[ray]")

pytestmark = pytest.mark.slow(16, together="ray")


@pytest.mark.timeout(300)
def test_a_campaign_outlives_a_machine_and_keeps_every_measurement(tmp_path, own_ray):
    script = Path(__file__).with_name("node_loss.py")
    done = subprocess.run(
        [sys.executable, "-P", script, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env=own_ray,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads((tmp_path / "report.json").read_text())
    gone = [notice for notice in told["notices"] if "is gone: its machine has left the cluster" in notice]
    assert {notice.split("/replay-")[1].split(" ")[0] for notice in gone} == {"builder0", "worker0"}
    assert 0 < told["measured before the loss"] < told["measurements"] == 3 * (24 + 1)
    assert told["same measurements"]
    assert told["same rows"]
