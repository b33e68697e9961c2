"""Every way a config can fail, on a real GPU, through the executor: the right status each, and nothing else is lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gemmtune.engine.store.database import Database
from gemmtune.engine.toolchain.gpu_info import present_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU and gemmtune[triton]"),
    pytest.mark.timeout(400),
]

EXPECTED = {
    "none": "ok",
    "wrong element": "wrong_result",
    "unwritten": "wrong_result",
    "NaN output": "wrong_result",
    "illegal address": "run_failed",
    "endless": "timed_out",
    "too much shared memory": "run_failed",
    "does not load": "run_failed",
    "exits": "run_failed",
    "kills itself": "run_failed",
    "waits to be killed": "ok",  # it was innocent, and runs again
    "does not build": "build_failed",
    "builder killed": "build_failed",
    "illegal again": "run_failed",
    "none again": "ok",
    "huge": "run_failed",  # its tensors do not fit; the worker goes on
}
SAID = {
    "NaN output": "1 of 32768 output elements are NaN or were not written",
    "unwritten": "512 of 32768 output elements are NaN or were not written",
    "wrong element": "error norm",
    "illegal address": "illegal",
    "endless": "still running after 60 s",
    "too much shared memory": "CUDA_ERROR",
    "does not load": "as asked",
    "exits": "its process ended (exit status 3)",
    "kills itself": "its process ended (signal SIGKILL)",
    "huge": "out of memory",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds the faulty space as an installed distribution, and the driver."""
    for name in ("faulty_space.py", "faulty_driver.py"):
        shutil.copy(Path(__file__).with_name(name), tmp_path / name)
    info = tmp_path / "faulty-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[gemmtune.spaces]\nfaulty = faulty_space:FaultySpace\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("FAULTY_FOLDER", str(tmp_path))
    return tmp_path


def driven(folder: Path, *what: str) -> dict:
    command = [sys.executable, "-P", folder / "faulty_driver.py", *what]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("executor", ["local", "ray"])
def test_each_fault_gets_its_status_and_costs_nothing_else(folder: Path, own_ray, monkeypatch, executor: str) -> None:
    if executor == "ray":
        pytest.importorskip("ray", reason="needs gemmtune[ray]")
        monkeypatch.setenv("RAY_TMPDIR", own_ray["RAY_TMPDIR"])
    record = driven(folder, "faults", executor)
    assert {name: status for name, status, *_ in record["measurements"]} == EXPECTED
    assert len(record["measurements"]) == len(EXPECTED)
    for name, status, reason, samples in record["measurements"]:
        assert (samples > 0) == (status == "ok"), (name, samples)
        assert bool(reason) == (status != "ok"), (name, reason)
        assert SAID.get(name, "").lower() in reason.lower(), (name, reason)
    again = [notice for notice in record["notices"] if notice.endswith("running it again")]
    for name in ("exits", "kills itself", "waits to be killed", "builder killed"):
        assert sum(name in notice for notice in again) == 1, record["notices"]
    assert len(again) == 4


def test_a_finalist_that_changed_fails_and_a_lost_final_costs_nothing_else(folder: Path) -> None:
    record = driven(folder, "finals")
    assert record["statuses"] == dict.fromkeys(("none", "turns illegal", "turns wrong", "none again"), "ok")
    first, lost, last = record["finals"]
    assert set(first["finalists"]) == set(last["finalists"]) == {"none", "none again"}
    assert first["failed"].keys() == {"turns illegal", "turns wrong"}
    assert "illegal" in first["failed"]["turns illegal"].lower()
    assert "error norm" in first["failed"]["turns wrong"]
    assert "its process ended (signal SIGKILL)" in lost["not held"]
    assert "the final of 64x512x256" in " ".join(record["notices"])
    assert last["failed"] == {}
    assert last["finalists"][0] in last["tie_band"]
    assert 0 <= last["regret_bound"] < 0.05  # the same kernel twice


def test_a_driver_that_loses_the_gpu_ends_quarantined_and_goes_on_when_it_is_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_FAULTS", "none,illegal address,wrong element,illegal again,none again")
    tune = ("tune", "--space", "faulty", "--problem", "64x512x256", "--sampler", "exhaustive", "--batch", "1")
    loses = [sys.executable, "-P", folder / "faulty_driver.py", "loses", *tune]
    lost = subprocess.run(loses, capture_output=True, text=True, check=False, cwd=folder)
    assert lost.returncode == 2, lost.stderr
    assert lost.stdout == ""
    assert "Traceback" not in lost.stderr
    last = lost.stderr.splitlines()[-1]
    assert last.startswith("gemmtune: GPU 0 is quarantined: 3 worker processes in a row could not start (last: "), last
    assert "what was measured is kept; give the command again once GPU 0 is back" in last, last
    kept = stored(folder)
    assert [kept.get(name) for name in (None, "none", "illegal address", "wrong element")] == [
        "ok",  # the baseline
        "ok",
        "run_failed",
        "wrong_result",
    ]
    assert len(kept) == 4  # `illegal again` may have been innocent, and `none again` never ran

    back = subprocess.run(
        [sys.executable, "-P", "-m", "gemmtune", *tune],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert back.returncode == 0, back.stderr
    assert stored(folder) == kept | {"illegal again": "run_failed", "none again": "ok"}
    with Database.open(folder / "out/measurements.db") as database:
        (final,) = database.finals()
    assert {finalist.config.get("fault") for finalist in final.finalists} == {None, "none", "none again"}


def stored(folder: Path) -> dict[str | None, str]:
    """Fault to status; None for the baseline."""
    with Database.open(folder / "out/measurements.db") as database:
        return {m.config.get("fault"): m.status for m in database.measurements()}
