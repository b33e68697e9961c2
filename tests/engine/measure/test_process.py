"""The pool with real processes. Nothing here depends on how fast they are, only on what they outlast."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from gemmtune.engine.measure.process import Loss, Outcome, ProcessPool, wait_for_any
from gemmtune.engine.records.errors import GemmtuneError

FOLDER = Path(__file__).parent
PATIENCE = 60.0  # deadline of a job that is expected to end by itself


@pytest.fixture(autouse=True)
def handlers(monkeypatch):
    """The module of handlers, where this process and the ones it starts find it."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    import pool_handlers

    return pool_handlers


@pytest.fixture
def pool(handlers):
    """Open a pool of `handlers.Do`; it is closed behind the test."""
    opened = []

    def open_pool(size=1, deadline_seconds=PATIENCE, make_handler=handlers.Do, **options):
        opened.append(ProcessPool(make_handler, size, deadline_seconds, **options))
        return opened[-1]

    yield open_pool
    for each in opened:
        each.close()


def finish(pool, *jobs):
    """Submit jobs and wait for as many outcomes, in the order they came."""
    for job in jobs:
        pool.submit(job)
    outcomes = []
    while pool.pending:
        wait_for_any([pool], 30)
        outcomes += pool.collect()
    return outcomes


def alive(pid):
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_end(pids, seconds=20.0):
    until = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(alive, pids))


def pids_in(path, seconds=30.0):
    until = time.monotonic() + seconds
    while not Path(path).exists() and time.monotonic() < until:
        time.sleep(0.02)
    return [int(word) for word in Path(path).read_text().split()]


def test_results_come_back_as_they_finish(pool, tmp_path):
    sign = str(tmp_path / "sign")
    outcomes = finish(pool(2), ("wait_for", sign), ("touch", sign))
    assert [outcome.job[0] for outcome in outcomes] == ["touch", "wait_for"]
    (_, first), (_, second) = (outcome.result for outcome in outcomes)
    assert len({first, second, os.getpid()}) == 3


def test_one_process_runs_jobs_in_order_and_stays(pool):
    outcomes = finish(pool(), *(("echo", number) for number in range(20)))
    assert [outcome.result[0] for outcome in outcomes] == list(range(20))
    assert len({outcome.result[1] for outcome in outcomes}) == 1
    assert all(outcome.loss is None and outcome.reason == "" for outcome in outcomes)


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (("exit", 0), "its process ended (exit status 0)"),
        (("exit", 41), "its process ended (exit status 41)"),
        (("kill", "SIGKILL"), "its process ended (signal SIGKILL)"),
        (("kill", "SIGSEGV"), "its process ended (signal SIGSEGV)"),
        (("fail", "a bug"), "its process ended (exit status 1)"),
    ],
)
def test_a_process_that_ends_costs_its_job_and_one_restart(pool, job, reason):
    before, lost, *after = finish(pool(), ("echo", 1), job, ("echo", 2), ("echo", 3))
    assert lost == Outcome(job, None, Loss.DIED, reason)
    assert [outcome.result[0] for outcome in (before, *after)] == [1, 2, 3]
    pids = [outcome.result[1] for outcome in (before, *after)]
    assert pids[0] != pids[1] == pids[2]


def test_a_job_past_its_deadline_costs_itself_and_one_restart(pool, tmp_path):
    path, slow = str(tmp_path / "pids"), pool(deadline_seconds=2.0)
    lost, *after = finish(slow, ("start_children_and_hang", path), ("echo", 2), ("echo", 3))
    assert lost == Outcome(("start_children_and_hang", path), None, Loss.TIMED_OUT, "still running after 2 s")
    assert [outcome.result[0] for outcome in after] == [2, 3]
    ended = pids_in(path)
    assert len(ended) == 3
    assert all_end(ended)  # the whole group: a compiler ends with the build that started it
    assert after[0].result[1] == after[1].result[1] not in ended


def test_what_a_job_started_ends_with_its_process(pool, tmp_path):
    path = str(tmp_path / "pid")
    (lost,) = finish(pool(), ("start_a_child_and_exit", path))
    assert lost.loss is Loss.DIED
    assert all_end(pids_in(path))


def test_a_process_that_died_while_it_waited_costs_no_job(pool):
    one = pool()
    (first,) = finish(one, ("echo", 1))
    os.kill(first.result[1], signal.SIGKILL)
    wait(one.connections(), PATIENCE)  # until its end of the connection is closed
    (second,) = finish(one, ("echo", 2))
    assert (second.loss, second.result[0]) == (None, 2)
    assert second.result[1] != first.result[1]


def test_a_neighbour_survives_a_restart(pool, tmp_path):
    sign, both = str(tmp_path / "sign"), pool(2)
    both.submit(("wait_for", sign))
    both.submit(("exit", 1))
    outcomes = []
    while not outcomes:
        wait_for_any([both], 30)
        outcomes = both.collect()
    assert outcomes[0].loss is Loss.DIED
    outcomes = finish(both, ("touch", sign))
    assert {outcome.job[0] for outcome in outcomes} == {"wait_for", "touch"}
    assert all(outcome.loss is None for outcome in outcomes)


def test_queue_time_does_not_count(pool):
    outcomes = finish(pool(deadline_seconds=1.6), *[("sleep", 0.4)] * 6)
    assert [outcome.loss for outcome in outcomes] == [None] * 6  # the last one waited for 2 s


