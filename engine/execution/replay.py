"""An executor that answers from recorded landscapes: no GPU, no compiler, the same answers every time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gemmtune.engine.execution.pruning import replayed
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ContractError, LandscapeError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.executor import Finished
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.seams.space import Space
from gemmtune.engine.statistics import median_interval

__all__ = ["ReplayExecutor", "landscape_of", "recorded_feasible"]


class ReplayExecutor:
    """Answers each submitted config with its recorded outcome."""

    evidence: Evidence = Evidence.REPLAYED
    """Looked up, not timed."""
    settles: bool = False
    """What was recorded cannot be timed again."""
    parallel: int = 1
    """An answer takes no time."""

    def __init__(self, landscapes: Iterable[Landscape], pruners: Mapping[str, Pruner] | None = None) -> None:
        """Answer from these, where two hold one task from the first; pruners are asked as if it was measured now."""
        self._landscapes = tuple(landscapes)
        self._pruners = dict(pruners or {})
        self._history: dict[Task, list[Measurement]] = {}
        self._of_task: dict[Task, Landscape] = {}
        self._finished: list[Finished] = []

    def toolchain(self, task: Task) -> Toolchain:
        """The recorded toolchain; none where the file does not say.

        Raises:
            LandscapeError: no landscape holds the task, or its toolchain is not `package version, ...`.
        """
        landscape = self._landscape(task)
        text = landscape.context.get("toolchain", "")
        try:
            return Toolchain.parse(text)
        except IndexError:
            raise LandscapeError(f"{landscape.source}: task.toolchain {text!r} is not 'package version, ...'") from None

    def protocol(self, task: Task) -> str:
        """The recorded protocol; empty where the file does not say.

        Raises:
            LandscapeError: no landscape holds the task.
        """
        return self._landscape(task).context.get("protocol", "")

    def optimum_ns(self, task: Task) -> float:
        """The best recorded time of the task.

        Raises:
            LandscapeError: no landscape holds the task.
            ValueError: nothing recorded of it is ok.
        """
        return self._landscape(task).optimum_ns

    def submit(self, task: Task, config: Config) -> None:
        """Look the config up; `collect` returns it.

        Raises:
            LandscapeError: no landscape holds the task.
        """
        landscape = self._landscape(task)
        file = Path(landscape.source).name
        point = landscape.points.get(config)
        samples, estimate = _timing(point) if point else ((), None)
        self._finish(
            Measurement(
                task=task,
                config=config,
                status=point.status if point else Status.INVALID,
                evidence=self.evidence,
                protocol=self.protocol(task),
                toolchain=self.toolchain(task),
                worker=f"replay:{file}",
                created_at=landscape.context.get("date", ""),
                reason=point.reason if point else f"not in the recorded landscape {file}",
                samples_ns=samples,
                estimate=estimate,
                resources=point.resources if point else None,
                build_seconds=point.build_seconds if point else None,
            )
        )

    def settle(self, candidates: Sequence[tuple[Task, Config]]) -> None:
        """Refuse.

        Raises:
            ContractError: always, for `settles` is False.
        """
        raise ContractError(
            f"{type(self).__qualname__} was asked for a final of {len(candidates)} configs: settles=False"
        )

    def collect(self, timeout_seconds: float) -> list[Finished]:
        """Everything submitted since the last call, in its order; never waits."""
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        """Forget what was not collected."""
        self._finished = []

    def _finish(self, found: Measurement) -> None:
        if self._pruners:  # as in an executor that measures, nobody else reads the history
            history = self._history.setdefault(found.task, [])
            found = replayed(found, self._pruners, history)
            history.append(found)
        self._finished.append(found)

    def _landscape(self, task: Task) -> Landscape:
        if task not in self._of_task:
            self._of_task[task] = landscape_of(task, self._landscapes)
        return self._of_task[task]


def _timing(point: Point) -> tuple[tuple[float, ...], Estimate | None]:
    """The recorded launches, or the time in their place, and the estimate: the recorded time with their interval."""
    time_ns = point.time_ns
    if time_ns is None:
        return (), None
    samples = point.samples_ns or (time_ns,)
    _, low_ns, high_ns = median_interval(samples)
    # The time may have been corrected for drift, or be a mean: the interval is that of the launches as they were.
    return samples, Estimate(time_ns, min(low_ns, time_ns), max(high_ns, time_ns))


def landscape_of(task: Task, landscapes: Iterable[Landscape]) -> Landscape:
    """The first landscape of the task's problem, and of its space and device where the file names them.

    Raises:
        LandscapeError: there is none; the message lists what is recorded.
    """
    recorded = []
    for landscape in landscapes:
        space = landscape.context.get("space", task.space)
        sku = landscape.context.get("device", task.device.sku)
        if (landscape.problem, space, sku) == (task.problem, task.space, task.device.sku):
            return landscape
        recorded.append(f"{sku}/{space}/{landscape.name}")
    raise LandscapeError(f"no recorded landscape of {task.key}; recorded: {', '.join(recorded) or 'none'}")


def recorded_feasible(space: Space, task: Task, landscape: Landscape) -> tuple[Config, ...]:
    """The recorded configs that pass the space's check and were not invalid when recorded, in file order."""
    return tuple(
        config
        for config, point in landscape.points.items()
        if point.status is not Status.INVALID and space.check(task, config)
    )
