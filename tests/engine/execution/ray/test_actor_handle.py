"""The driver's end of an actor, with actors that do as they are told."""

from __future__ import annotations

from threading import Event

import pytest

from gemmtune.engine.execution.ray import actor_handle
from gemmtune.engine.execution.ray.actor import Reply
from gemmtune.engine.execution.ray.actor_handle import ActorHandle
from gemmtune.engine.processes.process_pool import Loss, Outcome
from gemmtune.engine.records.errors import GemmtuneError


class FakeActor:
    def __init__(self):
        self.calls = []
        self.ended = None

    def begin(self, on_reply):
        self.begun = on_reply

    def run(self, job, on_reply):
        self.calls.append((job, on_reply))

    def end(self, *, began):
        self.ended = began

    def answer(self, call=0):
        job, on_reply = self.calls.pop(call)
        on_reply(Reply(1, Outcome(None, job.upper())))

    @property
    def running(self):
        return [job for job, _ in self.calls]


class Machine:
    def __init__(self, folder):
        self.folder, self.actors, self.is_there, self.wake = folder, [], True, Event()
        self.notices = []

    def handle(self):
        return ActorHandle("node/gpu0", self.start, lambda: self.is_there, self.folder, self.wake, self.notices.append)

    def start(self):
        self.actors.append(FakeActor())
        return self.actors[-1]

    @property
    def actor(self):
        return self.actors[-1]

    def kill(self, handle):
        """The actor ends: every call fails."""
        for _, on_reply in self.actor.calls:
            on_reply("ActorDiedError: killed")
        if not self.actor.calls:
            self.actor.begun("ActorDiedError: killed")
        return handle.collect()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def begun(machine, handle):
    machine.actor.begun(Reply(1))
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
    first = machine.actor
    assert machine.kill(handle) == []
    assert machine.actor is not first
    assert machine.notices == ["node/gpu0: an actor ended (ActorDiedError: killed); running 3 jobs again"]
    begun(machine, handle)
    assert machine.actor.running == ["a", "b", "c"]


def test_a_late_reply_of_an_actor_that_ended_is_ignored(machine):
    handle = begun(machine, machine.handle())
    handle.submit("a")
    handle.submit("b")
    old = machine.actor
    (_, first), (_, second) = old.calls
    first("ActorUnavailableError: no answer")
    handle.collect()
    begun(machine, handle)
    second(Reply(1, Outcome(None, "B of the old one")))
    assert handle.collect() == []
    machine.actor.answer()
    machine.actor.answer()
    assert results(handle.collect()) == [("a", "A"), ("b", "B")]


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
    assert lost.reason == "3 actors ended while they had it (last: ActorDiedError: killed)"
    begun(machine, handle)
    assert machine.actor.running == ["b"]
    machine.actor.answer()
    assert results(handle.collect()) == [("b", "B")]


def test_a_handle_whose_actors_all_end_is_quarantined(machine):
    handle = machine.handle()
    for _ in range(4):
        assert machine.kill(handle) == []
    with pytest.raises(GemmtuneError, match=r"node/gpu0 is quarantined: 5 actors in a row ended \(last: ActorDied"):
        machine.kill(handle)
    assert handle.size == 0


def test_a_machine_that_has_left_gets_no_other_actor(machine):
    handle = begun(machine, machine.handle())
    handle.submit("a")
    machine.is_there = False
    with pytest.raises(GemmtuneError, match="node/gpu0 is gone: its machine has left the cluster"):
        machine.kill(handle)
    assert len(machine.actors) == 1


def test_an_actor_that_has_lost_its_gpu_says_so_and_keeps_its_resources(machine):
    handle = begun(machine, machine.handle())
    handle.submit("a")
    handle.submit("b")
    machine.actor.calls[0][1](Reply(1, Outcome(None, "A")))
    machine.actor.calls[1][1](Reply(0, notices=("no new worker process; trying again",), lost="GPU 0 is quarantined"))
    assert results(handle.collect()) == [("a", "A")]
    assert machine.notices == ["no new worker process; trying again"]
    with pytest.raises(GemmtuneError, match="node/gpu0: GPU 0 is quarantined"):
        handle.collect()
    assert machine.actor.ended is None, "or Ray would give the GPU to the next actor"
    handle.close()
    assert machine.actor.ended is False


def test_an_actor_for_which_there_is_no_room_is_given_up_in_time(machine, monkeypatch):
    handle = machine.handle()
    assert handle.collect() == []
    monkeypatch.setattr(actor_handle.time, "monotonic", lambda: float("inf"))
    with pytest.raises(GemmtuneError, match="node/gpu0: the cluster had no room for it in 300 s"):
        handle.collect()
