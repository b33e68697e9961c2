from __future__ import annotations

import pytest

from gemmtune.engine.execution.build_queue import BuildQueue
from gemmtune.engine.measure.builder import BuildJob
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task

FIRST, SECOND = (Task(Problem(m, 64, 64), catalogue.device("H200"), "toy") for m in (16, 32))


def job(task, x):
    return BuildJob(task, Config({"x": x}))


def order(queue):
    found = []
    while queue:
        popped = queue.pop()
        found.append((1 if popped.task == FIRST else 2, popped.config["x"]))
    return found


def test_the_batch_that_is_nearly_done_goes_first_and_within_it_what_came_first():
    queue = BuildQueue()
    for x in range(3):
        queue.add(job(FIRST, x))
    for x in range(2):
        queue.add(job(SECOND, x))
    assert order(queue) == [(2, 0), (2, 1), (1, 0), (1, 1), (1, 2)]


def test_a_build_that_is_under_way_counts_until_its_evaluation_is_finished():
    queue = BuildQueue()
    for x in range(2):
        queue.add(job(FIRST, x))
    assert [queue.pop().config["x"] for _ in range(1)] == [0]
    queue.add(job(SECOND, 0))
    queue.add(job(SECOND, 1))
    queue.finish_evaluation(FIRST)
    assert order(queue) == [(1, 1), (2, 0), (2, 1)]


def test_of_equals_the_one_that_was_queued_first_and_a_final_before_all():
    queue = BuildQueue()
    queue.add(job(FIRST, 0))
    queue.add(job(SECOND, 0))
    queue.add_urgent(job(SECOND, 7))
    assert order(queue) == [(2, 7), (1, 0), (2, 0)]
    assert not queue


@pytest.mark.parametrize("evenly", [True, False])
def test_of_equals_the_one_with_the_fewest_behind_it_or_the_one_that_began_first(evenly):
    queue = BuildQueue(evenly=evenly)
    queue.add(job(FIRST, 0))
    queue.pop()
    queue.finish_evaluation(FIRST)
    queue.add(job(FIRST, 1))
    queue.add(job(SECOND, 0))
    assert order(queue) == ([(2, 0), (1, 1)] if evenly else [(1, 1), (2, 0)])
