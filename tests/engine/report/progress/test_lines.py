"""What a campaign says while it runs."""

from __future__ import annotations

import re

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final, Finalist, Unsettled
from gemmtune.engine.records.measurement import Estimate
from gemmtune.engine.report.progress import lines as progress
from gemmtune.engine.testing.objective_conformance import example_measurement

MEASURED = example_measurement()
PROBLEM = MEASURED.task.problem


def finalist(x, behind):
    estimate = Estimate(9e4, 8.9e4, 9.1e4)
    return Finalist(MEASURED.task, Config({"x": x}), MEASURED.toolchain, estimate, MEASURED.samples_ns, behind)


FINAL = Final((finalist(1, (0.0, 0.0)), finalist(2, (-0.0012, 0.004)), finalist(3, (0.01, 0.02))), "p", "w", "t")


@pytest.fixture
def talkative(monkeypatch):
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("unit", "score", "said"), [("ns", 90_400.0, f"{PROBLEM.name} 90.4 µs"), ("J", 0.0544, f"{PROBLEM.name} 54.40 mJ")]
)
def test_the_best_is_told_in_the_objectives_unit(unit, score, said, capsys, talkative):
    with progress.watching(quiet=False, unit=unit) as watcher:
        watcher.began([])
        watcher.measured(MEASURED, score, known=False)
        assert capsys.readouterr().err.endswith(f"; {said}\n")


def test_a_final_is_told_with_its_tie_band_and_regret_bound(capsys, talkative):
    with progress.watching(quiet=False) as watcher:
        watcher.settled(FINAL)
        said = f"final of {PROBLEM.name}: tie band of 2 configs, regret at most 0.12%\n"
        assert capsys.readouterr().err.endswith(said)


def test_what_a_person_should_know_is_told_at_once(capsys):
    with progress.watching(quiet=False) as watcher:
        watcher.noticed("GPU 0 is given up after 3 failures")
        watcher.settled(Unsettled(PROBLEM, "no finalist passed its check"))
    assert capsys.readouterr().err.splitlines() == [
        "GPU 0 is given up after 3 failures",
        f"no final of {PROBLEM.name}: no finalist passed its check",
    ]


def test_a_campaign_that_is_broken_off_is_summed_up(capsys):
    def broken_off():
        with progress.watching(quiet=False) as watcher:
            watcher.began([])
            watcher.measured(MEASURED, 9e4, known=False)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert re.fullmatch(r"1 evaluation in 0 s; \S+/s; 0 of 0 tasks done\n", capsys.readouterr().err)


def test_a_short_campaign_that_comes_to_its_end_needs_no_summary(capsys):
    with progress.watching(quiet=False) as watcher:
        watcher.began([])
        watcher.measured(MEASURED, 9e4, known=False)
    assert capsys.readouterr().err == ""


def test_others_hear_all_of_it(capsys):
    heard = []

    class Other:
        def __getattr__(self, name):
            return lambda *arguments, **named: heard.append(name)

    with progress.watching(quiet=True, others=[Other()]) as watcher:
        watcher.began([])
        watcher.measured(MEASURED, 9e4, known=False)
        watcher.settled(FINAL)
        watcher.noticed("GPU 0 is given up")
        watcher.looked(None, None)
        watcher.waited()
    assert heard == ["began", "measured", "settled", "noticed", "looked", "waited"]


def test_a_quiet_watcher_says_nothing(capsys, talkative):
    with progress.watching(quiet=True) as watcher:
        watcher.began([])
        watcher.measured(MEASURED, 9e4, known=False)
        watcher.settled(FINAL)
        watcher.noticed("GPU 0 is given up")
        watcher.waited()
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
