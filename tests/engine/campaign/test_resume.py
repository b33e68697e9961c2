"""A campaign killed at any instant goes on where it was: nothing is lost, nothing is measured twice."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest

from gemmtune.engine.toolchain.gpu_info import present_device

pytestmark = [
    pytest.mark.slow(5, together="commands"),
    pytest.mark.skipif(present_device() is not None, reason="with a GPU the command line measures"),
]

TUNE = ("tune", "--problem", "16x4096x4096", "--problem", "128x2880x2880", "--sampler", "evolution",
           "--budget", "60", "--batch", "1", "--seed", "5", "--no-report")  # fmt: skip
Command = tuple[str | Path, ...]
FILES = ("table.json", "inductor/lookup_table.json", "inductor/inductor_table.json", "summary.txt")
ALL = 2 * (60 + 1)
"""Measurements of the whole campaign: two problems and their baselines."""


@pytest.fixture
def command(served: Path) -> Command:
    return (served / "gemmtune", *TUNE)


def tune(command: Command, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def kill_after(command: Command, folder: Path, rows: int, seconds: float) -> None:
    """Run until the database holds that many rows, then some seconds more, and kill."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while process.poll() is None and (rows and count(folder) < rows):
        time.sleep(0.005)
    time.sleep(seconds)
    process.kill()
    process.communicate()  # until the command is gone, which its client only stands for


def count(folder: Path) -> int:
    path = folder / "out/measurements.db"
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT count(*) FROM measurements").fetchone()[0]
    except sqlite3.OperationalError:  # its tables are being made
        return 0


def stored(folder: Path) -> dict[str, list[tuple]]:
    """Task to its measurements in the order of insertion; empty before there is a database."""
    path = folder / "out/measurements.db"
    if not path.exists():
        return {}
    query = """SELECT tasks.key, config, status, samples_ns, protocol, evidence, toolchain_id
               FROM measurements JOIN tasks ON tasks.id = task_id ORDER BY measurements.id"""
    found = defaultdict(list)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        if connection.execute("SELECT name FROM sqlite_master WHERE name = 'measurements'").fetchone():
            for key, *rest in connection.execute(query):
                found[key].append(tuple(rest))
    return dict(found)


def kills(
    command: Command,
    folder: Path,
    expected: dict[str, list[tuple]],
    instants: random.Random,
    seconds: float,
) -> list[int]:
    """Kill a campaign of that many seconds three times; return the measurements behind each kill, which are checked."""
    starts = [(0, instants.uniform(0.0, seconds / 2))]  # while it starts: landscapes, the database
    searches = [(instants.randrange(1, ALL - 40), instants.uniform(0.0, 0.05)) for _ in range(2)]
    grown = []
    for rows_to_see, further in (*starts, *sorted(searches)):
        before = stored(folder)
        kill_after(command, folder, rows_to_see, further)
        after = stored(folder)
        for task, rows in after.items():
            kept = before.get(task, [])
            assert rows[: len(kept)] == kept, "a measurement was lost"
            assert rows == expected[task][: len(rows)], "it was not gone on with as it was begun"
        grown.append(sum(map(len, after.values())))
    return grown


def test_a_killed_campaign_ends_as_an_undisturbed_one(tmp_path, command):
    calm = tmp_path / "calm"
    calm.mkdir()
    began = time.monotonic()
    tune(command, calm)
    seconds = time.monotonic() - began
    expected = stored(calm)
    assert sum(map(len, expected.values())) == ALL

    instants = random.Random(20261121)
    for attempt in range(5):  # on a busy machine a campaign may be over before its kill comes
        killed = tmp_path / f"killed{attempt}"
        killed.mkdir()
        grown = kills(command, killed, expected, instants, seconds)
        if sum(0 < rows < ALL for rows in grown) >= 2:
            break
    else:
        pytest.fail(f"too few kills met the search: {grown}")

    tune(command, killed)
    assert stored(killed) == expected
    for rows in stored(killed).values():
        assert len({config for config, *_ in rows}) == len(rows)
    for name in FILES:
        assert (killed / "out" / name).read_bytes() == (calm / "out" / name).read_bytes(), name
    litter = {path.name for path in (killed / "out").rglob("*")} - {path.name for path in (calm / "out").rglob("*")}
    assert {name for name in litter if not name.endswith(".part")} == set()
