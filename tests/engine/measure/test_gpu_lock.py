"""Lock of a GPU: one process after the other, in the order of asking, and nobody waits for one that ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gemmtune.engine.measure.gpu_lock import gpu_lock

HOLD = """
import sys
from gemmtune.engine.measure.gpu_lock import gpu_lock
with gpu_lock("GPU-of-a-test"):
    print("mine", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def other():
    """Another process, which holds the GPU."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "mine\n"
    yield process
    process.kill()
    process.communicate()


def waiting(folder: Path) -> int:
    """Return a process that waits for the GPU, forked from this one; it writes a file once it has it."""
    if (pid := os.fork()) == 0:
        with gpu_lock("GPU-of-a-test"):
            (folder / "had the GPU").touch()
        os._exit(0)
    return pid


@pytest.mark.parametrize(
    "end", [lambda other: other.communicate("\n"), lambda other: other.send_signal(signal.SIGKILL)]
)
def test_a_process_waits_for_the_end_of_another_or_of_its_process(other, folder, end):
    child = waiting(folder)
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(0.3)
    assert not (folder / "had the GPU").exists()
    end(other)
    assert os.waitpid(child, 0)[1] == 0
    assert (folder / "had the GPU").exists()


def test_other_gpus_and_one_job_after_the_other_do_not_wait(other):
    for _ in range(2):
        with gpu_lock("GPU-another"):
            pass


def test_nobody_waits_where_the_files_cannot_be_opened(other, folder):
    for path in folder.iterdir():
        path.unlink()
        path.symlink_to("elsewhere")
    with gpu_lock("GPU-of-a-test"):
        pass
