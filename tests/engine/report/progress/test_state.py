"""Tests of the progress of a campaign."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.progress.state import CampaignState, duration
from gemmtune.engine.seams.executor import Load
from gemmtune.engine.testing.objective_conformance import example_measurement

MEASURED = replace(example_measurement(), worker="host/gpu0")
TASK = MEASURED.task
PROBLEM = TASK.problem
ATEN = replace(TASK, space="aten")


@dataclass
class Search:
    """Stands in for a TaskSearch."""

    task: Task
    budget: int


class Clock:
    at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def state(clock):
    found = CampaignState("ns", clock)
    found.on_begin([Search(ATEN, 1), Search(TASK, 64), Search(replace(TASK, problem=Problem(1, 1, 1)), 64)])
    return found


def measure(state, number=1, time_ns=9e4, task=TASK, known=False, worker="host/gpu0", status=Status.OK):
    for x in range(number):
        measured = replace(MEASURED, task=task, config=Config({"x": x}), worker=worker, status=status)
        state.on_measurement(measured, time_ns if status is Status.OK else None, known=known)


def test_problem_text_has_the_best_and_its_lead_over_the_baseline(state):
    measure(state, time_ns=9e4)
    measure(state, time_ns=8e4)
    measure(state, time_ns=8.5e4)
    assert state.problem_text(PROBLEM) == f"{PROBLEM.name} 80.0 µs"
    measure(state, time_ns=1e5, task=ATEN)
    assert state.problem_text(PROBLEM) == f"{PROBLEM.name} 80.0 µs, lead +25.0% over aten"
    assert state.problem_text(Problem(1, 1, 1)) == "1x1x1:bf16:nt"
    assert list(state.problems) == [Problem(1, 1, 1), PROBLEM]  # the problem measured last comes last
    of = state.problems[PROBLEM]
    assert (of.done, of.total, of.tasks) == (3, 64, 2)  # the baseline is in no total
    assert (state.done, state.total, state.tasks) == (3, 128, 2)


def test_searches_that_begin_again_forget_what_was_withdrawn(state):
    measure(state, time_ns=3e4)
    measure(state, time_ns=1e5, task=ATEN)
    state.on_begin([Search(ATEN, 1), Search(TASK, 64), Search(replace(TASK, problem=Problem(1, 1, 1)), 64)])
    assert state.problem_text(PROBLEM) == PROBLEM.name
    measure(state, time_ns=9e4)
    measure(state, time_ns=1e5, task=ATEN)
    assert state.problem_text(PROBLEM) == f"{PROBLEM.name} 90.0 µs, lead +11.1% over aten"
    assert state.gain.value == pytest.approx(0.1)


def test_a_stop_at_any_line_makes_no_new_evaluation_a_known_one(state):
    for line in range(100):
        left = line

        def trace(frame, event, _):
            nonlocal left
            left -= event == "line"
            if left < 0:
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            state.on_measurement(MEASURED, 9e4, known=False)
        except KeyboardInterrupt:
            assert (state.known, state.done) == (0, state.new), line
        else:
            break
        finally:
            sys.settrace(before)
    assert line > 10


def test_rate_of_the_last_half_minute_gives_the_time_left(state, clock):
    assert state.left_text == "starting"
    clock.at += 10
    measure(state, 20)
    assert (state.rate_text, state.left_text) == ("2.0/s", "about 54 s left")
    clock.at += 25
    measure(state, 15)
    assert state.rate_text == "1.2/s"
    clock.at += 10
    assert state.rate_text == "0.5/s"
    state.on_load(None, 7.0)
    assert state.left_text == "about 7 s left"
    clock.at += 60
    assert state.left_text == "waiting"
    state.held_back = "paused"
    assert state.left_text == "paused"


def test_known_measurements_are_done_and_do_not_count_for_the_rate(state, clock):
    clock.at += 10
    measure(state, 10, known=True)
    assert (state.done, state.new, state.rate_text) == (10, 0, "0.0/s")


def test_search_that_ends_takes_its_unspent_evaluations_off_the_total(state):
    measure(state, 24)
    state.on_search_end(Search(TASK, 64), "budget spent")
    assert (state.done, state.total, state.ended) == (24, 24 + 64, 1)
    assert state.problems[PROBLEM].total == 24


def test_failures_are_counted_by_reason(state):
    measure(state, 2, status=Status.BUILD_FAILED)
    measure(state, 1, status=Status.TIMED_OUT)
    measure(state, 5)
    assert state.failures_text == "2 build_failed, 1 timed_out"


def test_gpu_is_busy_while_it_has_a_config_to_time(state, clock):
    for first, second in ((True, True), (True, False), (True, False), (False, False), (True, False)):
        state.on_load(Load(7, 3, 2, {"host/gpu0": first, "host/gpu1": second}), None)
        clock.at += 1
    measure(state, 3, worker="host/gpu1")
    assert state.load_text == "7 queued, 3 building, 2 to be timed"
    shares = {name: (worker.measured, worker.busy, worker.lost) for name, worker in state.workers.items()}
    assert shares == {"host/gpu0": (0, 0.75, False), "host/gpu1": (3, 0.25, False)}, "until the next report"
    state.on_load(Load(0, 0, 0, {"host/gpu0": True}), None)
    assert state.workers["host/gpu1"].lost


def test_summary_has_counts_failures_and_busy_shares(state, clock):
    state.on_load(Load(0, 0, 1, {"host/gpu0": True}), None)
    clock.at += 100
    state.on_load(Load(0, 0, 1, {"host/gpu0": True}), None)
    measure(state, 30, known=True)
    measure(state, 20)
    measure(state, 1, status=Status.RUN_FAILED)
    for search in (Search(ATEN, 1), Search(TASK, 64)):
        state.on_search_end(search, "budget spent")
    assert state.summary == (
        "21 evaluations in 1 min 40 s; 0.2/s; 30 known; 1 of 2 tasks done; failed: 1 run_failed; host/gpu0 100% busy"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (3599.6, "1 h 0 min")]
)
def test_duration_is_text_in_two_units(seconds, text):
    assert duration(seconds) == text


def test_second_round_of_searches_adds_work_and_keeps_counts(state, clock):
    measure(state, number=64)
    for search in [Search(ATEN, 1), Search(TASK, 64), Search(replace(TASK, problem=Problem(1, 1, 1)), 64)]:
        state.on_search_end(search, "budget spent")
    assert (state.total, state.done, state.ended) == (64, 64, 2)
    clock.at += 10
    more = Search(TASK, 20)
    state.on_begin([more])
    measure(state, number=16, known=True)
    clock.at += 10
    measure(state, number=2)
    assert (state.total, state.done, state.tasks, state.seconds) == (84, 82, 3, 20.0)
    assert state.left_text == "about 1 s left"
    state.on_search_end(more, "budget spent")
    assert (state.total, state.ended) == (82, 3)
