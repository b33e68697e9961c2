"""Jobs over places: spread, kept at home, and handed on when a place is lost."""

from __future__ import annotations

import pytest

from gemmtune.engine.execution import dispatcher as pool_module
from gemmtune.engine.execution.dispatcher import Pool
from gemmtune.engine.processes.process_pool import Outcome, Quarantined
from gemmtune.engine.records.errors import GemmtuneError


class Job:
    def __init__(self, name: str, kind: str = "a") -> None:
        self.name, self.kind = name, kind


class FakePlace:
    """Ends the jobs it is told to end."""

    def __init__(self, size=1):
        self.size, self.given, self.ended, self.error, self.closed = size, [], [], None, False

    def submit(self, job):
        self.given.append(job)

    def end(self, count=1):
        self.ended += [self.given.pop(0) for _ in range(count)]

    def collect(self):
        if self.error is not None:
            if isinstance(self.error, Quarantined):
                self.size = 0
            raise self.error
        ended, self.ended = self.ended, []
        return [Outcome(job, job.name) for job in ended]

    def close(self):
        self.closed = True

    @property
    def names(self):
        return "".join(job.name for job in self.given)


def pool_of(count, **options):
    places = {f"gpu{number}": FakePlace() for number in range(count)}
    return Pool(places, **options), list(places.values())


def submit(pool, names, kind="a"):
    for name in names:
        pool.submit(Job(name, kind))


def test_jobs_go_to_the_least_loaded_place_and_the_rest_waits():
    pool, (first, second) = pool_of(2)
    submit(pool, "abcdef")
    assert (first.names, second.names) == ("ac", "bd")
    assert (pool.pending, pool.room) == (6, -2)
    second.end()
    (done,) = pool.collect()
    assert (done.outcome.result, done.place) == ("b", "gpu1")
    assert (first.names, second.names) == ("ac", "de")
    assert pool.pending == 5


def test_a_place_is_busy_while_it_has_a_job():
    pool, (first, _) = pool_of(2)
    submit(pool, "a")
    assert pool.busy == {"gpu0": True, "gpu1": False}
    first.end()
    pool.collect()
    assert pool.busy == {"gpu0": False, "gpu1": False}


def test_a_place_that_runs_several_is_given_as_many_times_more():
    crew = FakePlace(size=3)
    pool = Pool({"crew": crew}, ahead=2)
    submit(pool, "abcdefgh")
    assert crew.names == "abcdef"
    assert pool.room == -2


def test_a_place_that_has_not_started_is_given_nothing():
    late, ready = FakePlace(size=0), FakePlace()
    pool = Pool({"late": late, "ready": ready})
    submit(pool, "abc")
    assert (late.names, ready.names) == ("", "ab")
    late.size = 1
    pool.collect()
    assert late.names == "c"


def test_one_kind_stays_at_its_home_until_another_place_is_worth_setting_up(monkeypatch):
    monkeypatch.setattr(pool_module, "_WORTH_A_MOVE", 8)
    pool, (first, second) = pool_of(2, home=lambda job: job.kind)
    submit(pool, "abcdefg")
    assert (first.names, second.names) == ("ab", "")
    submit(pool, "xy", kind="other")
    assert (first.names, second.names) == ("ab", "xy")
    second.end(2)
    pool.collect()
    assert second.names == "", "five wait at home, too few to set up for"
    submit(pool, "hij")
    assert (first.names, second.names) == ("ab", "cd")
    second.end()
    pool.collect()
    assert second.names == "de", "both are its homes now"


def test_a_lost_place_loses_no_job_and_is_told_of():
    notices = []
    pool, (first, second) = pool_of(2, notify=notices.append)
    submit(pool, "abcde")
    first.error = Quarantined("GPU 0 is quarantined: no CUDA")
    assert pool.collect() == []
    assert notices == ["GPU 0 is quarantined: no CUDA; the others go on"]
    assert pool.busy.keys() == {"gpu1"}
    names = ""
    for _ in range(5):
        second.end()
        (done,) = pool.collect()
        names += done.outcome.result
    assert names == "bdace", "what the lost place had goes first"
    assert pool.pending == 0


def test_the_last_place_raises_its_own_error_once_everything_is_told():
    pool, (first, second) = pool_of(2)
    submit(pool, "ab")
    second.error = Quarantined("GPU 1 is quarantined")
    first.end()
    assert [done.outcome.result for done in pool.collect()] == ["a"]
    first.error = Quarantined("GPU 0 is quarantined")
    for _ in range(2):
        with pytest.raises(Quarantined, match="GPU 0"):
            pool.collect()


def test_a_place_that_loses_a_part_of_itself_goes_on():
    notices = []
    pool, (first,) = pool_of(1, notify=notices.append)
    submit(pool, "a")
    first.error = GemmtuneError("a builder did not start")
    assert pool.collect() == []
    first.error = None
    first.end()
    assert len(pool.collect()) == 1
    assert notices == ["a builder did not start"]


def test_a_retired_place_gives_its_jobs_back_and_the_last_one_stays():
    notices = []
    pool, (first, second) = pool_of(2, home=lambda job: job.kind, notify=notices.append)
    submit(pool, "ab")
    pool.retire("gpu0", "it drifts")
    pool.retire("gpu0", "it drifts")
    pool.retire("gpu1", "it drifts too")
    assert notices == ["gpu0 is quarantined: it drifts; its jobs go elsewhere"]
    assert pool.busy.keys() == {"gpu1"}
    pool.collect()
    assert second.names == "ab"
    pool.close()
    assert first.closed
    assert second.closed


def test_a_place_that_comes_later_takes_what_waits():
    pool, (first,) = pool_of(1)
    submit(pool, "abcd")
    late = FakePlace()
    pool.add("late", late)
    pool.collect()
    assert (first.names, late.names) == ("ab", "cd")
