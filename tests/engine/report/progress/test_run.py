"""The record of a run: at most 512 samples of the load, and a file that is read back or not at all."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.run import LoadSample, Run, RunRecorder, has_run, read_run, write_run
from gemmtune.engine.report.progress.state import CampaignState
from gemmtune.engine.seams.executor import Load

RUN = Run("gemmtune tune", "2026-11-26T10:00:00+00:00", 12.5, 7, 3, 1, {"p": 10.5}, (LoadSample(0.5, 1, 2, 3, 1, 2),))


def load(busy=True, queued=4):
    return Load(queued, 5, 6, {"gpu0": busy, "gpu1": False})


@pytest.fixture
def recorder():
    now = [100.0]
    at = datetime(2026, 11, 26, 12, 0, 0, 123, tzinfo=timezone(timedelta(hours=2)))
    found = RunRecorder(CampaignState("ns", lambda: now[0]), lambda: at)
    return found, now


def test_a_run_has_its_start_in_utc_its_load_and_its_seconds(recorder):
    found, now = recorder
    now[0] = 101.256
    found.on_load(load(), None)
    found.on_load(None, None)
    now[0] = 103.26
    run = found.run("again", {"p": 5.0})
    assert run.load == (LoadSample(1.26, 4, 5, 6, 1, 2),)
    assert (run.command, run.started_at, run.seconds) == ("again", "2026-11-26T10:00:00+00:00", 3.3)
    assert (run.evaluations, run.known, run.finals, run.optima) == (0, 0, 0, {"p": 5.0})


def test_a_long_run_keeps_every_second_sample_and_takes_fewer_from_then_on(recorder):
    found, now = recorder
    for second in range(512):
        now[0] = 100.0 + second
        found.on_load(load(), None)
    assert len(found.run("", {}).load) == 512
    now[0] = 612.0
    found.on_load(load(), None)
    kept = found.run("", {}).load
    assert [each.seconds for each in kept] == [2.0 * place for place in range(257)]
    for later, taken in ((613.0, 257), (613.9, 257), (614.0, 258)):
        now[0] = later
        found.on_load(load(), None)
        assert len(found.run("", {}).load) == taken


def test_a_record_is_read_back(tmp_path):
    assert write_run(tmp_path, RUN) == tmp_path / "run.json"
    assert read_run(tmp_path) == RUN
    assert read_run(tmp_path / "none") is None


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"seconds": 1e308},
            {"evaluations": -1},
            {"known": 1.5},
            {"finals": "1"},
            {"seconds": -0.1},
            {"optima": {"p": 0}},
        ),
        *({"optima": {"p": "fast"}}, {"load": [{"seconds": 0}]}, {"load": 5}, {"optima": 5}),
        {"load": [{"seconds": 0.0, "queued": -1, "building": 0, "timing": 0, "busy": 0, "workers": 0}]},
    ],
)
def test_a_damaged_record_is_refused_by_its_path(tmp_path, change):
    path = write_run(tmp_path, RUN)
    assert has_run(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(
        UsageError, match=rf"^the record of the run in {path} is damaged: {next(iter(change))}.*; remove it$"
    ):
        read_run(tmp_path)
    assert not has_run(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "5", '{"command": "a"'])
def test_a_file_that_is_no_record_is_refused(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UsageError, match="is damaged"):
        read_run(tmp_path)


def test_zeros_are_a_record(tmp_path):
    empty = Run("", datetime.now(UTC).isoformat(), 0.0, 0, 0, 0, {}, (LoadSample(0.0, 0, 0, 0, 0, 0),))
    write_run(tmp_path, empty)
    assert read_run(tmp_path) == empty
