"""The base class of everything that follows a running campaign."""

from collections.abc import Iterable, Sequence

from gemmtune.engine.records.final import Final, FinalNotHeld
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams.executor import Load


class Callback:
    """Follows a running campaign; override the methods of the events that matter.

    The campaign calls every method from its own thread, and an exception ends the campaign: return quickly, raise
    nothing.

    Example:
        >>> import gemmtune as gt
        >>> class Count(gt.Callback):
        ...     measured = 0
        ...     def on_measurement(self, measurement, score, *, known):
        ...         self.measured += 1
        >>> count = Count()
        >>> result = gt.tune("16x4096x4096:bf16:nt", backend=gt.landscapes("h200"), budget=8, callbacks=[count])
        >>> count.measured  # the baseline, too
        9
    """

    def on_begin(self, searches: Sequence[TaskSearch]) -> None:
        """Take note that the campaign starts these searches; a campaign with ranges starts several rounds."""

    def on_measurement(self, measurement: Measurement, score: float | None, *, known: bool) -> None:
        """Take note of one evaluation.

        Args:
            measurement: the stored result of one config.
            score: the objective's value, lower is better; None for a failed config.
            known: whether the database already held the measurement.
        """

    def on_search_end(self, search: TaskSearch, reason: str) -> None:
        """Take note that the search of one task ended, and why."""

    def on_final(self, final: Final | FinalNotHeld) -> None:
        """Take note that the final of one problem was held, or could not be."""

    def on_save(self) -> None:
        """Take note that searches and finals are over, and that the table and its report are written next."""

    def on_notice(self, line: str) -> None:
        """Take note of one line that a person should read, such as a lost GPU."""

    def on_load(self, load: Load | None, seconds_left: float | None) -> None:
        """Take note of the executor's load; called at least twice per second, also while nothing finishes.

        Args:
            load: queued, building and timed configs, and the workers; None if the executor does not report it.
            seconds_left: time until searching ends, s; None without a time limit.
        """


def notify(callbacks: Iterable[Callback], line: str) -> None:
    """Pass one line for a person to every callback."""
    for callback in callbacks:
        callback.on_notice(line)
