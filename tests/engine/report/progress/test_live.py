"""Tests of the live view."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.report.progress.live import LiveView
from gemmtune.engine.report.progress.state import CampaignState, ProblemState
from gemmtune.engine.seams.executor import Load
from gemmtune.engine.testing.objective_conformance import example_measurement

MEASURED = replace(example_measurement(), worker="host/gpu0")


class Clock:
    at = 0.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def state(clock):
    found = CampaignState("ns", clock, total=128, tasks=2)
    found.problems[MEASURED.task.problem] = ProblemState(tasks=1, total=64)
    found.problems[Problem(1, 2, 3)] = ProblemState(tasks=0, total=64, done=64, best=2e3, baseline=3e3)
    return found


def drawn(state: CampaignState, height: int = 40, width: int = 100) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, height=height, color_system=None)
    view = LiveView(state, console)
    with view.live:
        view.on_load(None, None)
        return out.getvalue()


def test_view_shows_tasks_queue_gpus_rate_failures_and_time_left(state, clock):
    state.on_load(Load(120, 15, 8, {"host/gpu0": True, "host/gpu1": False}), None)
    clock.at = 10.0
    state.on_load(Load(120, 15, 8, {"host/gpu0": True}), None)
    for _ in range(20):
        state.on_measurement(MEASURED, 9e4, known=False)
    state.on_measurement(replace(MEASURED, status=Status.BUILD_FAILED), None, known=False)
    lines = [line.split() for line in drawn(state).splitlines()]
    text = drawn(state)
    assert "21/128 evaluations, 2.1/s, about 51 s left, 0/2 tasks done" in text
    assert "120 queued, 15 building, 8 to be timed" in text
    assert "failed: 1 build_failed" in text
    assert ["host/gpu0", "21", "100%"] in lines
    assert ["host/gpu1", "0", "given", "up"] in lines
    assert [MEASURED.task.problem.name, "90.0", "-", "-", "21/64"] in lines
    assert ["1x2x3:bf16:nt", "2.0", "3.0", "+50.0%", "64/64", "done"] in lines


def test_small_screen_shows_the_problems_measured_last(state):
    for m in range(100):
        state.problems[Problem(m + 1, 64, 64)] = ProblemState(total=8)
    text = drawn(state, height=20)
    assert len(text.splitlines()) <= 20
    assert "100x64x64:bf16:nt" in text
    assert "\n1x64x64:bf16:nt " not in text
    named = sum(line.split()[:1] != [] and "x64x64:" in line for line in text.splitlines())
    assert f"{102 - named} more" in text


def test_narrow_screen_cuts_names_of_problems_and_no_number(state):
    for m in range(100):
        problem = Problem(16384 + m, 16384, 16384)
        state.problems[problem] = ProblemState(total=1500, done=1500, best=1.2345e6, baseline=1.1e6)
    assert "0/128 evaluations, 0.0/s, starting, 0/2 tasks done" in drawn(state, width=80)
    lines = drawn(state, height=20, width=60).splitlines()
    assert len(lines) <= 20
    assert max(len(line.removeprefix("\x1b[?25l")) for line in lines) <= 60
    assert [line.split()[1:] for line in lines if line.startswith("16483x")] == [
        ["1234.5", "1100.0", "-10.9%", "1500/1500", "done"]
    ]
    narrowest = drawn(state, height=20, width=43).splitlines()
    assert len(narrowest) == len(lines)
    assert any(line.split() == ["92", "more"] for line in narrowest)


def test_small_screen_shows_problems_beside_a_third_of_workers(state):
    for m in range(100):
        state.problems[Problem(m + 1, 64, 64)] = ProblemState(total=8)
    state.on_load(Load(120, 15, 8, {f"host/gpu{number:02}": True for number in range(50)}), None)
    lines = drawn(state, height=30).splitlines()
    assert len(lines) <= 30
    assert sum("host/gpu" in line for line in lines) == 10
    assert sum("x64x64:" in line for line in lines) > 5


def test_view_says_that_the_table_is_written_as_soon_as_searching_is_over(state):
    out = io.StringIO()
    view = LiveView(state, Console(file=out, force_terminal=True, width=100, height=40, color_system=None))
    with view.live:
        view.on_load(None, None)
        assert "writing" not in out.getvalue()
        for follower in (state, view):
            follower.on_save()
        assert "0/128 evaluations, 0.0/s, writing table and report" in out.getvalue()


def test_view_is_drawn_at_most_four_times_per_second(state, clock):
    out = io.StringIO()
    view = LiveView(state, Console(file=out, force_terminal=True, width=80, height=24))
    sizes = []
    with view.live:
        for _ in range(10):
            view.on_load(None, None)
            sizes.append(out.tell())
            clock.at += 0.1
    assert len(set(sizes)) == 4  # at 0, 0.3, 0.6 and 0.9


def reflowed(text: str, width: int, narrower: int, further: str) -> list[str]:
    """Lines of a terminal that shows `text`, becomes `narrower`, breaks what does not fit, and is sent `further`."""
    shown = re.sub(r"\x1b\[[?\d]*[a-zA-Z]", "", text).replace("\r", "").split("\n")
    assert max(map(len, shown)) <= width
    rows = [line[start : start + narrower] for line in shown for start in range(0, max(len(line), 1), narrower)]
    at = len(rows) - 1
    for token in re.findall(r"\x1b\[[?\d]*[a-zA-Z]|\n|[^\x1b\n\r]+", further):
        if token == "\x1b[2K":
            rows[at] = ""
        elif token == "\x1b[1A":
            at -= 1
        elif token == "\n":
            at += 1
            rows += [""] * (at == len(rows))
        elif not token.startswith("\x1b"):
            rows[at] = token
    return rows


@pytest.mark.parametrize("said", ["", "a notice"])
def test_a_narrower_window_keeps_nothing_of_what_it_broke_and_cuts_no_number(state, clock, said):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=24, color_system=None)
    view = LiveView(state, console)
    with view.live:
        view.on_load(None, None)
        before = out.getvalue()
        console.width, clock.at = 50, 1.0
        if said:
            view.on_notice(said)
        view.on_load(None, None)
        rows = reflowed(before, 80, 50, out.getvalue()[len(before) :])
    lines = [row.rstrip() for row in rows if row.strip()]
    names = [line.split()[0] for line in lines if line != said and "evaluations" not in line]
    assert names == ["problem", "1x2x3:bf16…", "2048x4096x…"]
    assert lines.count(said) == bool(said)
    assert sum("evaluations" in line for line in lines) == 1
    assert lines[-2].split()[1:] == ["2.0", "3.0", "+50.0%", "64/64", "done"]
