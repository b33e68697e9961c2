"""The pool with real processes. Nothing here depends on how fast they are, only on what they outlast."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from multiprocessing.connection import Pipe, wait
from pathlib import Path
from typing import Any

import pytest

from gemmtune.engine.processes import process_pool
from gemmtune.engine.processes.process_pool import Loss, Outcome, ProcessPool, Quarantined, wait_for_any
from gemmtune.engine.records.errors import GemmtuneError

pytestmark = pytest.mark.slow(35, together="waiting")

FOLDER = Path(__file__).parent
PATIENCE = 60.0  # deadline of a job that is expected to end by itself


@pytest.fixture(autouse=True)
def handlers(monkeypatch):
    """The module of handlers, where this process and the ones it starts find it."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    import pool_handlers

    return pool_handlers


@pytest.fixture
def notices():
    """Every line that the pools of the test had to say."""
    return []


@pytest.fixture
def pool(handlers, notices):
    """Open a pool of `handlers.Do`; it is closed behind the test."""
    opened = []

    def open_pool(size=1, deadline_seconds=PATIENCE, make_handler=handlers.Do, **options):
        opened.append(ProcessPool(make_handler, size, deadline_seconds, notify=notices.append, **options))
        return opened[-1]

    yield open_pool
    for each in opened:
        each.close()


def finish(pool, *jobs):
    """Submit jobs and wait for as many outcomes, in the order they came."""
    return list(pool.run(jobs))


def collect_until(pool, condition):
    """Collect, as a campaign does, until the condition holds; the outcomes on the way."""
    outcomes, until = [], time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        wait_for_any([pool], 0.05)
        outcomes += pool.collect()
    return outcomes


def connections(pool):
    return [slot.process.connection for slot in pool._slots if slot.process is not None]


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
    two, sign = pool(2), tmp_path / "sign"
    two.submit(("wait_for", str(sign)))
    two.submit(("echo", 0))
    outcomes = []
    while not outcomes:
        wait_for_any([two], 30)
        outcomes += two.collect()
    sign.touch()  # not before the other one is collected: both may be done when the pool is asked
    outcomes += finish(two)
    assert [outcome.job[0] for outcome in outcomes] == ["echo", "wait_for"]
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
    wait(connections(one), PATIENCE)  # until its end of the connection is closed
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


def test_a_result_that_is_late_to_be_collected_is_no_loss(pool, tmp_path):
    late = pool(deadline_seconds=2.0)
    late.submit(("say_and_wait", str(tmp_path)))
    collect_until(late, (tmp_path / "running").exists)
    assert late.collect() == []  # it has acknowledged, so the deadline is known
    (tmp_path / "sign").touch()
    assert connections(late)[0].poll(30)
    assert late.next_deadline() <= time.monotonic() + 2.0
    time.sleep(max(0, late.next_deadline() - time.monotonic()) + 0.1)
    (outcome,) = late.collect()
    assert (outcome.result[0], outcome.loss) == (None, None)


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
        ("exits_while_starting", r"^a worker process ended \(exit status 7\) while starting$"),
        ("never_ready", r"^a worker process did not answer for 2 s while starting$"),
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


def test_ctrl_c_is_the_parents_to_handle(pool, default_signals):
    one = pool()
    (first,) = finish(one, ("echo", 1))
    os.kill(first.result[1], signal.SIGINT)
    (second,) = finish(one, ("echo", 2))
    assert second.result == (2, first.result[1])


def test_the_time_until_a_job_is_acknowledged_does_not_count(pool, notices):
    one = pool(deadline_seconds=1.0)
    ((_, pid),) = [outcome.result for outcome in finish(one, ("echo", 1))]
    os.kill(pid, signal.SIGSTOP)
    one.submit(("echo", 2))
    past_deadline = time.monotonic() + 1.5
    assert collect_until(one, lambda: time.monotonic() > past_deadline) == []
    os.kill(pid, signal.SIGCONT)
    assert finish(one) == [Outcome(("echo", 2), (2, pid))]
    assert notices == []


