"""The console script: help, exit status, and how a signal ends it."""

from __future__ import annotations

import inspect
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, nullcontext
from importlib.metadata import version
from pathlib import Path

import pytest

from gemmtune.engine.cli import campaigns, captures, checks, descriptions, orders, studies, tables
from gemmtune.engine.cli.commands import app
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.work import QUIET
from gemmtune.engine.store.database import Database

pytestmark = pytest.mark.slow(8)

NO_GPU = "No GPU found; using the recorded landscapes.\n"
MIDDLE = "128x2880x2880:bf16:nt"


HEAVY = {"matplotlib", "numpy", "optuna", "rich", "sqlalchemy", "torch", "triton"}
"""Packages that no command needs before it runs."""


def test_without_arguments_help_is_what_comes(run):
    helped = run("--help")
    assert helped.status == 0
    assert all(command in helped.out for command in ("tune", "sweep", "compare", "show", "export", "list"))
    bare = run()
    assert (bare.status, bare.out, bare.err) == (0, helped.out, "")


def test_the_command_line_starts_without_the_heavy_packages(tmp_path):
    program = f"import sys; import gemmtune.engine.cli.commands; print(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "[]\n"


def test_the_console_script_ends_as_the_process_should(tmp_path, script, contents, refusal):
    refusal(script("tune", "--budget", "0", cwd=tmp_path), "--budget")
    assert contents(tmp_path) == {}


def test_the_version_is_printed_and_python_m_is_the_console_script(tmp_path, script):
    expected = f"gemmtune {version('gemmtune')}\n"
    assert script("--version", cwd=tmp_path).out == expected
    module = [sys.executable, "-m", "gemmtune", "--version"]
    assert subprocess.run(module, capture_output=True, text=True, check=True, cwd=tmp_path).stdout == expected


@pytest.mark.parametrize("command", app.registered_commands, ids=lambda command: command.callback.__name__)
def test_a_summary_fits_its_line_and_no_default_is_shown_twice(command, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    summary = inspect.getdoc(command.callback).splitlines()[0]
    assert len(summary) <= 60
    assert summary.endswith(".")
    name = command.name or command.callback.__name__
    helped = " ".join(run(name, "--help").out.split())
    assert not re.search(r"(\[default: [^]]+\])\s*\1", helped)
    assert "same" not in helped


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_stopped_campaign_says_so_and_keeps_what_it_has(tmp_path, default_signals):
    arguments = ["tune", "--problem", MIDDLE, "--sampler", "tpe", "--budget", "3000", "--batch", "1"]
    command = [Path(sys.executable).with_name("gemmtune"), *arguments]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    database = tmp_path / "out/measurements.db"
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if database.exists() and database.stat().st_size and _measurements(database) > 20:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert out == ""
    progress = re.compile(r"at work|\d+/\d+ evaluations")  # on a slow machine
    source, summary, stopped = (line for line in err.splitlines() if not progress.match(line))
    assert f"{source}\n" == NO_GPU
    assert re.fullmatch(r"\d+ evaluations in \d+ s; \S+/s; 0 of 1 task done", summary)
    assert stopped.startswith("gemmtune: stopped; ")
    with Database.open(database) as opened:
        kept = list(opened.measurements())
    assert 20 < len(kept) < 3001
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["measurements.db", "progress.json"]


def _measurements(path: Path) -> int:
    try:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT COUNT(*) FROM measurements").fetchone()[0]
    except sqlite3.OperationalError:  # the campaign is still making the tables
        return 0


LONG = [
    *(("tune",), ("bench", "model:call"), ("sweep",), ("compare", "a.csv"), ("show", "m.db"), ("verify", "t.json")),
    *(("diff", "t.json", "t.json"), ("export", "t.json"), ("export", "t.json", "--warm", "model:call")),
    *(("campaigns",), ("check", "folder"), ("check", "a.py:A"), ("check", "a.py:A", "--draft"), ("doctor",)),
    *(("list", "spaces", "triton_mm", "--problem", "1x1x1"), ("show", "t.json", "--graphs", "all")),
    ("capture", "model:call", "--device", "H200", "--out", "c.toml", "--input", "bf16[1,1]"),
]


@pytest.mark.parametrize("arguments", LONG, ids=" ".join)
def test_a_command_says_that_it_is_at_work_before_it_imports_and_reads(run, monkeypatch, arguments):
    def show_work(doing: str, *, quiet: bool):
        raise UsageError(f"said: {doing}, {quiet}")

    for module in (campaigns, captures, checks, descriptions, orders, studies, tables):
        monkeypatch.setattr(module, "show_work", show_work)
    said = run(*arguments).err
    assert said.startswith("gemmtune: said: "), said
    assert ", False (" in said


@pytest.mark.parametrize("place", [0, 1, 2])
def test_quiet_stands_anywhere_and_ends_with_its_command(run, monkeypatch, place):
    seen = []
    monkeypatch.setattr(tables, "show_work", lambda doing, *, quiet: seen.append(QUIET.get()) or nullcontext())
    arguments = ["show", "nothing.json"]
    arguments.insert(place, "--quiet")
    for given in (arguments, ["show", "nothing.json"]):
        assert "no file or folder nothing.json" in run(*given).err
    assert seen == [True, False]
