"""The live view shows where a campaign stands, in the room there is."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from gemmtune.engine.execution.load import Load
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.report.progress.live import LiveView
from gemmtune.engine.report.progress.state import ProblemStanding, Standing
from gemmtune.engine.testing.objective_conformance import example_measurement

MEASURED = replace(example_measurement(), worker="host/gpu0")


class Hands:
    at = 0.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def hands():
    return Hands()


@pytest.fixture
def standing(hands):
    found = Standing("ns", hands, total=128, tasks=2)
    found.problems[MEASURED.task.problem] = ProblemStanding(tasks=1, total=64)
    found.problems[Problem(1, 2, 3)] = ProblemStanding(tasks=0, total=64, done=64, best=2e3, baseline=3e3)
    return found


def drawn(standing: Standing, height: int = 40, width: int = 100) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, height=height, color_system=None)
    view = LiveView(standing, console)
    with view.live:
        view.draw()
        return out.getvalue()


def test_it_shows_tasks_queue_gpus_rate_failures_and_what_is_left(standing, hands):
    standing.looked(Load(120, 15, 8, {"host/gpu0": True, "host/gpu1": False}), None)
    hands.at = 10.0
    standing.looked(Load(120, 15, 8, {"host/gpu0": True}), None)
    for _ in range(20):
        standing.measured(MEASURED, 9e4, known=False)
    standing.measured(replace(MEASURED, status=Status.BUILD_FAILED), None, known=False)
    lines = [line.split() for line in drawn(standing).splitlines()]
    text = drawn(standing)
    assert "21/128 evaluations, 2.1/s, about 51 s left, 0/2 tasks done" in text
    assert "120 queued, 15 building, 8 to be timed" in text
    assert "failed: 1 build_failed" in text
    assert ["host/gpu0", "21", "100%"] in lines
    assert ["host/gpu1", "0", "given", "up"] in lines
    assert [MEASURED.task.problem.name, "90.0", "-", "-", "21/64"] in lines
    assert ["1x2x3:bf16:nt", "2.0", "3.0", "1.500×", "64/64", "done"] in lines


def test_a_small_screen_shows_the_problems_that_were_heard_of_last(standing):
    for m in range(100):
        standing.problems[Problem(m + 1, 64, 64)] = ProblemStanding(total=8)
    text = drawn(standing, height=20)
    assert len(text.splitlines()) <= 20
    assert "100x64x64:bf16:nt" in text
    assert "\n1x64x64:bf16:nt " not in text


def test_it_is_drawn_four_times_a_second_at_most(standing, hands):
    out = io.StringIO()
    view = LiveView(standing, Console(file=out, force_terminal=True, width=80, height=24))
    sizes = []
    with view.live:
        for _ in range(10):
            view.draw()
            sizes.append(out.tell())
            hands.at += 0.1
    assert len(set(sizes)) == 4  # at 0, 0.3, 0.6 and 0.9