def test_a_job_that_did_not_reach_its_process_runs_first_in_the_next(pool, notices):
    one = pool()
    ((_, pid),) = [outcome.result for outcome in finish(one, ("echo", 1))]
    os.kill(pid, signal.SIGSTOP)
    one.submit(("echo", 2))  # into the connection of a process that does not read it
    one.submit(("echo", 3))
    os.kill(pid, signal.SIGKILL)
    second, third = finish(one)
    assert [(outcome.result[0], outcome.loss) for outcome in (second, third)] == [(2, None), (3, None)]
    assert second.result[1] == third.result[1] != pid
    (notice,) = notices
    assert notice == "a worker process ended (signal SIGKILL) before it took ('echo', 2); sending it again"


def test_a_process_that_does_not_answer_does_not_hang_the_pool(pool, notices):
    one = pool(start_seconds=5.0)
    ((_, pid),) = [outcome.result for outcome in finish(one, ("echo", 1))]
    os.kill(pid, signal.SIGSTOP)
    (second,) = finish(one, ("echo", 2))
    assert (second.result[0], second.loss) == (2, None)
    assert not alive(pid)
    (notice,) = notices
    assert notice == "a worker process did not answer for 5 s before it took ('echo', 2); sending it again"


def test_a_job_that_ends_each_process_it_is_sent_to_is_lost(pool, handlers, notices):
    one, job = pool(attempts=2, describe=lambda job: job[0]), ("echo", handlers.ExitsOnArrival())
    before, lost, after = finish(one, ("echo", 1), job, ("echo", 2))
    assert lost == Outcome(job, None, Loss.DIED, "its process ended (exit status 9) before it took the job, 3 times")
    assert [before.result[0], after.result[0]] == [1, 2]
    notice = "a worker process ended (exit status 9) before it took echo; sending it again"
    assert notices == [notice] * 2


def test_a_job_whose_process_was_killed_from_outside_runs_once_more(pool, tmp_path, notices):
    one, job = pool(attempts=2), ("say_and_wait", str(tmp_path))
    ((_, pid),) = [outcome.result for outcome in finish(one, ("echo", 1))]
    one.submit(job)
    one.submit(("echo", 2))
    collect_until(one, (tmp_path / "running").exists)
    os.kill(pid, signal.SIGKILL)
    (tmp_path / "sign").touch()
    again, after = finish(one)
    assert (again.job, again.loss, again.result[0]) == (job, None, None)
    assert again.result[1] == after.result[1] != pid
    (notice,) = notices
    assert notice == f"a worker process ended (signal SIGKILL) while it ran {job}; running it again"


def test_a_job_that_kills_as_often_as_it_may_is_lost_once(pool, notices):
    one = pool(attempts=2)
    lost, after = finish(one, ("kill", "SIGSEGV"), ("echo", 2))
    assert lost == Outcome(("kill", "SIGSEGV"), None, Loss.DIED, "its process ended (signal SIGSEGV)")
    assert (after.result[0], after.loss) == (2, None)
    assert len(notices) == 1


def test_a_job_past_its_deadline_is_not_run_again(pool, notices):
    one = pool(attempts=2, deadline_seconds=1.0)
    (lost,) = finish(one, ("sleep", 300))
    assert lost.loss is Loss.TIMED_OUT
    assert notices == []


SPARE_MODULE = """
import os
from pathlib import Path

folder = Path(os.environ["GEMMTUNE_TEST_FOLDER"])
(folder / f"imported-{os.getpid()}").touch()
if (folder / "broken").exists():
    raise ImportError("broken")
"""


