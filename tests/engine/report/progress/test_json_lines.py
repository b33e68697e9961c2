"""Tests of the event file."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import jsonschema
import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import StoreError, UsageError
from gemmtune.engine.records.final import Final, Finalist, FinalNotHeld
from gemmtune.engine.records.measurement import Estimate, Status
from gemmtune.engine.report.progress.json_lines import EventFile
from gemmtune.engine.seams.executor import Load
from gemmtune.engine.testing.objective_conformance import example_measurement

DOCS = Path(__file__).parents[4] / "docs"
SCHEMA = jsonschema.Draft202012Validator(json.loads((DOCS / "schemas/events.schema.json").read_text(encoding="utf-8")))
MEASURED = example_measurement()
TASK = MEASURED.task
LEADER = Finalist(TASK, Config({"x": 1}), MEASURED.toolchain, Estimate(9e4, 8.9e4, 9.1e4), (9e4,), (0.0, 0.0))


@dataclass
class Search:
    """Stands in for a TaskSearch."""

    task: object
    budget: int
    tuner: object = None


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(path, write):
    with EventFile(path) as events:
        write(events)
        (event,) = read(path)  # written out at once, not when the file is closed
    SCHEMA.validate(event)
    assert datetime.fromisoformat(event.pop("at")).tzinfo is not None
    return event


def test_each_event_is_an_object(tmp_path):
    path = tmp_path / "events.jsonl"
    failed = replace(MEASURED, status=Status.RUN_FAILED, reason="crashed ≠", config=Config({"x": 1}), build_seconds=0.5)
    assert written(path, lambda events: events.on_measurement(failed, None, known=False)) == {
        "event": "measured",
        "task": TASK.key,
        "config": {"x": 1},
        "status": "run_failed",
        "score": None,
        "reason": "crashed ≠",
        "worker": MEASURED.worker,
        "build_seconds": 0.5,
        "known": False,
    }
    path.unlink()
    began = {"event": "began", "tasks": {TASK.key: 64}}
    assert written(path, lambda events: events.on_begin([Search(TASK, 64)])) == began
    path.unlink()
    assert written(path, lambda events: events.on_notice("GPU 0 is lost")) == {
        "event": "notice",
        "text": "GPU 0 is lost",
    }
    path.unlink()
    assert written(path, lambda events: events.on_final(Final((LEADER,), "p", "w", "t"))) == {
        "event": "final",
        "problem": TASK.problem.name,
        "leader": {"space": TASK.space, "config": {"x": 1}},
        "time_ns": 9e4,
        "regret_bound": 0.0,
    }
    path.unlink()
    unsettled = FinalNotHeld(TASK.problem, "nothing passed")
    assert written(path, lambda events: events.on_final(unsettled))["reason"] == "nothing passed"


def test_the_load_is_written_once_per_second(tmp_path):
    path = tmp_path / "events.jsonl"

    def report_load(events):
        for _ in range(5):
            events.on_load(Load(1, 2, 3, {"gpu0": True}), 60.0)
            events.on_load(None, None)

    assert written(path, report_load) == {
        "event": "load",
        "queued": 1,
        "building": 2,
        "timing": 3,
        "workers": {"gpu0": True},
        "seconds_left": 60.0,
    }


def test_last_event_has_the_end_and_a_second_run_appends(tmp_path):
    path = tmp_path / "events.jsonl"
    with EventFile(path):
        pass
    with pytest.raises(StoreError), EventFile(path):
        raise StoreError("the server is away")
    assert [(event["event"], event["reason"]) for event in read(path)] == [
        ("over", "done"),
        ("over", "StoreError: the server is away"),
    ]


def test_event_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(
        UsageError, match=r"cannot write events to .*nowhere.*: No such file or directory; name another"
    ):
        EventFile(tmp_path / "nowhere" / "events.jsonl")