def test_a_result_that_is_late_to_be_collected_is_no_loss(pool):
    late = pool(deadline_seconds=1.0)
    finish(late, ("echo", "ready"))
    late.submit(("echo", "in time"))
    assert late.connections()[0].poll(30)
    time.sleep(max(0, late.next_deadline() - time.monotonic()) + 0.1)
    (outcome,) = late.collect()
    assert (outcome.result[0], outcome.loss) == ("in time", None)


def test_last_replaces_the_process_and_keeps_the_result(pool):
    first, second, third = finish(pool(), ("last", "sticky"), ("echo", 2), ("echo", 3))
    assert (first.result[0], first.loss) == ("sticky", None)
    assert first.result[1] != second.result[1] == third.result[1]
    assert all_end([first.result[1]])


def test_pending_counts_queued_and_running_jobs(pool):
    one = pool()
    assert (one.pending, one.size) == (0, 1)
    for number in range(3):
        one.submit(("echo", number))
    assert one.pending == 3
    assert len(finish(one)) == 3
    assert one.pending == 0


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ("cannot_start", r"^RuntimeError: no GPU of that name$"),
        ("exits_while_starting", r"^a worker process ended while starting \(exit status 7\)$"),
        ("never_ready", r"^a worker process was not ready after 2 s$"),
    ],
)
def test_a_handler_that_cannot_start_is_an_error_and_not_a_result(pool, handlers, handler, message):
    bad = pool(make_handler=getattr(handlers, handler), start_seconds=2.0 if handler == "never_ready" else PATIENCE)
    with pytest.raises(GemmtuneError, match=message):
        finish(bad, ("echo", 1))


def test_close_leaves_no_process(pool, tmp_path):
    paths = [str(tmp_path / name) for name in ("one", "two")]
    both = pool(2)
    for path in paths:
        both.submit(("start_children_and_hang", path))
    both.submit(("echo", "never run"))
    while not all(Path(path).exists() for path in paths):
        wait_for_any([both], 0.05)
        both.collect()
    pids = [pid for path in paths for pid in pids_in(path)]
    assert all(map(alive, pids))
    both.close()
    assert all_end(pids)
    assert not any(tmp_path.glob("*.part"))


def test_environment_reaches_the_process_before_its_handler(pool):
    before = dict(os.environ)
    here = pool(environment={"GEMMTUNE_TEST_VALUE": "7"})
    (outcome,) = finish(here, ("variable", "GEMMTUNE_TEST_VALUE"))
    assert outcome.result[0] == "7"
    assert dict(os.environ) == before


def test_each_process_leads_its_group(pool):
    assert [outcome.result[0] for outcome in finish(pool(), ("group_leader", None))] == [True]


def test_ctrl_c_is_the_parents_to_handle(pool):
    calm = pool()
    (first,) = finish(calm, ("echo", 1))
    os.kill(first.result[1], signal.SIGINT)
    (second,) = finish(calm, ("echo", 2))
    assert second.result == (2, first.result[1])


PARENT = """
import sys, time
import pool_handlers
from gemmtune.engine.measure.process import ProcessPool, wait_for_any

if __name__ == "__main__":
    pools = [ProcessPool(pool_handlers.Do, 1, 300.0), ProcessPool(pool_handlers.Do, 1, 300.0, preload=["colorsys"])]
    for pool, path in zip(pools, sys.argv[1:]):
        pool.submit(("start_children_and_hang", path))
    while True:
        wait_for_any(pools, 0.1)
        for pool in pools:
            pool.collect()
"""

PRELOADING = """
import pool_handlers
from gemmtune.engine.measure.process import ProcessPool, wait_for_any

if __name__ == "__main__":
    pool = ProcessPool(pool_handlers.Do, 1, 60.0, preload=["colorsys"], environment={"GEMMTUNE_TEST_VALUE": "7"})
    for job in (("is_loaded", "colorsys"), ("is_loaded", "chunk"), ("variable", "GEMMTUNE_TEST_VALUE")):
        pool.submit(job)
    while pool.pending:
        wait_for_any([pool], 30)
        for outcome in pool.collect():
            print(outcome.job, outcome.result[0])
    pool.close()
"""


def python(script, *arguments):
    """A program that finds the handlers, in a process of its own."""
    path = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, str(script), *map(str, arguments)]
    return partial(subprocess.Popen, command, env={**os.environ, "PYTHONPATH": path}, text=True)


def test_none_outlives_a_parent_that_was_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with python(script, tmp_path / "spawned", tmp_path / "forked")() as parent:
        pids = pids_in(tmp_path / "spawned") + pids_in(tmp_path / "forked")
        assert len(set(pids)) == 6
        assert all(map(alive, pids))
        parent.kill()
    assert all_end(pids)


def test_preloaded_modules_and_the_environment_reach_the_process(tmp_path):
    script = tmp_path / "preloading.py"
    script.write_text(PRELOADING)
    with python(script)(stdout=subprocess.PIPE) as program:
        told, _ = program.communicate(timeout=60)
    assert told.splitlines() == [
        "('is_loaded', 'colorsys') True",
        "('is_loaded', 'chunk') False",
        "('variable', 'GEMMTUNE_TEST_VALUE') 7",
    ]
