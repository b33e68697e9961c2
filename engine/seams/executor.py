"""The contract of an executor, which turns submitted configs into measurements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.final import Final, FinalNotHeld
from gemmtune.engine.records.measurement import Evidence, Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import BoardVerdict

FINALISTS = 8
"""Number of configs of one problem's searched spaces that meet in its final, besides the baseline."""


@dataclass(frozen=True, slots=True)
class Load:
    """Numbers of configs that an executor has at one moment, and its workers."""

    queued: int
    """Configs that wait for a builder."""
    building: int
    """Configs that are being built, or that a builder takes next."""
    timing: int
    """Configs that are built, and are being timed or wait for it."""
    workers: Mapping[str, bool]
    """Worker's name to whether it has a config to time; lost workers are left out."""


Finished = Measurement | Final | FinalNotHeld | BoardVerdict
"""Result that an executor returns: one per submitted config or enqueued final, and what it finds out about boards."""


class Executor(Protocol):
    """Builders and workers, or a stand-in for them; a failing config comes back as a measurement too."""

    evidence: Evidence
    """Evidence of the numbers: measured, replayed or estimated."""
    parallel: int
    """Number of workers that time side by side; each needs tasks of its own to stay busy."""

    def toolchain(self, task: Task) -> Toolchain:
        """Return the toolchain that measurements of the task will name."""

    def protocol(self, task: Task) -> str:
        """Return the timing protocol that measurements of the task will name."""

    def submit(self, task: Task, config: Config) -> None:
        """Enqueue one evaluation and return at once."""

    @property
    def holds_finals(self) -> bool:
        """Whether the executor can hold finals."""
        return False

    def hold_final(self, candidates: Sequence[tuple[Task, Config]]) -> None:
        """Enqueue a final between configs of one problem that were measured ok.

        Raises:
            ContractError: the executor holds no finals.
        """
        raise ContractError(f"{type(self).__qualname__} was asked for a final: holds_finals=False")

    def collect(self, timeout_seconds: float) -> list[Finished]:
        """Return what has finished since the last call, in any order; wait up to the timeout for the first result.

        Return an empty list after the timeout, or when nothing is enqueued.
        """

    def compare_with(self, stored: Sequence[Measurement]) -> None:
        """Take earlier measurements by which boards are checked; called before the first config is submitted."""
        return

    def check_boards(self) -> bool:
        """Start the checks of boards that are due before the results count; return whether any is under way."""
        return False

    def load(self) -> Load | None:
        """Return the work at hand; None from an executor that times nothing."""
        return None

    def close(self) -> None:
        """End every process. Results that were not collected are lost."""
