"""Measurements: one evaluation of one config, with its numbers or the reason for having none."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task


class Status(StrEnum):
    """Outcome of an evaluation, with the `invalidity` of the T4 results schema in brackets.

    Source: T4 auto-tuning results schema, github.com/odgaard/TuningSchema.

    Example:
        >>> import gemmtune as gt
        >>> gt.Status("build_failed") is gt.Status.BUILD_FAILED
        True
    """

    OK = "ok"
    """Timed with a right result (correct)."""
    INVALID = "invalid"
    """Rejected before building, by a constraint or a pruner (constraints)."""
    BUILD_FAILED = "build_failed"
    """Refused by the compiler, or needs more than the device has (compile)."""
    RUN_FAILED = "run_failed"
    """Did not load, crashed, or ended its worker (runtime)."""
    WRONG_RESULT = "wrong_result"
    """Output differs from the reference by more than the tolerance (correctness)."""
    TIMED_OUT = "timed_out"
    """Build or launches exceeded their deadline (timeout)."""


class Evidence(StrEnum):
    """Origin of a time, the most reliable first."""

    MEASURED = "measured"
    """Timed on the device itself."""
    REPLAYED = "replayed"
    """Looked up in a recorded landscape."""
    ESTIMATED = "estimated"
    """Computed by an analytic model; ships only on request."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """State of the GPU at one instant as NVML reports it; a field is None if this GPU does not report it."""

    sm_clock_mhz: int | None
    """SM clock in MHz."""
    memory_clock_mhz: int | None
    """Memory clock in MHz."""
    temperature_c: int | None
    """GPU temperature in °C."""
    power_mw: int | None
    """Power draw of the board, in mW."""
    throttle_reasons: tuple[str, ...] = ()
    """Sorted NVML reasons for clocks below their maximum (`sw_power_cap`); empty for none."""
    driver: str = field(default="", metadata={"sparse": True})
    """Version of the NVIDIA driver, `580.95.05`; empty in measurements that were made without this field."""


@dataclass(frozen=True, slots=True)
class ReferenceLevel:
    """Time of the reference kernel for one problem on one GPU, by which times of several GPUs compare."""

    reference: str
    """Library of the reference kernel, with its version."""
    board: str
    """UUID of the GPU."""
    time_ns: float = field(metadata={"above": 0})
    """Time of one launch when the problem was set up, in ns."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Time of one launch, estimated by a protocol from its samples."""

    time_ns: float
    """Estimated time in ns, corrected for drift."""
    low_ns: float
    """Lower end of its 95 % interval, in ns."""
    high_ns: float
    """Upper end of its 95 % interval, in ns; equal to the time and to `low_ns` for a single sample."""
    level: ReferenceLevel | None = field(default=None, metadata={"sparse": True})
    """Reference level of the GPU that measured; None if no reference kernel was timed."""
    stopped: str = field(default="", metadata={"sparse": True})
    """Reason for people why screening stopped the launches early; empty if it did not."""
    bits: str = field(default="", metadata={"sparse": True})
    """Digest of the bits of rows that every size of a series computes; empty if the protocol compares none."""

    @property
    def fault(self) -> str:
        """Reason why the times contradict each other; empty if they do not."""
        if 0 < self.low_ns <= self.time_ns <= self.high_ns:
            return ""
        return f"time_ns={self.time_ns} is not in low_ns={self.low_ns} to high_ns={self.high_ns} above 0"

    @property
    def is_steady(self) -> bool:
        """Whether it compares boards: it has a reference level, and its interval is narrower than 5 %."""
        return self.level is not None and self.high_ns < 1.05 * self.low_ns

    def scaled(self, factor: float) -> Estimate:
        """Return this estimate with its times multiplied by `factor`."""
        if factor == 1.0:
            return self
        time_ns, low_ns, high_ns = (ns * factor for ns in (self.time_ns, self.low_ns, self.high_ns))
        return replace(self, time_ns=time_ns, low_ns=low_ns, high_ns=high_ns)

    def at_level(self, level: ReferenceLevel | None) -> Estimate:
        """Return this estimate scaled to the GPU of `level`, by the ratio of the reference kernel's times.

        It is unchanged on one GPU, without a level, and for different reference kernels.
        """
        own = self.level
        if level is None or own is None or own.reference != level.reference or own.board == level.board:
            return self
        return replace(self.scaled(level.time_ns / own.time_ns), level=level)


@dataclass(frozen=True, slots=True)
class Reading:
    """Outcome of one evaluation, as a worker reads it off the GPU."""

    status: Status
    """Outcome of the evaluation."""
    reason: str = ""
    """Reason for a status other than ok; empty for ok."""
    samples_ns: tuple[float, ...] = ()
    """Time per launch in ns, in launch order, without the protocol's fixed cost; not corrected for drift."""
    estimate: Estimate | None = None
    """Time estimated from the samples; None unless the status is ok."""
    outliers: tuple[int, ...] = ()
    """Positions in `samples_ns` of outliers, and of final samples that the estimate ignores."""
    drift: float = 1.0
    """Divisor of the estimate: the reference kernel's time over its time at set-up; 1 without correction."""
    energy_joules: float | None = None
    """Energy of one launch in joules; None if the protocol does not measure it."""
    error_norm: float | None = None
    """Relative error ‖out − reference‖ / ‖reference‖; None if nothing was compared."""
    before: DeviceState | None = None
    """State of the GPU before the first launch."""
    after: DeviceState | None = None
    """State of the GPU after the last launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Reading):
    """One evaluation of a config with its context. Failures are measurements too.

    Example:
        >>> import gemmtune as gt
        >>> measurement = gt.testing.example_measurement()
        >>> measurement.status, measurement.estimate.time_ns
        (<Status.OK: 'ok'>, 90400.0)
    """

    task: Task
    """Task that was evaluated."""
    config: Config
    """Config that was evaluated."""
    evidence: Evidence
    """Origin of the numbers: measured, replayed or estimated."""
    protocol: str
    """Name of the timing protocol."""
    toolchain: Toolchain
    """Versions that built the kernel."""
    worker: str
    """Worker that measured: host, GPU and process, or the landscape's file."""
    created_at: str
    """UTC time of the measurement, ISO 8601 with seconds."""
    resources: Resources | None = None
    """Resources that the built kernel needs."""
    build_seconds: float | None = None
    """Duration of the build in seconds; None if nothing was built."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Outcome of a config, as a sampler sees it.

    Example:
        >>> import gemmtune as gt
        >>> gt.Trial(gt.Config({"BLOCK_M": 64}), gt.Status.OK, 9.5e3).score
        9500.0
    """

    config: Config
    """Config that was evaluated."""
    status: Status
    """Outcome of the evaluation."""
    score: float | None
    """Score by the objective, to minimise; None unless the status is ok."""
    scores: tuple[float, ...] = ()
    """Scores of an objective of several parts, `score` first; empty otherwise."""