@pytest.fixture
def spare_pool(pool, handlers, tmp_path, monkeypatch):
    """Open a pool with a spare that imports `ahead`; the folder tells which process imported it and which began."""
    (tmp_path / "ahead.py").write_text(SPARE_MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def open_pool(**options):
        environment = {"GEMMTUNE_TEST_FOLDER": str(tmp_path)}
        make_handler = handlers.Traced(tmp_path / "began", "ahead")
        return pool(make_handler=make_handler, environment=environment, spare_imports=["ahead"], **options)

    return open_pool


def began(folder):
    """Processes that made their handler, in order, each of which must have imported `ahead` before."""
    lines = [line.split() for line in (folder / "began").read_text().splitlines()]
    assert {loaded for _, loaded in lines} == {"True"}
    return [int(pid) for pid, _ in lines]


def imported(folder):
    """Processes that imported `ahead`."""
    return {int(path.name.removeprefix("imported-")) for path in folder.glob("imported-*")}


def spare_of(pool, folder):
    """The process that stands by, once it has imported its modules."""
    collect_until(pool, lambda: imported(folder) - set(began(folder)))
    (pid,) = imported(folder) - set(began(folder))
    return pid


def test_the_spare_takes_the_place_of_a_process_that_ended(spare_pool, tmp_path):
    one = spare_pool()
    (first,) = finish(one, ("echo", 1))
    spare = spare_of(one, tmp_path)
    assert began(tmp_path) == [first.result[1]]  # the spare has imported, and no more than that
    lost, after = finish(one, ("exit", 1), ("echo", 2))
    assert (lost.loss, after.result) == (Loss.DIED, (2, spare))
    assert began(tmp_path) == [first.result[1], spare]
    next_spare = spare_of(one, tmp_path)
    last, final = finish(one, ("last", 3), ("echo", 4))
    assert (last.result, final.result) == ((3, spare), (4, next_spare))


def test_no_spare_starts_before_all_processes_are_ready(spare_pool, tmp_path):
    two = spare_pool(size=2)
    collect_until(two, lambda: len(imported(tmp_path)) == 3)
    assert len(began(tmp_path)) == 2
    assert spare_of(two, tmp_path) not in began(tmp_path)


def test_a_spare_that_died_costs_one_pause_and_no_job(spare_pool, tmp_path, notices):
    one = spare_pool()
    finish(one, ("echo", 1))
    os.kill(spare_of(one, tmp_path), signal.SIGKILL)
    lost, after = finish(one, ("exit", 1), ("echo", 2))
    assert (lost.loss, after.result[0]) == (Loss.DIED, 2)
    assert notices == [
        "this machine: no new worker process (a worker process ended (signal SIGKILL) while starting); trying again"
    ]
    assert spare_of(one, tmp_path) != after.result[1]


def test_close_ends_the_spare(spare_pool, tmp_path):
    one = spare_pool()
    (first,) = finish(one, ("echo", 1))
    spare = spare_of(one, tmp_path)
    one.close()
    assert all_end([first.result[1], spare])
    assert one.collect() == []


@pytest.fixture
def failing_pool(pool, handlers, tmp_path, monkeypatch):
    """Open a pool whose next starts fail as often as the number in the file `failures` says."""
    monkeypatch.setattr(process_pool, "_PAUSES_SECONDS", (0.1, 0.2))
    return partial(pool, make_handler=handlers.FailsAtTimes(tmp_path / "failures"), name="GPU 0")


LOST_GPU = (
    "GPU 0 is quarantined: 3 worker processes in a row could not start (last: RuntimeError: CUDA error: no device); "
    "what was measured is kept; give the command again once GPU 0 is back"
)


@pytest.mark.parametrize("fatal", [("last", "sticky"), ("kill", "SIGKILL"), ("sleep", 300)])
@pytest.mark.parametrize("spare_imports", [None, ["colorsys"]])
def test_a_lost_gpu_is_blamed_on_no_job(failing_pool, tmp_path, fatal, spare_imports, notices):
    one = failing_pool(deadline_seconds=2.0, spare_imports=spare_imports)
    kept = finish(one, ("echo", 1), ("write", (tmp_path / "failures", "3")))
    assert [outcome.result[0] for outcome in kept] == [1, "3"]
    one.submit(fatal)
    one.submit(("echo", 2))
    with pytest.raises(Quarantined) as error:
        collect_until(one, lambda: False)
    assert str(error.value) == LOST_GPU
    notice = "GPU 0: no new worker process (RuntimeError: CUDA error: no device); trying again"
    assert notices == [notice] * 2
    assert (one.pending, one.size) == (2, 0)  # the fatal job is queued again
    assert one.next_deadline() <= time.monotonic()
    with pytest.raises(Quarantined):
        one.collect()


def test_a_gpu_that_comes_back_delivers_what_was_withheld(failing_pool, tmp_path, notices):
    one = failing_pool()
    finish(one, ("write", (tmp_path / "failures", "2")))
    one.submit(("last", "sticky"))
    assert collect_until(one, lambda: notices) == []
    assert one.pending == 1
    assert one.next_deadline() <= time.monotonic() + 0.1  # it wakes up for the next start
    last, after = finish(one, ("echo", 2))
    assert (last.result[0], after.result[0]) == ("sticky", 2)
    assert (tmp_path / "failures").read_text() == "0"


def test_an_error_waits_for_the_outcomes_of_its_call_and_neighbours_go_on(failing_pool, tmp_path, notices):
    two = failing_pool(2)
    two.submit(("say_and_wait", str(tmp_path)))
    collect_until(two, (tmp_path / "running").exists)
    two.submit(("write", (tmp_path / "failures", "3")))
    collect_until(two, lambda: two.pending == 1)
    two.submit(("last", "sticky"))
    collect_until(two, lambda: len(notices) == 2)
    collect_until(two, lambda: len(connections(two)) == 2)  # until the third start, which fails too
    (tmp_path / "sign").touch()
    assert all(connection.poll(PATIENCE) for connection in connections(two))
    assert [outcome.job[0] for outcome in two.collect()] == ["say_and_wait"]
    with pytest.raises(Quarantined):
        two.collect()
    (last,) = finish(two)  # in the slot that is left
    assert (last.result[0], two.size) == ("sticky", 1)


PARENT = """
import multiprocessing, sys, time
import pool_handlers
from gemmtune.engine.processes.process_pool import ProcessPool, wait_for_any

if __name__ == "__main__":
    pools = [ProcessPool(pool_handlers.Do, 1, 300.0, spare_imports=["colorsys"])]
    pools.append(ProcessPool(pool_handlers.Do, 1, 300.0, preload=["colorsys"]))
    for pool, path in zip(pools, sys.argv[1:]):
        pool.submit(("start_children_and_hang", path))
    told = False
    while True:
        wait_for_any(pools, 0.1)
        for pool in pools:
            pool.collect()
        children = multiprocessing.active_children()
        if len(children) == 3 and not told:
            told = True
            pool_handlers.leave(sys.argv[3], " ".join(str(child.pid) for child in children))
"""

PRELOADING = """
import pool_handlers
from gemmtune.engine.processes.process_pool import ProcessPool, wait_for_any

JOBS = (
    ("is_loaded", "colorsys"),
    ("is_loaded", "chunk"),
    ("variable", "GEMMTUNE_TEST_VALUE"),
    ("collects", "colorsys"),
)

if __name__ == "__main__":
    pool = ProcessPool(pool_handlers.Do, 1, 60.0, preload=["colorsys"], environment={"GEMMTUNE_TEST_VALUE": "7"})
    for job in JOBS:
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
    paths = [tmp_path / name for name in ("spawned", "forked", "all")]
    with python(script, *paths)() as parent:
        pids = {pid for path in paths for pid in pids_in(path)}
        assert len(pids) == 7  # two processes with two children each, and the spare
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
        "('collects', 'colorsys') (True, True)",
    ]


PREPARED = """
import sys
import pool_handlers
from gemmtune.engine.processes.process_pool import ProcessPool, wait_for_any
from gemmtune.engine.processes.child_process import start_context

if __name__ == "__main__":
    start_context(["slow_to_import"], {})
    print("begun", flush=True)
    sys.stdin.readline()
    pool = ProcessPool(pool_handlers.Do, 1, 60.0, preload=["slow_to_import"])
    pool.submit(("is_loaded", "slow_to_import"))
    while pool.pending:
        wait_for_any([pool], 30)
        for outcome in pool.collect():
            print(outcome.result[0])
    pool.close()
"""


def test_imports_begun_before_there_is_a_pool_are_its_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    script, trace = tmp_path / "prepared.py", tmp_path / "trace"
    script.write_text(PREPARED)
    (tmp_path / "slow_to_import.py").write_text(
        f"import time\nopen({str(trace)!r}, 'a').write('imported ')\ntime.sleep(1)\n"
    )
    with python(script)(stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout.readline() == "begun\n"
        until = time.monotonic() + 30
        while not (trace.exists() and trace.read_text()) and time.monotonic() < until:
            time.sleep(0.02)
        assert trace.read_text() == "imported "  # and no pool asked for it yet
        told, _ = program.communicate("\n", timeout=60)
    assert (told, trace.read_text()) == ("True\n", "imported ")


BROKEN = """
import pool_handlers
from gemmtune.engine.processes.process_pool import ProcessPool, wait_for_any
from gemmtune.engine.records.errors import GemmtuneError

if __name__ == "__main__":
    pool = ProcessPool(pool_handlers.Do, 1, 60.0, preload=["colorsys", "broken_library"])
    pool.submit(("echo", 1))
    try:
        while not pool.collect():
            wait_for_any([pool], 30)
    except GemmtuneError as error:
        print(error)
    pool.close()
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise ImportError('libx.so.1: no such file')", "cannot import broken_library: ImportError: libx.so.1: no"),
        ("import ctypes\nctypes.CDLL('libnowhere.so.9')", "cannot import broken_library: OSError: libnowhere.so.9: "),
        ("raise SystemExit(0)", "cannot import broken_library: SystemExit: 0"),
        ("import os\nos._exit(3)", "a worker process ended (exit status 3 over the import of broken_library; install"),
    ],
)
def test_a_preloaded_module_that_fails_is_named_with_its_reason(tmp_path, monkeypatch, text, reason):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "broken_library.py").write_text(text)
    (tmp_path / "script.py").write_text(BROKEN)
    with python(tmp_path / "script.py")(stdout=subprocess.PIPE) as program:
        told, _ = program.communicate(timeout=60)
    assert told.startswith(reason)
    assert "install what it lacks, or leave out the spaces that need it" in told
    assert told.count("\n") == 1


