"""Tests of what a campaign prints while it runs."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final, Finalist, FinalNotHeld
from gemmtune.engine.records.measurement import Estimate
from gemmtune.engine.report.progress import display, work
from gemmtune.engine.report.progress.display import LineWriter, progress_bar, show_progress
from gemmtune.engine.report.progress.state import CampaignState
from gemmtune.engine.report.progress.work import QUIET, show_work
from gemmtune.engine.testing.objective_conformance import example_measurement

MEASURED = example_measurement()
PROBLEM = MEASURED.task.problem


def finalist(x, behind):
    estimate = Estimate(9e4, 8.9e4, 9.1e4)
    return Finalist(MEASURED.task, Config({"x": x}), MEASURED.toolchain, estimate, MEASURED.samples_ns, behind)


FINAL = Final((finalist(1, (0.0, 0.0)), finalist(2, (-0.0012, 0.004)), finalist(3, (0.01, 0.02))), "p", "w", "t")


@pytest.fixture
def every_event(monkeypatch):
    monkeypatch.setattr(display, "_LINE_SECONDS", 0.0)


@pytest.mark.parametrize(("quiet", "line"), [(False, "merging databases ...\n"), (True, "")])
def test_a_command_that_takes_longer_says_what_it_does(quiet, line, capsys, monkeypatch):
    monkeypatch.setattr(work, "_SILENT_SECONDS", 0.0)
    with show_work("merging databases", quiet=quiet):
        deadline, err = time.monotonic() + (0.1 if quiet else 10), ""
        while err == "" and time.monotonic() < deadline:
            err = capsys.readouterr().err
        assert err == line


def test_a_quick_command_says_nothing_of_its_work(capsys):
    with show_work("merging databases", quiet=False):
        pass
    assert capsys.readouterr().err == ""


def measure(callbacks, score=9e4):
    for callback in callbacks:
        callback.on_begin([])
        callback.on_measurement(MEASURED, score, known=False)


@pytest.mark.parametrize(
    ("unit", "score", "text"), [("ns", 90_400.0, f"{PROBLEM.name} 90.4 µs"), ("J", 0.0544, f"{PROBLEM.name} 54.40 mJ")]
)
def test_line_has_the_best_in_the_objectives_unit(unit, score, text, capsys, every_event):
    with show_progress(quiet=False, unit=unit) as callbacks:
        measure(callbacks, score)
        assert capsys.readouterr().err.endswith(f"; {text}\n")


def test_line_of_a_final_has_its_tie_band_and_regret_bound(capsys, every_event):
    with show_progress(quiet=False) as callbacks:
        for callback in callbacks:
            callback.on_final(FINAL)
        expected = f"final of {PROBLEM.name}: tie band of 2 configs, regret at most 0.12%\n"
        assert capsys.readouterr().err.endswith(expected)


def test_notices_and_finals_that_cannot_be_held_are_printed_at_once(capsys):
    with show_progress(quiet=False) as callbacks:
        for callback in callbacks:
            callback.on_notice("GPU 0 is given up after 3 failures")
            callback.on_final(FinalNotHeld(PROBLEM, "no finalist passed its check"))
    assert capsys.readouterr().err.splitlines() == [
        "GPU 0 is given up after 3 failures",
        f"no final of {PROBLEM.name}: no finalist passed its check",
    ]


def test_a_line_says_that_the_campaign_waits_once_nothing_happens(capsys):
    now = 0.0
    state = CampaignState("ns", lambda: now)
    writer = LineWriter(state)
    state.on_begin([])
    for seconds in (4.0, 9.9, 10.1, 19.0):
        now = seconds
        writer.on_load(None, None)
    assert capsys.readouterr().err == "0/0 evaluations, 0.0/s, starting; waiting\n"
    now = 20.0
    measure([state, writer])
    now = 20.3
    writer.on_load(None, None)
    assert capsys.readouterr().err == ""
    now = 20.6
    writer.on_load(None, None)
    assert capsys.readouterr().err == "1/0 evaluations, 0.0/s, starting; waiting\n"


def test_interrupted_campaign_is_summed_up(capsys):
    def interrupted():
        with show_progress(quiet=False) as callbacks:
            measure(callbacks)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert re.fullmatch(r"1 evaluation in 0 s; \S+/s; 0 of 0 tasks done\n", capsys.readouterr().err)


def test_short_campaign_that_completes_prints_no_summary(capsys):
    with show_progress(quiet=False) as callbacks:
        measure(callbacks)
    assert capsys.readouterr().err == ""


@pytest.fixture
def no_progress():
    token = QUIET.set(True)
    yield
    QUIET.reset(token)


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_progress_tells_notices_alone(quiet, capsys, every_event, no_progress):
    with show_progress(quiet=quiet) as callbacks:
        measure(callbacks)
        for callback in callbacks:
            callback.on_notice("the database is locked")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "the database is locked\n")


def test_without_progress_neither_work_nor_a_bar_is_shown(capsys, monkeypatch, every_event, no_progress):
    monkeypatch.setattr(work, "_SILENT_SECONDS", 0.0)
    with show_work("merging databases", quiet=False), progress_bar("x", quiet=False) as count:
        count(1, 2)
        time.sleep(0.02)
    assert capsys.readouterr().err == ""


def test_on_a_terminal_a_quick_command_says_nothing_and_a_long_one_shows_its_work(monkeypatch):
    shown, err = [], io.StringIO()
    err.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(work, "_say", lambda doing, _: shown.append(doing))
    with show_work("reading a", quiet=False):
        pass
    monkeypatch.setattr(work, "_SILENT_SECONDS", 0.0)
    with show_work("reading b", quiet=False):
        time.sleep(0.02)
    assert shown == ["reading b"]
    assert err.getvalue() == ""


def test_off_a_terminal_a_line_tells_every_ten_seconds_how_much_is_done_and_left(capsys):
    now = [100.0]
    writer = display._CountWriter("searches", lambda: now[0])
    for second, done in ((109.9, 1), (110.0, 0), (110.0, 2), (119.9, 4), (130.0, 5)):
        now[0] = second
        writer(done, 8)
    assert capsys.readouterr().err.splitlines() == [
        "2/8 searches (25%), about 30 s left",
        "5/8 searches (62%), about 18 s left",
    ]


@pytest.mark.parametrize("quiet", [False, True])
def test_a_bar_off_a_terminal_writes_lines_or_nothing(quiet, capsys, every_event):
    with display.progress_bar("searches", quiet=quiet) as told:
        told(1, 2)
    assert ("1/2 searches (50%)" in capsys.readouterr().err) is not quiet
