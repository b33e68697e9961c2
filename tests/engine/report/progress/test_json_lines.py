"""The file of events tells a program what a person sees."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime

import pytest

from gemmtune.engine.execution.load import Load
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import StoreError, UsageError
from gemmtune.engine.records.final import Final, Finalist, Unsettled
from gemmtune.engine.records.measurement import Estimate, Status
from gemmtune.engine.report.progress.json_lines import EventFile
from gemmtune.engine.testing.objective_conformance import example_measurement

MEASURED = example_measurement()
TASK = MEASURED.task
LEADER = Finalist(TASK, Config({"x": 1}), MEASURED.toolchain, Estimate(9e4, 8.9e4, 9.1e4), (9e4,), (0.0, 0.0))


@dataclass
class Search:
    """Of a TaskSearch, what an event tells."""

    task: object
    evaluations: int
    tuner: object = None


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def told(path, tell):
    with EventFile(path) as events:
        tell(events)
        (event,) = read(path)  # written out at once, not when the file is closed
    assert datetime.fromisoformat(event.pop("at")).tzinfo is not None
    return event


def test_each_event_is_an_object(tmp_path):
    path = tmp_path / "events.jsonl"
    failed = replace(MEASURED, status=Status.RUN_FAILED, reason="crashed ≠", config=Config({"x": 1}), build_seconds=0.5)
    assert told(path, lambda events: events.measured(failed, None, known=False)) == {
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
    assert told(path, lambda events: events.began([Search(TASK, 64)])) == began
    path.unlink()
    assert told(path, lambda events: events.noticed("GPU 0 is lost")) == {"event": "notice", "text": "GPU 0 is lost"}
    path.unlink()
    assert told(path, lambda events: events.settled(Final((LEADER,), "p", "w", "t"))) == {
        "event": "final",
        "problem": TASK.problem.name,
        "leader": {"space": TASK.space, "config": {"x": 1}},
        "time_ns": 9e4,
        "regret_bound": 0.0,
    }
    path.unlink()
    unsettled = Unsettled(TASK.problem, "nothing passed")
    assert told(path, lambda events: events.settled(unsettled))["reason"] == "nothing passed"


def test_the_fleet_is_told_of_once_a_second(tmp_path):
    path = tmp_path / "events.jsonl"

    def look(events):
        for _ in range(5):
            events.looked(Load(1, 2, 3, {"gpu0": True}), 60.0)
            events.looked(None, None)
            events.waited()

    assert told(path, look) == {
        "event": "load",
        "queued": 1,
        "building": 2,
        "timing": 3,
        "workers": {"gpu0": True},
        "seconds_left": 60.0,
    }


def test_the_last_event_says_how_it_ended_and_a_second_run_goes_on_in_the_file(tmp_path):
    path = tmp_path / "events.jsonl"
    with EventFile(path):
        pass
    with pytest.raises(StoreError), EventFile(path):
        raise StoreError("the server is away")
    assert [(event["event"], event["reason"]) for event in read(path)] == [
        ("over", "done"),
        ("over", "StoreError: the server is away"),
    ]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(
        UsageError, match=r"cannot write events to .*nowhere.*: No such file or directory; name another"
    ):
        EventFile(tmp_path / "nowhere" / "events.jsonl")