HAS_A_MAIN = """
import sys
import pool_handlers
from gemmtune.engine.processes.process_pool import ProcessPool, wait_for_any

print("imported", flush=True)
if __name__ == "__main__":
    for preload in ((), ("colorsys",)):
        pool = ProcessPool(pool_handlers.Do, 1, 60.0, preload=preload)
        pool.submit(("echo", "ran"))
        while not (outcomes := pool.collect()):
            wait_for_any([pool], 30)
        print(outcomes[0].result[0], flush=True)
        pool.close()
    print(sys.modules["__main__"].__file__)
"""


def test_no_process_imports_the_program_that_started_it(tmp_path):
    script = tmp_path / "has_a_main.py"
    script.write_text(HAS_A_MAIN)
    with python(script)(stdout=subprocess.PIPE) as program:
        told, _ = program.communicate(timeout=60)
    assert told.splitlines() == ["imported", "ran", "ran", str(script)]


def test_what_a_process_imports_itself_is_not_gone_through_for_garbage(pool):
    outcome = finish(pool(spare_imports=["colorsys"]), ("collects", "colorsys"))[0]
    assert outcome.result[0] == (True, True)


def test_a_busy_process_sees_its_next_job_where_the_pool_sends_ahead(pool, handlers, tmp_path):
    sign = tmp_path / "sign"
    ahead = pool(make_handler=handlers.Seer, sends_ahead=True)
    finish(ahead, ("echo", "ready"))
    ahead.submit(("see", str(sign)))
    ahead.submit(("echo", 2))
    assert ahead.pending == 2
    sign.touch()
    seen, echo = finish(ahead)
    assert seen.result[0] == ("echo", 2)
    assert echo.result[0] == 2


