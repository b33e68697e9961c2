"""A campaign whose database server drops its connections, and whose driver dies, ends as an undisturbed one."""

from __future__ import annotations

import random
import signal
import subprocess
import time

import pytest

from gemmtune.engine.store.database import Database
from gemmtune.engine.toolchain.gpu_info import present_device

pytestmark = [
    pytest.mark.slow(5, together="commands"),
    pytest.mark.skipif(present_device() is not None, reason="with a GPU the command line measures"),
]

TUNE = ("tune", "--problem", "16x4096x4096", "--problem", "128x2880x2880", "--sampler", "evolution",
        "--budget", "50", "--batch", "1", "--seed", "5", "--no-report")  # fmt: skip
FILES = ("table.json", "inductor/lookup_table.json", "inductor/inductor_table.json")
ALL = 2 * (50 + 1)
MOST_DROPS = 8
"""Connections of one driver that are ended: it waits longer before each attempt to make the next one."""


def measured(url: str) -> dict[str, list[tuple]]:
    """Task to what was measured of it, in the order of insertion."""
    found: dict[str, list[tuple]] = {}
    with Database.open(url) as database:
        for m in database.measurements():
            found.setdefault(m.task.key, []).append((m.config, m.status, m.samples_ns))
    return found


def count(server, url: str) -> int:
    return server.execute("SELECT count(*) FROM measurements", url)[0][0]


def test_dropped_connections_and_killed_drivers_lose_and_double_nothing(postgres_server, tmp_path, served):
    command = (served / "gemmtune", *TUNE)
    calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
    calm.mkdir()
    disturbed.mkdir()
    done = subprocess.run(command, cwd=calm, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    expected = measured(str(calm / "out/measurements.db"))
    assert sum(map(len, expected.values())) == ALL

    url = postgres_server.new_database()
    Database.open(url).close()
    chance = random.Random(20261121)
    dropped = 0
    for kill_at in (40, None):
        begun_with, drops = count(postgres_server, url), 0
        with (disturbed / "said.txt").open("w") as said:
            process = subprocess.Popen(
                [*command, "--database", url], cwd=disturbed, stdout=subprocess.PIPE, stderr=said
            )
        while process.poll() is None:
            time.sleep(chance.uniform(0.0, 0.2))
            rows = count(postgres_server, url)
            if kill_at is not None and rows >= kill_at:
                process.kill()
                process.wait()
            elif rows > begun_with and drops < MOST_DROPS:  # a server that is away at the beginning is an error at once
                drops += postgres_server.drop_connections()
        dropped += drops
        process.communicate()  # until the command is gone, which its client only stands for
        held = measured(url)
        assert all(rows == expected[task][: len(rows)] for task, rows in held.items())
        assert process.returncode == (0 if kill_at is None else -signal.SIGKILL), (disturbed / "said.txt").read_text()
    assert dropped >= 2
    assert measured(url) == expected
    for name in FILES:
        assert (disturbed / "out" / name).read_bytes() == (calm / "out" / name).read_bytes(), name
