"""Signals at any time end a command in order, and a killed process's folders are deleted by the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gemmtune.engine.cli.stopping import SIGNALS, stoppable
from gemmtune.engine.processes.scratch import ScratchFolder
from gemmtune.engine.records.errors import Stopped

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("default_signals")


def interrupted(*numbers: signal.Signals, cleaned: list[bool]) -> None:
    """Run work that gets the first signal, and its clean-up that gets the others."""
    with stoppable():
        try:
            os.kill(os.getpid(), numbers[0])
        finally:
            for number in numbers[1:]:
                os.kill(os.getpid(), number)
            cleaned.append(True)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_stops_and_further_ones_disturb_nothing(number):
    cleaned = []
    with pytest.raises(Stopped) as stopped:
        interrupted(number, *SIGNALS, *SIGNALS, cleaned=cleaned)
    assert (stopped.value.signal, cleaned) == (number, [True])
    os.kill(os.getpid(), signal.SIGINT)  # while the last line is printed


def test_a_clean_up_that_takes_long_is_stopped_by_a_second_signal(monkeypatch):
    monkeypatch.setattr("gemmtune.engine.cli.stopping._DEAF_SECONDS", 0.0)
    cleaned = []
    with pytest.raises(Stopped):
        interrupted(signal.SIGINT, signal.SIGINT, cleaned=cleaned)
    assert cleaned == []


def test_an_ignored_signal_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    with stoppable():
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


INTERRUPTED = """
import os, sys
class Interrupt:
    left = [sys.argv[1]]
    def find_spec(self, name, *_):
        if name in self.left:
            self.left.remove(name)
            os.kill(os.getpid(), 2)
sys.meta_path.insert(0, Interrupt())
sys.argv[:] = ["gemmtune", "--help"]
from gemmtune.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["enum", "gemmtune.engine.cli"])
def test_ctrl_c_while_gemmtune_is_imported_is_one_line(tmp_path, module):
    command = [sys.executable, "-S", "-c", INTERRUPTED, module]  # -S: site may have imported enum
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (130, "", 1)
    assert done.stderr.startswith("gemmtune: stopped; ")


SAMPLERS = """
import os, signal
import gemmtune as gt
class Leaving(gt.Sampler):
    def ask(self, count):
        child = os.fork()
        if not child:
            os._exit(7)
        os._exit(os.waitpid(child, 0)[1] >> 8)
    def tell(self, trials):
        pass
class Endless(Leaving):
    def ask(self, count):
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass
"""


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("Leaving", 2, "sampler Leaving failed in ask: SystemExit: os._exit(7) (samplers.py, line 9)"),
        ("Endless", 130, "stopped in samplers.py, line 1"),
    ],
)
def test_a_sampler_that_ends_the_process_or_never_returns_is_named(tmp_path, name, status, said):
    (tmp_path / "samplers.py").write_text(SAMPLERS)
    wanted = ("--problem", "16x4096x4096:bf16:nt", "--sampler", f"./samplers.py:{name}")
    command = [sys.executable, "-m", "gemmtune", "tune", "--device", "H200", *wanted]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.splitlines()[-1].startswith(f"gemmtune: {said}")


def test_a_killed_process_s_folder_is_deleted_by_the_next_one(tmp_path, monkeypatch):
    program = (
        "import time; from gemmtune.engine.processes.scratch import ScratchFolder;"
        "a = ScratchFolder(); print(a.name, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
    left = Path(process.stdout.readline().strip())
    (left / "kernel.cubin").write_text("x")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = tmp_path / "gemmtune-mine"  # the folder of a database
    kept.mkdir()
    with ScratchFolder() as living, ScratchFolder() as young:
        for folder in (left, living, kept):
            os.utime(folder, (0, 0))
        with ScratchFolder():
            assert left.exists()
        process.kill()
        process.communicate()
        with ScratchFolder():
            assert not left.exists()
        assert Path(living).exists()
        assert Path(young).exists()
    assert [path.name for path in tmp_path.iterdir()] == ["gemmtune-mine"]


def test_folders_of_others_and_links_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    target, foreign = tmp_path / "target", tmp_path / "gemmtune-scratch-foreign"
    target.mkdir()
    (tmp_path / "gemmtune-scratch-link").symlink_to(target)
    os.utime(target, (0, 0))
    with ScratchFolder():
        assert target.exists()
    foreign.mkdir()
    os.utime(foreign, (0, 0))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with ScratchFolder():
        assert foreign.exists()
