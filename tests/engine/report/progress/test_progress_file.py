"""Progress of a campaign in a file, as `gemmtune campaigns` shows it."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from gemmtune.engine.report.progress.progress_file import PROGRESS_FILE, keep_progress, read_progress
from gemmtune.engine.report.progress.state import CampaignState


def numbers(folder):
    found = read_progress(folder)
    return found and (found.done, found.total, found.seconds_left)


@pytest.fixture
def running(tmp_path, monkeypatch):
    """Campaign whose progress is kept in `tmp_path`, with 20 of 100 evaluations done in 10 s, half of them new."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(time, "monotonic", lambda: now.seconds)
    state = CampaignState("ns", time.monotonic)
    with keep_progress(tmp_path, state) as writer:
        state.total, state.new, state.known = 100, 10, 10
        now.seconds = 10.0
        yield state, writer, now


def test_a_campaign_that_ends_removes_its_progress(tmp_path):
    with keep_progress(tmp_path, CampaignState("ns", time.monotonic)) as callback:
        callback.on_load(None, None)
        assert numbers(tmp_path) == (0, 0, None)
        age = datetime.now(UTC) - datetime.fromisoformat(read_progress(tmp_path).at)
        assert timedelta(0) <= age < timedelta(minutes=1)
    assert read_progress(tmp_path) is None


@pytest.mark.parametrize(("limit", "left"), [(None, 80.0), (200.0, 80.0), (30.0, 30.0), (0.0, 0.0), (-3.0, 0.0)])
def test_the_time_left_is_that_of_new_evaluations_and_at_most_the_limits_rest(tmp_path, running, limit, left):
    running[1].on_load(None, limit)
    assert numbers(tmp_path) == (20, 100, left)


def test_the_time_left_is_unknown_before_the_first_new_evaluation(tmp_path, running):
    running[0].new = 0
    running[1].on_load(None, 30.0)
    assert numbers(tmp_path) == (10, 100, None)


def test_the_file_is_written_at_most_once_per_second(tmp_path, running):
    state, writer, now = running
    writer.on_load(None, None)
    for seconds, done in ((10.9, 20), (11.0, 40), (11.9, 40), (12.1, 60)):
        state.known, now.seconds = state.known + 10, seconds
        writer.on_load(None, None)
        assert read_progress(tmp_path).done == done, seconds


def test_a_folder_that_is_gone_stops_no_campaign(tmp_path):
    with keep_progress(tmp_path / "gone", CampaignState("ns", time.monotonic)) as callback:
        callback.on_load(None, 5.0)
    assert not (tmp_path / "gone").exists()


WHOLE = {"done": 0, "total": 2, "seconds_left": None, "at": "2026-11-21T12:00:00+00:00"}


@pytest.mark.parametrize(
    "damage",
    [
        {"done": -1},
        {"total": -1},
        {"done": "1"},
        {"total": 1.5},
        {"seconds_left": -0.1},
        {"seconds_left": "1"},
        {"at": "noon"},
        {"at": 1},
    ],
)
def test_a_damaged_number_is_no_progress(tmp_path, damage):
    (tmp_path / PROGRESS_FILE).write_text(json.dumps(WHOLE | damage))
    assert read_progress(tmp_path) is None
    (tmp_path / PROGRESS_FILE).write_text(json.dumps(WHOLE | {"seconds_left": 0}))
    assert numbers(tmp_path) == (0, 2, 0.0)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", '{"done": 0, "total": 2}', "null"])
def test_a_damaged_file_is_no_progress(tmp_path, text):
    (tmp_path / PROGRESS_FILE).write_text(text)
    assert read_progress(tmp_path) is None
