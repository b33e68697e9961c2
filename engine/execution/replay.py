"""An executor that answers from recorded landscapes: no GPU, no compiler, equal answers every time."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from gemmtune.engine.execution.pruning import prune_recorded
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.executor import Executor, Finished
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.statistics import median_interval


class LandscapeIndex:
    """Landscapes by problem, space and device; a landscape that leaves its space or device open serves all of them."""

    def __init__(self, landscapes: Iterable[Landscape]) -> None:
        """Index the landscapes; the first of several for one task counts."""
        self._landscapes: dict[tuple[Workload | None, str | None, str | None], Landscape] = {}
        self.add(landscapes)

    def add(self, landscapes: Iterable[Landscape]) -> None:
        """Index further landscapes; the first of several for one task counts."""
        for landscape in landscapes:
            key = landscape.problem, landscape.context.get("space"), landscape.context.get("device")
            self._landscapes.setdefault(key, landscape)

    def of(self, task: Task) -> Landscape:
        """Return the landscape of a task; raises LandscapeError, which lists what is recorded, if there is none."""
        for space in (task.space, None):
            for sku in (task.device.sku, None):
                if found := self._landscapes.get((task.problem, space, sku)):
                    return found
        recorded = (
            f"{sku or task.device.sku}/{space or task.space}/{landscape.name}"
            for (_, space, sku), landscape in self._landscapes.items()
        )
        raise LandscapeError(f"no recorded landscape of {task.key}; recorded: {', '.join(recorded) or 'none'}")


class ReplayExecutor(Executor):
    """Answers each submitted config with its recorded outcome."""

    evidence: Evidence = Evidence.REPLAYED
    """Evidence of the answers: recorded earlier."""
    parallel: int = 1
    """Number of workers; an answer takes no time."""

    def __init__(self, landscapes: Iterable[Landscape], pruners: Mapping[str, Pruner] | None = None) -> None:
        """Index the landscapes, the first of several per task; pruners see each outcome as if it were new."""
        self.landscapes = LandscapeIndex(landscapes)
        """Landscapes that answer."""
        self._pruners = dict(pruners or {})
        self._history: dict[Task, list[Measurement]] = {}
        self._finished: list[Finished] = []

    def toolchain(self, task: Task) -> Toolchain:
        """Return the recorded toolchain; an empty one where the file names none.

        Raises:
            LandscapeError: no landscape holds the task, or its toolchain is not `package version, ...`.
        """
        landscape = self.landscapes.of(task)
        text = landscape.context.get("toolchain", "")
        try:
            return Toolchain.parse(text)
        except ValueError as error:
            raise LandscapeError(f"{landscape.source}: task.{error}") from None

    def protocol(self, task: Task) -> str:
        """Return the recorded protocol, "" where none is named; raises LandscapeError for a task not recorded."""
        return self.landscapes.of(task).context.get("protocol", "")

    def recorded(self, task: Task, config: Config) -> Measurement:
        """Return a config's recorded outcome, else an invalid one; raises LandscapeError for a task not recorded."""
        landscape = self.landscapes.of(task)
        file = Path(landscape.source).name
        point = landscape.points.get(config)
        samples, estimate = _timing(point) if point else ((), None)
        return Measurement(
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

    def submit(self, task: Task, config: Config) -> None:
        """Look up the config; `collect` returns it; raises LandscapeError if no landscape holds the task."""
        found = self.recorded(task, config)
        if self._pruners:  # nobody else reads the history
            history = self._history.setdefault(task, [])
            found = prune_recorded(found, self._pruners, history)
            history.append(found)
        self._finished.append(found)

    def collect(self, timeout_seconds: float) -> list[Finished]:
        """Return everything submitted since the last call, in its order; never waits."""
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        """Forget what was not collected."""
        self._finished = []


def _timing(point: Point) -> tuple[tuple[float, ...], Estimate | None]:
    """Return the recorded launches, or the time in their place, and the recorded time with the launches' interval."""
    time_ns = point.time_ns
    if time_ns is None:
        return (), None
    samples = point.samples_ns or (time_ns,)
    _, low_ns, high_ns = median_interval(samples)
    # The time may be corrected for drift, or be a mean: the interval is that of the uncorrected launches.
    return samples, Estimate(time_ns, min(low_ns, time_ns), max(high_ns, time_ns))
