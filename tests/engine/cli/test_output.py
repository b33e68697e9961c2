"""What a terminal gets: colours of verdicts, a picture in place, and the loop of `status --watch`."""

from __future__ import annotations

import io
import json
import os
import signal
import time

import pytest

from gemmtune.engine.cli import output, stopping
from gemmtune.engine.records.errors import Stopped
from gemmtune.engine.report.layout import Report


@pytest.mark.parametrize(
    ("text", "painted"),
    [
        ("ok      A", "\x1b[32mok\x1b[0m      A"),
        ("a  no  b", "a  \x1b[31mno\x1b[0m  b"),
        ("a  wins\nfault: b", "a  \x1b[32mwins\x1b[0m\n\x1b[31mfault\x1b[0m: b"),
        ("advice, b", "\x1b[33madvice\x1b[0m, b"),
        ("3 build_failed", "3 \x1b[31mbuild_failed\x1b[0m"),
        ("no difference", "no difference"),
        ("looks ok here", "looks ok here"),
        ("unfault: b", "unfault: b"),
    ],
)
def test_words_of_a_verdict_are_coloured_where_they_stand_alone(text, painted):
    assert output.paint(text) == painted


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Print reports to a terminal of 40 columns, and return what it got."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def printed(show, *arguments, **options):
        found = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", found)
            show(*arguments, **options)
        return found.getvalue()

    return printed


@pytest.mark.parametrize(
    ("name", "value", "coloured"),
    [("TERM", "xterm", True), ("TERM", "dumb", False), ("NO_COLOR", "1", False), ("NO_COLOR", "", True)],
)
def test_a_terminal_has_colours_unless_somebody_switched_them_off(terminal, monkeypatch, name, value, coloured):
    monkeypatch.setenv(name, value)
    found = terminal(output.show, Report({}, ["ok"]), as_json=False)
    assert found == ("\x1b[32mok\x1b[0m\n" if coloured else "ok\n")


def test_a_report_over_another_clears_the_terminal_and_fits_it(terminal):
    found = terminal(output.show_over, Report({}, ["text " * 10]))
    assert found.startswith("\x1b[H\x1b[J")
    assert [len(line) for line in found.removeprefix("\x1b[H\x1b[J").splitlines()] == [39, 9]


def test_a_pipe_gets_a_report_below_the_last_one(capsys):
    output.show_over(Report({}, ["text " * 10]))
    assert capsys.readouterr().out == f"{'text ' * 10}\n"
    output.show(Report({"a": 1}, ["text"]), as_json=True)
    assert json.loads(capsys.readouterr().out) == {"a": 1}


def test_a_first_signal_stops_a_command_and_further_ones_are_ignored_for_a_second(default_signals, monkeypatch):
    now, stops = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def stop_at(at, number):
        now[0] = at
        try:
            os.kill(os.getpid(), number)
            time.sleep(0)
        except Stopped as stopped:
            stops.append((at, stopped.signal))

    with stopping.stoppable():
        for at in (100.0, 100.9, 101.0):
            stop_at(at, signal.SIGTERM)
        stop_at(110.0, signal.SIGHUP)
    assert stops == [(100.0, signal.SIGTERM), (101.0, signal.SIGTERM), (110.0, signal.SIGHUP)]


def test_no_signal_ends_a_command_that_a_signal_ended(default_signals):
    with pytest.raises(Stopped), stopping.stoppable():
        raise Stopped(signal.SIGINT)
    assert {signal.getsignal(number) for number in stopping.SIGNALS} == {signal.SIG_IGN}


def test_a_signal_that_was_ignored_stays_so_and_handlers_come_back(default_signals):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before = [signal.getsignal(number) for number in stopping.SIGNALS]
    with stopping.stoppable():
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(number) for number in stopping.SIGNALS] == before
