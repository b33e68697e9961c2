"""The driver's handle of an actor, with an actor that does as it is told."""

from __future__ import annotations

import pickle
from concurrent.futures import Future
from threading import Event
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="needs gemmtune[ray]")

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, ActorUnschedulableError

from gemmtune.engine.execution.ray.actor import Reply
from gemmtune.engine.execution.ray.actor_handle import ActorHandle
from gemmtune.engine.processes.process_pool import Loss, Outcome
from gemmtune.engine.records.errors import GemmtuneError

ENDED = ActorUnavailableError("Socket closed", None)


class FakeActor:
    """An actor in Ray's way: a call returns a reference, whose future the test completes."""

    def __init__(self):
        self.begins, self.calls = [], []
        self.closed = 0
        self.begin, self.run = SimpleNamespace(remote=self.on_begin), SimpleNamespace(remote=self.on_run)
        self.close = SimpleNamespace(remote=self.on_close)

    def on_begin(self):
        self.begins.append(Future())
        return SimpleNamespace(future=lambda future=self.begins[-1]: future)

    def on_run(self, packed):
        future = Future()
        self.calls.append((pickle.loads(packed)[0], future))
        return SimpleNamespace(future=lambda: future)

    def on_close(self):
        self.closed += 1

    def answer(self, call=0):
        job, future = self.calls.pop(call)
        future.set_result(Reply(1, Outcome(None, job.upper())))

    def end(self, error=ENDED):
        """Every call fails, as when the actor ends."""
        futures = [future for _, future in self.calls] or self.begins[-1:]
        self.calls = []
        for future in futures:
            future.set_exception(error)

    @property
    def running(self):
        return [job for job, _ in self.calls]


class Machine:
    def __init__(self, folder):
        self.folder, self.actor, self.wake, self.notices = folder, FakeActor(), Event(), []

    def handle(self):
        return ActorHandle("node/gpu0", self.actor, self.folder, self.wake, self.notices.append)

    def kill(self, handle, error=ENDED):
        self.actor.end(error)
        return handle.collect()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def begun(machine, handle):
    machine.actor.begins[-1].set_result(Reply(1))
    assert handle.collect() == []
    return handle


def results(outcomes):
    return [(outcome.job, outcome.result) for outcome in outcomes]


def test_jobs_leave_once_the_actor_is_there_and_come_back_as_they_went(machine):
    handle = machine.handle()
    assert handle.size == 0
    handle.submit("a")
    handle.submit("b")
    assert machine.actor.running == []
    begun(machine, handle)
    assert handle.size == 1
    assert machine.actor.running == ["a", "b"]
    machine.wake.clear()
    machine.actor.answer(1)
    assert machine.wake.is_set()
    assert results(handle.collect()) == [("b", "B")]
    machine.actor.answer()
    assert results(handle.collect()) == [("a", "A")]


def test_the_jobs_of_an_actor_that_ends_run_again_in_order_with_a_notice(machine):
    handle = begun(machine, machine.handle())
    for job in "abc":
        handle.submit(job)
    assert machine.kill(handle) == []
    assert machine.actor.running == []
    assert len(machine.notices) == 1
    assert machine.notices[0].startswith("node/gpu0: its actor ended (ActorUnavailableError: ")
    begun(machine, handle)
    assert machine.actor.running == ["a", "b", "c"]


def test_a_call_that_fails_after_the_next_start_is_no_further_end(machine):
    handle = begun(machine, machine.handle())
    for job in "ab":
        handle.submit(job)
    first, late = (future for _, future in machine.actor.calls)
    machine.actor.calls.clear()
    first.set_exception(ENDED)
    assert handle.collect() == []
    begun(machine, handle)
    assert machine.actor.running == ["a"]
    late.set_exception(ENDED)
    assert handle.collect() == []
    assert len(machine.notices) == 1
    assert handle.size == 1
    assert machine.actor.running == ["a", "b"]


def test_a_job_that_has_met_two_ends_runs_alone_and_is_dropped_at_the_third(machine):
    handle = begun(machine, machine.handle())
    for job in "ab":
        handle.submit(job)
    for _ in range(2):
        machine.kill(handle)
        begun(machine, handle)
    assert machine.actor.running == ["a"]
    (lost,) = machine.kill(handle)
    assert (lost.job, lost.result, lost.loss) == ("a", None, Loss.DIED)
    assert lost.reason.startswith("its actor ended 3 times while it had the job (last: ActorUnavailableError: ")
    begun(machine, handle)
    assert machine.actor.running == ["b"]
    machine.actor.answer()
    assert results(handle.collect()) == [("b", "B")]


def test_a_handle_whose_actor_ends_all_the_time_is_quarantined(machine):
    handle = machine.handle()
    for number in range(5):
        begun(machine, handle)
        handle.submit(f"{number}")
        machine.kill(handle)
    with pytest.raises(GemmtuneError, match="node/gpu0 is quarantined: its actor ended 5 times in a row"):
        handle.collect()
    assert handle.size == 0


def test_ends_count_in_a_row_and_anew_after_a_result(machine):
    handle = machine.handle()
    for number in range(7):
        begun(machine, handle)
        handle.submit(f"{number}")
        if number == 3:
            machine.actor.answer()
            assert results(handle.collect())[-1][1] is not None
            handle.submit("again")
        machine.kill(handle)
    assert handle.collect() == []


def test_an_actor_that_is_not_back_yet_is_asked_again_and_counts_as_one_end(machine):
    handle = begun(machine, machine.handle())
    handle.submit("a")
    machine.kill(handle)
    for _ in range(9):
        machine.kill(handle)
    assert len(machine.notices) == 1
    begun(machine, handle)
    assert machine.actor.running == ["a"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ActorUnschedulableError("no such node"), "node/gpu0 is gone: its machine has left the cluster"),
        (ActorDiedError(), "node/gpu0 is lost: ActorDiedError: The actor died unexpectedly"),
    ],
)
def test_an_actor_that_ray_cannot_restart_is_lost(machine, error, message):
    handle = begun(machine, machine.handle())
    handle.submit("a")
    with pytest.raises(GemmtuneError, match=message):
        machine.kill(handle, error)
    assert handle.size == 0


def test_an_actor_that_has_lost_its_gpu_says_so_and_keeps_its_resources(machine, monkeypatch):
    handle = begun(machine, machine.handle())
    handle.submit("a")
    handle.submit("b")
    machine.actor.calls[0][1].set_result(Reply(1, Outcome(None, "A")))
    lost = Reply(0, notices=("no new worker process; trying again",), lost="GPU 0 is quarantined")
    machine.actor.calls[1][1].set_result(lost)
    assert results(handle.collect()) == [("a", "A")]
    assert machine.notices == ["no new worker process; trying again"]
    killed = []
    monkeypatch.setattr(ray, "kill", killed.append)
    with pytest.raises(GemmtuneError, match="node/gpu0: GPU 0 is quarantined"):
        handle.collect()
    assert killed == [], "or Ray would give the GPU to the next actor"
    handle.close()
    assert killed == [machine.actor]
    assert machine.actor.closed == 0


def test_an_actor_for_which_there_is_no_room_waits_and_one_that_is_refused_is_lost(machine):
    handle = machine.handle()
    handle.submit("a")
    assert handle.collect() == []
    assert (handle.size, machine.actor.running) == (0, [])
    begun(machine, handle)
    assert machine.actor.running == ["a"]
    handle.refuse("its NVIDIA driver is another one")
    with pytest.raises(GemmtuneError, match="node/gpu0: its NVIDIA driver is another one"):
        handle.collect()
