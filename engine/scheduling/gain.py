"""Gain of a campaign so far, and how fast it grows."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams.executor import Load

_LEAST_SECONDS = 60.0  # of the window
_SHARE = 4  # the window is this part of the time so far
_MOST_SAMPLES = 256  # of the time so far


@dataclass(slots=True)
class _Scores:
    best: float = math.inf
    baseline: float = math.inf

    @property
    def counted(self) -> tuple[float, float]:
        """Baseline's score, and what the best config saves of it; zeros until both are measured."""
        is_whole = math.isfinite(self.baseline + self.best)
        return (self.baseline, max(0.0, self.baseline - self.best)) if is_whole else (0.0, 0.0)


class Gain(Callback):
    """Share of the baselines' weighted score that the best configs save.

    It is of the plan's problems whose baseline and a config are measured. Its growth is looked at over a window: the
    last quarter of the time since `start`, at least a minute.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        """Start; `now` returns the seconds of a monotonic clock."""
        self._now = now
        self._scores: dict[Workload, _Scores] = {}
        self.problems = 0
        """Number of problems that the gain is of."""
        self._before = self._saved = 0.0  # weighted sums of the baselines' scores, and of what the best ones save
        self.start()

    def start(self) -> None:
        """Begin the time that the window is a part of."""
        self._started = self._now()
        self._samples: deque[tuple[float, float]] = deque([(self._started, self._saved)])

    def on_begin(self, searches: Sequence[TaskSearch]) -> None:
        """Expect the problems of the first searches, anew where they begin again; those of ranges count for nothing."""
        scores = {search.task.problem: _Scores() for search in searches}
        if not self._scores or scores.keys() == self._scores.keys():
            self._scores, self.problems, self._before, self._saved = scores, 0, 0.0, 0.0
            self.start()

    def on_measurement(self, measurement: Measurement, score: float | None, *, known: bool) -> None:
        """Update the scores of the measured problem."""
        problem = measurement.task.problem
        found = self._scores.get(problem)
        if found is None or score is None:
            return
        before, saved = found.counted
        if measurement.task.is_baseline:
            found.baseline = min(found.baseline, score)
        else:
            found.best = min(found.best, score)
        baseline, saves = found.counted
        self.problems += not before and bool(baseline)
        self._before += problem.weight * (baseline - before)
        self._saved += problem.weight * (saves - saved)

    def on_load(self, load: Load | None, seconds_left: float | None) -> None:
        """Keep a sample for the window, at most _MOST_SAMPLES over the time so far."""
        now = self._now()
        if now - self._samples[-1][0] >= max(1.0, (now - self._started) / _MOST_SAMPLES):
            self._samples.append((now, self._saved))
        begin = now - max(_LEAST_SECONDS, (self._now() - self._started) / _SHARE)
        while len(self._samples) > 1 and self._samples[1][0] <= begin:
            self._samples.popleft()

    @property
    def value(self) -> float:
        """Gain so far; 0 before the first problem counts."""
        return self._saved / self._before if self._before > 0 else 0.0

    @property
    def per_hour(self) -> float | None:
        """Gain per hour over the window; None before a minute has passed."""
        now = self._now()
        if now - self._started < _LEAST_SECONDS:
            return None
        at, before = self._samples[0]
        grown = (self._saved - before) / self._before if self._before > 0 else 0.0
        return grown / max(now - at, 1e-3) * 3600
