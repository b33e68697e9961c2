"""The gain of a campaign: of which problems it is, and how it grows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.gain import Gain
from gemmtune.engine.testing.objective_conformance import example_measurement

MEASURED = example_measurement()
ONE, TWO = (replace(MEASURED.task, problem=Problem(m, 64, 64, weight=weight)) for m, weight in ((16, 1.0), (32, 3.0)))


@dataclass
class Search:
    """Stands in for a TaskSearch."""

    task: Task


@pytest.fixture
def seconds():
    return [0.0]


@pytest.fixture
def gain(seconds):
    found = Gain(lambda: seconds[0])
    found.on_begin([Search(ONE), Search(TWO)])
    return found


def measure(gain, task, score, baseline=False):
    task = replace(task, space=task.problem.baseline_space) if baseline else task
    gain.on_measurement(replace(MEASURED, task=task), score, known=False)


def test_only_problems_with_a_baseline_and_a_config_count(gain):
    measure(gain, ONE, 100.0, baseline=True)
    assert (gain.value, gain.problems) == (0.0, 0)
    measure(gain, ONE, 80.0)
    assert (gain.value, gain.problems) == (pytest.approx(0.2), 1)
    measure(gain, TWO, 100.0, baseline=True)
    measure(gain, TWO, None)  # a failure
    assert (gain.value, gain.problems) == (pytest.approx(0.2), 1)
    measure(gain, TWO, 120.0)  # the baseline ships
    assert (gain.value, gain.problems) == (pytest.approx(20 / 400), 2)


def test_the_gain_of_searches_that_begin_again_forgets_what_was_withdrawn(gain):
    for task in (ONE, TWO):
        measure(gain, task, 100.0, baseline=True)
        measure(gain, task, 10.0)
    gain.on_begin([Search(replace(ONE, problem=Problem(64, 64, 64)))])  # a range's
    assert (gain.value, gain.problems) == (pytest.approx(0.9), 2)
    gain.on_begin([Search(ONE), Search(TWO)])
    assert (gain.value, gain.problems, gain.per_hour) == (0.0, 0, None)
    measure(gain, TWO, 100.0, baseline=True)
    measure(gain, TWO, 80.0)
    assert (gain.value, gain.problems) == (pytest.approx(0.2), 1)


def test_what_a_problem_saves_that_begins_to_count_is_growth(gain, seconds):
    measure(gain, ONE, 100.0, baseline=True)
    measure(gain, ONE, 60.0)
    gain.start()
    measure(gain, TWO, 100.0, baseline=True)
    measure(gain, TWO, 90.0)
    seconds[0] = 120.0
    assert gain.per_hour == pytest.approx(3 * 10 / 400 * 30)