def test_the_time_until_a_job_has_its_lock_does_not_count(pool, handlers, tmp_path):
    sign = tmp_path / "sign"
    one = pool(make_handler=handlers.Patient, deadline_seconds=1.0, environment={"SIGN": str(sign)})
    one.submit(("echo", 1))
    collect_until(one, lambda: one._slots[0].tickets)
    time.sleep(1.5)
    assert one.collect() == []
    sign.touch()
    (outcome,) = finish(one)
    assert (outcome.loss, outcome.result[0]) == (None, 1)


def test_without_sending_ahead_there_is_nothing_to_see(pool, handlers, tmp_path):
    sign = tmp_path / "sign"
    one = pool(make_handler=handlers.Seer)
    finish(one, ("echo", "ready"))
    sign.touch()
    seen, echo = finish(one, ("see", str(sign)), ("echo", 2))
    assert (seen.result[0], echo.result[0]) == (None, 2)


def test_jobs_sent_ahead_keep_their_order_and_their_results(pool):
    outcomes = finish(pool(sends_ahead=True), *(("echo", number) for number in range(50)))
    assert [outcome.result[0] for outcome in outcomes] == list(range(50))


def test_a_job_sent_ahead_survives_the_process_it_was_sent_to(pool):
    ahead = pool(sends_ahead=True)
    lost, *after = finish(ahead, ("exit", 3), ("echo", 1), ("echo", 2))
    assert (lost.loss, lost.reason) == (Loss.DIED, "its process ended (exit status 3)")
    assert [outcome.result[0] for outcome in after] == [1, 2]


