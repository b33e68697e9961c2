"""Record of one run of a campaign: its command, its duration, and the load of builders and GPUs over time."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from gemmtune.engine.io.reading import parse_json, read_text
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.price import Price
from gemmtune.engine.report.progress.state import CampaignState
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.seams.codec import Malformed, decoded, encoded
from gemmtune.engine.seams.executor import Load
from gemmtune.engine.store.files import write_whole

RUN_FILE = "run.json"
"""Name of the file in a campaign's folder that keeps the record of its run."""

_NOT_NEGATIVE = {"least": 0}
_SECONDS = {"least": 0, "most": 1e9}  # 30 years
_MOST_SAMPLES = 512  # more would not show in a picture


@dataclass(frozen=True, slots=True)
class LoadSample:
    """Load of a campaign's executor at one moment."""

    seconds: float = field(metadata=_SECONDS)
    """Seconds since the campaign began."""
    queued: int = field(metadata=_NOT_NEGATIVE)
    """Configs that wait for a builder."""
    building: int = field(metadata=_NOT_NEGATIVE)
    """Configs that are being built."""
    timing: int = field(metadata=_NOT_NEGATIVE)
    """Configs that are built, and are being timed or wait for it."""
    busy: int = field(metadata=_NOT_NEGATIVE)
    """GPUs that have a config to time."""
    workers: int = field(metadata=_NOT_NEGATIVE)
    """GPUs that are not lost."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a campaign that evaluated something."""

    command: str
    """Command or call that repeats the campaign."""
    started_at: str
    """UTC time of the start, ISO 8601 with seconds."""
    seconds: float = field(metadata=_SECONDS)
    """Wall time of searches and finals, in seconds."""
    evaluations: int = field(metadata=_NOT_NEGATIVE)
    """Evaluations made in this run, failures included; those that the database answered are left out."""
    known: int = field(metadata=_NOT_NEGATIVE)
    """Evaluations that the database answered."""
    finals: int = field(metadata=_NOT_NEGATIVE)
    """Finals that were held."""
    optima: Mapping[str, float] = field(default_factory=dict, metadata={"above": 0})
    """Best score there is by the problem's name, where recorded landscapes know it."""
    load: tuple[LoadSample, ...] = ()
    """Load over time; empty where the executor reports none."""
    gpu_seconds_held: float = field(default=0.0, metadata=_NOT_NEGATIVE)
    """Seconds of GPUs that the run had, busy or not."""
    gpu_seconds_busy: float = field(default=0.0, metadata=_NOT_NEGATIVE)
    """Seconds of GPUs that had a config to time."""
    core_seconds: float = field(default=0.0, metadata=_NOT_NEGATIVE)
    """Seconds of cores that built kernels."""
    cost: float | None = field(default=None, metadata=_NOT_NEGATIVE)
    """Cost by the price that was named; None without one, or where a replay took no machine."""


class RunRecorder(Callback):
    """Samples the load of a run, and records the run."""

    def __init__(self, state: CampaignState, now: Callable[[], datetime]) -> None:
        """Record the run that this state follows; `now` is the wall clock."""
        self._state = state
        self._started_at = now().astimezone(UTC).isoformat(timespec="seconds")
        self._samples: list[LoadSample] = []
        self._every = 0.0

    def on_load(self, load: Load | None, seconds_left: float | None) -> None:
        """Keep a sample of the load, at most _MOST_SAMPLES over the run."""
        seconds = self._state.seconds
        if load is None or (self._samples and seconds - self._samples[-1].seconds < self._every):
            return
        busy = sum(load.workers.values())
        self._samples.append(
            LoadSample(round(seconds, 2), load.queued, load.building, load.timing, busy, len(load.workers))
        )
        if len(self._samples) > _MOST_SAMPLES:
            self._samples = self._samples[::2]
            self._every = 2 * seconds / _MOST_SAMPLES

    def run(self, command: str, optima: Mapping[str, float], price: Price | None = None) -> Run:
        """Return the record of the run so far, with its cost if there is a price."""
        state, load = self._state, tuple(self._samples)
        counts = state.new, state.known, state.finals
        return Run(
            command,
            self._started_at,
            round(state.seconds, 1),
            *counts,
            optima,
            load,
            gpu_seconds_held=round(state.gpu_seconds_held, 1),
            gpu_seconds_busy=round(state.gpu_seconds_busy, 1),
            core_seconds=round(state.core_seconds, 1),
            cost=None if price is None or (cost := price.of(state)) is None else round(cost, 4),
        )


def write_run(folder: Path, run: Run) -> Path:
    """Write the record into a campaign's folder and return the file; raises UsageError if that cannot be done."""
    path = folder / RUN_FILE
    write_whole(path, (json.dumps(encoded(run), separators=(",", ":")) + "\n").encode())
    return path


def read_run(folder: Path) -> Run | None:
    """Return the record in a campaign's folder; None where there is none; raises UsageError if it is damaged."""
    path = folder / RUN_FILE
    if not path.exists():
        return None
    try:
        return decoded(Run, parse_json(read_text(path, "record"), str(path)), further=True)
    except (UsageError, Malformed) as error:
        raise UsageError(f"the record of the run in {path} is damaged: {error}; remove it") from None


def has_run(folder: Path) -> bool:
    """Return whether a campaign's folder has a record that can be read."""
    try:
        return read_run(folder) is not None
    except UsageError:
        return False
