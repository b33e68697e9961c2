"""Where a campaign stands is what was heard of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from gemmtune.engine.execution.load import Load
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.progress.state import Standing, duration
from gemmtune.engine.testing.objective_conformance import example_measurement

MEASURED = replace(example_measurement(), worker="host/gpu0")
TASK = MEASURED.task
PROBLEM = TASK.problem
ATEN = replace(TASK, space="aten")


@dataclass
class Search:
    """Of a TaskSearch, what a standing looks at."""

    task: Task
    evaluations: int


class Hands:
    at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def hands():
    return Hands()


@pytest.fixture
def standing(hands):
    found = Standing("ns", hands)
    found.began([Search(ATEN, 1), Search(TASK, 64), Search(replace(TASK, problem=Problem(1, 1, 1)), 64)])
    return found


def hear(standing, number=1, time_ns=9e4, task=TASK, known=False, worker="host/gpu0", status=Status.OK):
    for x in range(number):
        measured = replace(MEASURED, task=task, config=Config({"x": x}), worker=worker, status=status)
        standing.measured(measured, time_ns if status is Status.OK else None, known=known)


def test_a_problem_is_told_with_its_best_against_the_baseline(standing):
    hear(standing, time_ns=9e4)
    hear(standing, time_ns=8e4)
    hear(standing, time_ns=8.5e4)
    assert standing.problem_text(PROBLEM) == f"{PROBLEM.name} 80.0 µs"
    hear(standing, time_ns=1e5, task=ATEN)
    assert standing.problem_text(PROBLEM) == f"{PROBLEM.name} 80.0 µs, 1.250× aten"
    assert standing.problem_text(Problem(1, 1, 1)) == "1x1x1:bf16:nt"
    assert list(standing.problems) == [Problem(1, 1, 1), PROBLEM]  # what was heard of last comes last
    of = standing.problems[PROBLEM]
    assert (of.done, of.total, of.tasks) == (4, 65, 2)


def test_the_rate_is_that_of_the_last_half_minute_and_tells_the_time_left(standing, hands):
    assert standing.left_text == "starting"
    hands.at += 10
    hear(standing, 20)
    assert (standing.rate_text, standing.left_text) == ("2.0/s", "about 54 s left")
    hands.at += 25
    hear(standing, 15)
    assert standing.rate_text == "1.2/s"
    hands.at += 10
    assert standing.rate_text == "0.5/s"
    standing.looked(None, 7.0)
    assert standing.left_text == "about 7 s left"
    hands.at += 60
    assert standing.left_text == "waiting"


def test_what_the_database_knew_is_done_and_no_part_of_the_rate(standing, hands):
    hands.at += 10
    hear(standing, 10, known=True)
    assert (standing.done, standing.new, standing.rate_text) == (10, 0, "0.0/s")


def test_what_a_search_that_ends_has_not_spent_is_not_to_come(standing):
    hear(standing, 24)
    standing.search_ended(Search(TASK, 64))
    assert (standing.done, standing.total, standing.ended) == (24, 1 + 24 + 64, 1)
    assert standing.problems[PROBLEM].total == 25


def test_failures_are_counted_by_reason(standing):
    hear(standing, 2, status=Status.BUILD_FAILED)
    hear(standing, 1, status=Status.TIMED_OUT)
    hear(standing, 5)
    assert standing.failures_text == "2 build_failed, 1 timed_out"


def test_a_gpu_is_busy_while_it_has_something_to_time(standing, hands):
    for first, second in ((True, True), (True, False), (True, False), (False, False), (True, False)):
        standing.looked(Load(7, 3, 2, {"host/gpu0": first, "host/gpu1": second}), None)
        hands.at += 1
    hear(standing, 3, worker="host/gpu1")
    assert standing.load_text == "7 queued, 3 building, 2 to be timed"
    shares = {name: (worker.measured, worker.busy, worker.lost) for name, worker in standing.workers.items()}
    assert shares == {"host/gpu0": (0, 0.75, False), "host/gpu1": (3, 0.25, False)}, "until it looks again"
    standing.looked(Load(0, 0, 0, {"host/gpu0": True}), None)
    assert standing.workers["host/gpu1"].lost


def test_the_summary_says_it_all(standing, hands):
    standing.looked(Load(0, 0, 1, {"host/gpu0": True}), None)
    hands.at += 100
    standing.looked(Load(0, 0, 1, {"host/gpu0": True}), None)
    hear(standing, 30, known=True)
    hear(standing, 20)
    hear(standing, 1, status=Status.RUN_FAILED)
    standing.search_ended(Search(ATEN, 1))
    assert standing.summary == (
        "21 evaluations in 1 min 40 s; 0.2/s; 30 known; 1 of 3 tasks done; failed: 1 run_failed; host/gpu0 100% busy"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (3599.6, "1 h 0 min")]
)
def test_a_duration_is_told_as_a_person_would(seconds, text):
    assert duration(seconds) == text


def test_a_second_round_of_searches_is_more_to_do_and_forgets_nothing(standing, hands):
    hear(standing, number=64)
    for search in [Search(ATEN, 1), Search(TASK, 64), Search(replace(TASK, problem=Problem(1, 1, 1)), 64)]:
        standing.search_ended(search)
    assert (standing.total, standing.done, standing.ended) == (64, 64, 3)
    hands.at += 10
    crossing = Search(TASK, 20)
    standing.began([crossing])
    hear(standing, number=16, known=True)
    hands.at += 10
    hear(standing, number=2)
    assert (standing.total, standing.done, standing.tasks, standing.seconds) == (84, 82, 4, 20.0)
    assert standing.left_text == "about 1 s left"
    standing.search_ended(crossing)
    assert (standing.total, standing.ended) == (82, 4)
