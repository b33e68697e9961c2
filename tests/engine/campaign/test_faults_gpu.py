"""Every way a config can fail, on a real GPU, through the fleet: the right status each, and nothing else is lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gemmtune.engine.measure.gpu import present_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU and gemmtune[triton]"),
    pytest.mark.timeout(300),
]

EXPECTED = {
    "none": "ok",
    "wrong element": "wrong_result",
    "unwritten": "wrong_result",
    "illegal address": "run_failed",
    "endless": "timed_out",
    "too much shared memory": "run_failed",
    "does not load": "run_failed",
    "exits": "run_failed",
    "killed": "run_failed",
    "does not build": "build_failed",
    "builder killed": "build_failed",
    "none again": "ok",
}

SCRIPT = """
from gemmtune.engine.campaign.local_fleet import LocalFleet
from gemmtune.engine.measure.gpu import present_device
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry

if __name__ == "__main__":
    device = present_device()
    task = Task(Problem.parse("64x512x256"), device, "faulty")
    huge = Task(Problem.parse("900000x900000x1024"), device, "faulty")
    fleet = LocalFleet(["faulty"], "events-cold-l2", builders=2, run_deadline_seconds=10)
    configs = list(registry.space("faulty").points(task))
    for config in configs:
        fleet.submit(task, config)
    fleet.submit(huge, Config({"fault": "none"}))
    finished = []
    while len(finished) < len(configs) + 1:
        finished += fleet.collect(1.0)
    fleet.close()
    for m in finished:
        name = "huge" if m.task == huge else m.config["fault"]
        print(f"{name}|{m.status}|{m.reason}|{len(m.samples_ns)}")
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder that holds the faulty space as an installed distribution."""
    shutil.copy(Path(__file__).with_name("faulty_space.py"), tmp_path / "faulty_space.py")
    info = tmp_path / "faulty-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[gemmtune.spaces]\nfaulty = faulty_space:FaultySpace\n")
    return tmp_path


def test_each_fault_gets_its_status_and_costs_nothing_else(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=":")
    script = site / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, "-P", script], capture_output=True, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        name, status, reason, samples = line.split("|")
        found[name] = status
        assert (int(samples) > 0) == (status == "ok"), line
        assert bool(reason) == (status != "ok"), line
    assert found.pop("huge") == "run_failed"  # its tensors do not fit; the worker goes on
    assert found == EXPECTED
