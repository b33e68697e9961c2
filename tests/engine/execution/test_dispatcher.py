"""Jobs over workers: spread, kept where the set-up is, and handed on when a worker is lost."""

from __future__ import annotations

import pytest

from gemmtune.engine.execution import dispatcher
from gemmtune.engine.execution.dispatcher import Dispatcher
from gemmtune.engine.processes.process_pool import Outcome, Quarantined
from gemmtune.engine.records.errors import GemmtuneError


class Job:
    def __init__(self, name: str, kind: str = "a") -> None:
        self.name, self.kind = name, kind


class FakeWorker:
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


def dispatcher_of(count, **options):
    workers = {f"gpu{number}": FakeWorker() for number in range(count)}
    return Dispatcher(workers, **options), list(workers.values())


def submit(jobs, names, kind="a"):
    for name in names:
        jobs.submit(Job(name, kind))


def test_jobs_go_to_the_least_loaded_worker_and_the_rest_waits():
    jobs, (first, second) = dispatcher_of(2)
    submit(jobs, "abcdef")
    assert (first.names, second.names) == ("ac", "bd")
    assert (jobs.pending, jobs.room) == (6, -2)
    second.end()
    (done,) = jobs.collect()
    assert (done.outcome.result, done.worker) == ("b", "gpu1")
    assert (first.names, second.names) == ("ac", "de")
    assert jobs.pending == 5


def test_a_worker_is_busy_while_it_has_a_job():
    jobs, (first, _) = dispatcher_of(2)
    submit(jobs, "a")
    assert jobs.busy == {"gpu0": True, "gpu1": False}
    first.end()
    jobs.collect()
    assert jobs.busy == {"gpu0": False, "gpu1": False}


def test_a_worker_that_runs_several_jobs_holds_as_many_times_more():
    crew = FakeWorker(size=3)
    jobs = Dispatcher({"crew": crew}, ahead=2)
    submit(jobs, "abcdefgh")
    assert crew.names == "abcdef"
    assert jobs.room == -2


def test_a_worker_that_has_not_started_is_given_nothing():
    late, ready = FakeWorker(size=0), FakeWorker()
    jobs = Dispatcher({"late": late, "ready": ready})
    submit(jobs, "abc")
    assert (late.names, ready.names) == ("", "ab")
    late.size = 1
    jobs.collect()
    assert late.names == "c"


def test_a_group_stays_with_one_worker_until_another_set_up_is_worth_it(monkeypatch):
    monkeypatch.setattr(dispatcher, "_JOBS_PER_SETUP", 8)
    jobs, (first, second) = dispatcher_of(2, affinity=lambda job: job.kind)
    submit(jobs, "abcdefg")
    assert (first.names, second.names) == ("ab", "")
    submit(jobs, "xy", kind="other")
    assert (first.names, second.names) == ("ab", "xy")
    second.end(2)
    jobs.collect()
    assert second.names == "", "five wait, too few for another set-up"
    submit(jobs, "hij")
    assert (first.names, second.names) == ("ab", "cd")
    second.end()
    jobs.collect()
    assert second.names == "de", "both are set up now"


def test_a_lost_worker_loses_no_job_and_causes_a_notice():
    notices = []
    jobs, (first, second) = dispatcher_of(2, notify=notices.append)
    submit(jobs, "abcde")
    first.error = Quarantined("GPU 0 is quarantined: no CUDA")
    assert jobs.collect() == []
    assert notices == ["GPU 0 is quarantined: no CUDA; the others go on"]
    assert jobs.busy.keys() == {"gpu1"}
    names = ""
    for _ in range(5):
        second.end()
        (done,) = jobs.collect()
        names += done.outcome.result
    assert names == "bdace", "the jobs of the lost worker go first"
    assert jobs.pending == 0


def test_the_last_worker_raises_its_own_error_after_all_results():
    jobs, (first, second) = dispatcher_of(2)
    submit(jobs, "ab")
    second.error = Quarantined("GPU 1 is quarantined")
    first.end()
    assert [done.outcome.result for done in jobs.collect()] == ["a"]
    first.error = Quarantined("GPU 0 is quarantined")
    for _ in range(2):
        with pytest.raises(Quarantined, match="GPU 0"):
            jobs.collect()


def test_a_worker_that_loses_one_process_goes_on():
    notices = []
    jobs, (first,) = dispatcher_of(1, notify=notices.append)
    submit(jobs, "a")
    first.error = GemmtuneError("a builder did not start")
    assert jobs.collect() == []
    first.error = None
    first.end()
    assert len(jobs.collect()) == 1
    assert notices == ["a builder did not start"]


def test_a_quarantined_worker_gives_its_jobs_back_and_the_last_one_stays():
    notices = []
    jobs, (first, second) = dispatcher_of(2, affinity=lambda job: job.kind, notify=notices.append)
    submit(jobs, "ab")
    jobs.quarantine("gpu0", "it drifts")
    jobs.quarantine("gpu0", "it drifts")
    jobs.quarantine("gpu1", "it drifts too")
    assert notices == ["gpu0 is quarantined: it drifts; its jobs go elsewhere"]
    assert jobs.busy.keys() == {"gpu1"}
    jobs.collect()
    assert second.names == "ab"
    jobs.close()
    assert first.closed
    assert second.closed


def test_a_worker_that_joins_takes_waiting_jobs():
    jobs, (first,) = dispatcher_of(1)
    submit(jobs, "abcd")
    late = FakeWorker()
    jobs.add("late", late)
    jobs.collect()
    assert (first.names, late.names) == ("ab", "cd")
