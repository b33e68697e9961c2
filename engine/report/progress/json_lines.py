"""A campaign's events as JSON lines, for programs that follow it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from gemmtune.engine.execution.load import Load
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.final import Final, Unsettled
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.scheduling.task_search import TaskSearch

__all__ = ["EventFile"]

_LOAD_SECONDS = 1.0  # between two looks at the executor


class EventFile:
    """A Watcher that adds a line an event to a file, written out at once.

    Each line is an object with `event`, `at` (UTC, ISO 8601) and what the methods below say. A campaign that is started
    again goes on in the same file.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or make it.

        Raises:
            UsageError: it cannot be written.
        """
        try:
            self._file = path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise UsageError(f"cannot write events to {path}: {error.strerror}; name another file") from None
        self._looked: datetime | None = None

    def __enter__(self) -> EventFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write("over", reason="done" if kind is None else f"{kind.__name__.lstrip('_')}: {error}")
        self._file.close()

    def began(self, searches: Sequence[TaskSearch]) -> None:
        """`began`: tasks with their evaluations."""
        self._write("began", tasks={search.task.key: search.evaluations for search in searches})

    def measured(self, measurement: Measurement, score: float | None, *, known: bool) -> None:
        """`measured`: one evaluation."""
        self._write(
            "measured",
            task=measurement.task.key,
            config=dict(measurement.config),
            status=measurement.status.value,
            score=score,
            reason=measurement.reason,
            worker=measurement.worker,
            build_seconds=measurement.build_seconds,
            known=known,
        )

    def ended(self, search: TaskSearch, why: str) -> None:
        """`ended`: the search of one task, with its best."""
        best = search.tuner.best
        self._write(
            "ended",
            task=search.task.key,
            why=why,
            evaluations=len(search.tuner.trials),
            score=None if best is None else best.score,
            config=None if best is None else dict(best.config),
        )

    def settled(self, final: Final | Unsettled) -> None:
        """`final`: held, or the reason why not."""
        if isinstance(final, Unsettled):
            self._write("final", problem=final.problem.name, reason=final.reason)
            return
        leader = {"space": final.leader.task.space, "config": dict(final.leader.config)}
        time_ns = final.leader.estimate.time_ns
        self._write(
            "final", problem=final.problem.name, leader=leader, time_ns=time_ns, regret_bound=final.regret_bound
        )

    def noticed(self, notice: str) -> None:
        """`notice`: its text."""
        self._write("notice", text=notice)

    def looked(self, load: Load | None, seconds_left: float | None) -> None:
        """`load`: the executor's queues and workers, once a second."""
        now = datetime.now(UTC)
        if load is None or (self._looked and (now - self._looked).total_seconds() < _LOAD_SECONDS):
            return
        self._looked = now
        self._write(
            "load",
            queued=load.queued,
            building=load.building,
            timing=load.timing,
            workers=dict(load.workers),
            seconds_left=seconds_left,
        )

    def waited(self) -> None:
        """No event."""

    def _write(self, event: str, **facts: object) -> None:
        record = {"event": event, "at": datetime.now(UTC).isoformat(timespec="milliseconds"), **facts}
        self._file.write(json.dumps(record, ensure_ascii=True) + "\n")
