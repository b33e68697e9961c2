"""One evaluation of one config: numbers, or the reason there are none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task

__all__ = ["DeviceState", "Estimate", "Evidence", "Measurement", "ReferenceLevel", "Status", "Trial"]


class Status(StrEnum):
    """How an evaluation ended; one to one with the `invalidity` field of the T4 results schema (in brackets).

    Source: T4 auto-tuning results schema, github.com/odgaard/TuningSchema.
    """

    OK = "ok"
    """Right result, timed (correct)."""
    INVALID = "invalid"
    """Rejected before building, by a constraint or a pruner (constraints)."""
    BUILD_FAILED = "build_failed"
    """The compiler refused it, or it needs more than the device has (compile)."""
    RUN_FAILED = "run_failed"
    """It did not load, crashed, or ended its worker (runtime)."""
    WRONG_RESULT = "wrong_result"
    """The output is off the reference by more than the tolerance (correctness)."""
    TIMED_OUT = "timed_out"
    """The build or the launches passed their deadline (timeout)."""


class Evidence(StrEnum):
    """How much a number is worth."""

    MEASURED = "measured"
    """Timed on the device."""
    REPLAYED = "replayed"
    """Looked up in a recorded landscape."""
    ESTIMATED = "estimated"
    """Computed by a model; never ships unasked."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The GPU at one instant, as NVML reports it; None for what this GPU does not report."""

    sm_clock_mhz: int | None
    """SM clock."""
    memory_clock_mhz: int | None
    """Memory clock."""
    temperature_c: int | None
    """GPU temperature."""
    power_mw: int | None
    """Board power draw."""
    throttle_reasons: tuple[str, ...] = ()
    """Why the clocks were held below their maximum, in NVML's terms (`sw_power_cap`), sorted; empty for no reason."""


@dataclass(frozen=True, slots=True)
class ReferenceLevel:
    """How fast one GPU is at one problem: what the reference kernel takes there, beside itself."""

    reference: str
    """Whose kernel it is, with its version."""
    board: str
    """The GPU, by its UUID."""
    time_ns: float
    """Its time when the problem was set up."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The time of one launch, as a protocol estimates it from its samples."""

    time_ns: float
    """Location of the samples, corrected for drift."""
    low_ns: float
    """Lower end of its 95 % interval."""
    high_ns: float
    """Upper end of its 95 % interval; equal to the time and to `low_ns` where one sample stands behind it."""
    level: ReferenceLevel | None = None
    """Of the GPU that measured: by it, times of several GPUs of a kind compare. None where no reference was timed."""
    stopped: str = ""
    """Why racing made no more launches, for people; empty where it did not stop them."""

    def scaled(self, factor: float) -> Estimate:
        """Return this estimate with its times multiplied by `factor`."""
        if factor == 1.0:
            return self
        time_ns, low_ns, high_ns = (ns * factor for ns in (self.time_ns, self.low_ns, self.high_ns))
        return replace(self, time_ns=time_ns, low_ns=low_ns, high_ns=high_ns)

    def at_level(self, level: ReferenceLevel | None) -> Estimate:
        """Return this estimate scaled to the GPU of `level`, by the ratio of the reference kernel's times.

        The estimate is returned unchanged if a level is missing or the levels belong to different reference kernels.
        On one GPU it is unchanged too, because levels of two processes differ by noise alone.
        """
        own = self.level
        if level is None or own is None or own.reference != level.reference or own.board == level.board:
            return self
        return replace(self.scaled(level.time_ns / own.time_ns), level=level)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One evaluation, with enough context to be judged later. Failures are measurements too."""

    task: Task
    """What was searched."""
    config: Config
    """The config evaluated."""
    status: Status
    """How it ended."""
    evidence: Evidence
    """How the numbers came about."""
    protocol: str
    """Name of the timing protocol."""
    toolchain: Toolchain
    """The versions that built it."""
    worker: str
    """Who measured: host, GPU and process, or the landscape's file."""
    created_at: str
    """UTC time, ISO 8601 with seconds."""
    reason: str = ""
    """Why the status is not ok; empty when it is."""
    samples_ns: tuple[float, ...] = ()
    """Time of each launch in launch order, less the protocol's fixed cost; uncorrected for drift, outliers kept."""
    estimate: Estimate | None = None
    """What the protocol makes of the samples; None unless the status is ok."""
    outliers: tuple[int, ...] = ()
    """Positions in `samples_ns` that lie far off the others, and of those, at the end, that stand behind no estimate
    because the clocks were held back or a second look replaced them; they are marked, not dropped."""
    drift: float = 1.0
    """The reference kernel's time beside the samples over its time when the problem was set up; the estimate is
    divided by it. 1 where nothing was corrected."""
    energy_joules: float | None = None
    """Energy of one launch; None where the protocol does not measure it."""
    error_norm: float | None = None
    """‖out − reference‖ / ‖reference‖; None where nothing was compared."""
    before: DeviceState | None = None
    """The device before the first launch."""
    after: DeviceState | None = None
    """The device after the last launch."""
    resources: Resources | None = None
    """What the built kernel occupies."""
    build_seconds: float | None = None
    """Cost of the build; None where nothing was built."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A config with its outcome, as a sampler sees it."""

    config: Config
    """The config evaluated."""
    status: Status
    """How it ended."""
    score: float | None
    """What the objective made of it, to minimise; None unless the status is ok."""
    scores: tuple[float, ...] = ()
    """Every score of an objective of several, `score` first; empty where there is one, or none."""
