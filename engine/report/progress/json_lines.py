"""A campaign's events as JSON lines, for programs that follow it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TextIO

from gemmtune.engine.io.printing import print_notice
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.final import Final, FinalNotHeld
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.report.layout import json_fields, json_value
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams.executor import Load

_LOAD_SECONDS = 1.0  # between two `load` events


class EventFile(Callback):
    """Adds one JSON object per event to a file, and flushes each line.

    Each object has `event`, `at` (UTC, ISO 8601) and the fields of its method below. A campaign that is started again
    appends to the file.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file; raise a UsageError if it cannot be written."""
        self._path = path
        try:
            self._file: TextIO | None = path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise UsageError(f"cannot write events to {path}: {error.strerror}; name another file") from None
        self._load_at: datetime | None = None

    def __enter__(self) -> EventFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write("over", reason="done" if kind is None else f"{kind.__name__.lstrip('_')}: {error}")
        if self._file is not None:
            self._file.close()

    def on_begin(self, searches: Sequence[TaskSearch]) -> None:
        """Write `began`: evaluations per task."""
        self._write("began", tasks={search.task.key: search.budget for search in searches})

    def on_measurement(self, measurement: Measurement, score: float | None, *, known: bool) -> None:
        """Write `measured`: one evaluation."""
        self._write(
            "measured",
            task=measurement.task.key,
            **json_fields(measurement, "config", "status"),
            score=score,
            **json_fields(measurement, "reason", "worker", "build_seconds"),
            known=known,
        )

    def on_search_end(self, search: TaskSearch, reason: str) -> None:
        """Write `ended`: the search of one task, with its best config."""
        best = search.best
        self._write(
            "ended",
            task=search.task.key,
            why=reason,
            evaluations=len(search.trials),
            score=None if best is None else best.score,
            config=None if best is None else best.config,
        )

    def on_final(self, final: Final | FinalNotHeld) -> None:
        """Write `final`: its leader, or the reason why it was not held."""
        if isinstance(final, FinalNotHeld):
            self._write("final", problem=final.problem.name, reason=final.reason)
            return
        leader = {"space": final.leader.task.space, "config": final.leader.config}
        time_ns = final.leader.estimate.time_ns
        self._write("final", problem=final.problem, leader=leader, time_ns=time_ns, regret_bound=final.regret_bound)

    def on_notice(self, line: str) -> None:
        """Write `notice`: its text."""
        self._write("notice", text=line)

    def on_load(self, load: Load | None, seconds_left: float | None) -> None:
        """Write `load`: the executor's queues and workers, at most once per second."""
        now = datetime.now(UTC)
        if load is None or (self._load_at and (now - self._load_at).total_seconds() < _LOAD_SECONDS):
            return
        self._load_at = now
        fields = json_fields(load, "queued", "building", "timing", "workers")
        self._write("load", **fields, seconds_left=seconds_left)

    def _write(self, event: str, **facts: object) -> None:
        record = {"event": event, "at": datetime.now(UTC).isoformat(timespec="milliseconds"), **facts}
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(json_value(record)) + "\n")
        except OSError as error:  # a full disk must not end the campaign
            print_notice(f"events are no longer written to {self._path}: {error.strerror}; the campaign goes on")
            with suppress(OSError):
                self._file.close()
            self._file = None