def test_a_job_sent_ahead_survives_the_deadline_of_the_one_before(pool):
    ahead = pool(sends_ahead=True, deadline_seconds=2.0)
    lost, after = finish(ahead, ("sleep", 60), ("echo", 1))
    assert lost.loss is Loss.TIMED_OUT
    assert after.result[0] == 1


def test_an_innocent_job_is_not_blamed_for_the_neighbour_that_was_prepared_beside_it(pool, handlers):
    ahead = pool(make_handler=handlers.Seer, sends_ahead=True, attempts=2)
    finish(ahead, ("echo", "ready"))
    outcomes = finish(ahead, ("look_and_echo", 1), ("exit", 7), ("look_and_echo", 2))
    assert [(outcome.job, outcome.loss) for outcome in outcomes] == [
        (("look_and_echo", 1), None),
        (("exit", 7), Loss.DIED),
        (("look_and_echo", 2), None),
    ]


class Unstarted:
    """Stands in for a process, and notes what it was made with."""

    def __init__(self, *arguments):
        self.arguments, (self.connection, _) = arguments, Pipe()

    def begin(self, *_):
        pass

    end = begin


@pytest.mark.parametrize(("preload", "started"), [((), 3), (("colorsys",), 0)])
def test_processes_without_a_preload_start_with_the_pool(monkeypatch, preload, started):
    monkeypatch.setattr(process_pool, "ChildProcess", Unstarted)
    monkeypatch.setattr(process_pool, "start_context", lambda *given: given)
    pool: Any = ProcessPool(str, 3, 60.0, preload=preload, environment={"A": "1"})
    assert (pool.size, pool.pending, len(connections(pool))) == (3, 0, started)
    made = pool._new_process("last")
    assert made.arguments == ((preload, {"A": "1"}), preload, str, {"A": "1"}, "last")
    pool.close()
    assert pool.size == 0
