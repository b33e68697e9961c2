"""The driver's end of an actor, with actors that do as they are told."""

from __future__ import annotations

from threading import Event

import pytest

from gemmtune.engine.execution.ray import actor_handle as ray_place
from gemmtune.engine.execution.ray.actor import Reply
from gemmtune.engine.execution.ray.actor_handle import RayPlace
from gemmtune.engine.processes.process_pool import Loss, Outcome
from gemmtune.engine.records.errors import GemmtuneError


class FakeActor:
    def __init__(self):
        self.calls = []
        self.ended = None

    def begin(self, heard):
        self.begun = heard

    def run(self, jobs, files, heard):
        self.calls.append((list(jobs), heard))

    def end(self, *, began):
        self.ended = began

    def answer(self, call=0):
        jobs, heard = self.calls.pop(call)
        heard(Reply(1, tuple(Outcome(None, job.upper()) for job in jobs)))

    @property
    def running(self):
        return [jobs for jobs, _ in self.calls]


class Site:
    def __init__(self, folder):
        self.folder, self.actors, self.is_there, self.wake = folder, [], True, Event()
        self.notices = []

    def place(self, batch=1):
        return RayPlace(
            "node/gpu0", self.start, lambda: self.is_there, self.folder, self.wake, batch, self.notices.append
        )

    def start(self):
        self.actors.append(FakeActor())
        return self.actors[-1]

    @property
    def actor(self):
        return self.actors[-1]

    def kill(self, place):
        """The actor ends: all that asked hear of it."""
        for _, heard in self.actor.calls:
            heard("ActorDiedError: killed")
        if not self.actor.calls:
            self.actor.begun("ActorDiedError: killed")
        return place.collect()


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def begun(site, place):
    site.actor.begun(Reply(1))
    assert place.collect() == []
    return place


def results(outcomes):
    return [(outcome.job, outcome.result) for outcome in outcomes]


def test_jobs_leave_once_the_actor_is_there_and_come_back_as_they_went(site):
    place = site.place()
    assert place.size == 0
    place.submit("a")
    place.submit("b")
    assert site.actor.running == []
    begun(site, place)
    assert place.size == 1
    assert site.actor.running == [["a"], ["b"]]
    site.wake.clear()
    site.actor.answer(1)
    assert site.wake.is_set()
    assert results(place.collect()) == [("b", "B")]
    site.actor.answer()
    assert results(place.collect()) == [("a", "A")]


def test_a_batch_travels_together_and_a_part_of_one_at_the_next_flush(site):
    place = begun(site, site.place(batch=3))
    for job in "abcd":
        place.submit(job)
    assert site.actor.running == [["a", "b", "c"]]
    place.flush()
    assert site.actor.running == [["a", "b", "c"], ["d"]]


def test_the_jobs_of_an_actor_that_ends_run_again_in_order_with_a_notice(site):
    place = begun(site, site.place())
    for job in "abc":
        place.submit(job)
    first = site.actor
    assert site.kill(place) == []
    assert site.actor is not first
    assert site.notices == ["node/gpu0: an actor ended (ActorDiedError: killed); running 3 jobs again"]
    begun(site, place)
    assert site.actor.running == [["a"], ["b"], ["c"]]


def test_a_late_word_of_an_actor_that_is_given_up_is_not_heard(site):
    place = begun(site, site.place())
    place.submit("a")
    place.submit("b")
    old = site.actor
    (_, first), (_, second) = old.calls
    first("ActorUnavailableError: no answer")
    place.collect()
    begun(site, place)
    second(Reply(1, (Outcome(None, "B of the old one"),)))
    assert place.collect() == []
    site.actor.answer()
    site.actor.answer()
    assert results(place.collect()) == [("a", "A"), ("b", "B")]


def test_a_job_that_has_met_two_ends_runs_alone_and_is_dropped_at_the_third(site):
    place = begun(site, site.place())
    for job in "ab":
        place.submit(job)
    for _ in range(2):
        site.kill(place)
        begun(site, place)
    assert site.actor.running == [["a"]]
    (lost,) = site.kill(place)
    assert (lost.job, lost.result, lost.loss) == ("a", None, Loss.DIED)
    assert lost.reason == "3 actors ended while they had it (last: ActorDiedError: killed)"
    begun(site, place)
    assert site.actor.running == [["b"]]
    site.actor.answer()
    assert results(place.collect()) == [("b", "B")]


def test_a_place_whose_actors_all_end_is_quarantined(site):
    place = site.place()
    for _ in range(4):
        assert site.kill(place) == []
    with pytest.raises(GemmtuneError, match=r"node/gpu0 is quarantined: 5 actors in a row ended \(last: ActorDied"):
        site.kill(place)
    assert place.size == 0


def test_a_machine_that_has_left_is_not_waited_for(site):
    place = begun(site, site.place())
    place.submit("a")
    site.is_there = False
    with pytest.raises(GemmtuneError, match="node/gpu0 is gone: its machine has left the cluster"):
        site.kill(place)
    assert len(site.actors) == 1


def test_a_host_that_has_lost_its_gpu_says_so_and_keeps_its_seat(site):
    place = begun(site, site.place())
    place.submit("a")
    place.submit("b")
    site.actor.calls[0][1](Reply(1, (Outcome(None, "A"),)))
    site.actor.calls[1][1](Reply(0, (None,), ("no new worker process; trying again",), "GPU 0 is quarantined"))
    assert results(place.collect()) == [("a", "A")]
    assert site.notices == ["no new worker process; trying again"]
    with pytest.raises(GemmtuneError, match="node/gpu0: GPU 0 is quarantined"):
        place.collect()
    assert site.actor.ended is None, "or Ray would give the GPU to the next actor"
    place.close()
    assert site.actor.ended is False


def test_an_actor_for_which_there_is_no_room_is_given_up_in_time(site, monkeypatch):
    place = site.place()
    assert place.collect() == []
    monkeypatch.setattr(ray_place.time, "monotonic", lambda: float("inf"))
    with pytest.raises(GemmtuneError, match="node/gpu0: the cluster had no room for it in 300 s"):
        place.collect()
