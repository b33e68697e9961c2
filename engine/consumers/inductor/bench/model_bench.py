"""Times of one model in several arms, and what they say of each other."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, inf, log

from gemmtune.engine.consumers.inductor.bench.arms import BASE, TABLE
from gemmtune.engine.records.measurement import Estimate
from gemmtune.engine.statistics import estimate, location_interval


@dataclass(frozen=True, slots=True)
class ArmTimes:
    """One way to run a model."""

    arm: str
    """Name of the arm, one of `ARMS`."""
    samples_ns: tuple[float, ...] = ()
    """Time per call in each round, ns; empty if the arm failed."""
    first_call_seconds: float = 0.0
    """Time of the first call, with compilation and cold caches, s."""
    product_benchmarks: int = 0
    """Products whose choices Inductor benchmarked."""
    kernel_benchmarks: int = 0
    """Kernels that Inductor benchmarked, of products and others."""
    peak_bytes: int = 0
    """Most device memory that one call holds beyond parameters and inputs, bytes."""
    error: float = field(default=0.0, metadata={"most": inf})
    """Norm of the difference from eager's outputs and gradients over their norm."""
    shared_kernels: int = 0
    """Kernels for which Inductor took the config that an earlier arm chose."""
    failure: str = ""
    """Reason why the arm has no times; empty if it has."""

    @property
    def time(self) -> Estimate | None:
        """Time per call with its 95 % interval, ns; None if the arm failed."""
        return estimate(self.samples_ns) if self.samples_ns else None


@dataclass(frozen=True, slots=True)
class Ratio:
    """Speed of one arm over another's, with its 95 % interval."""

    factor: float
    """Time of the other arm over this one's: above 1 is faster."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""


@dataclass(frozen=True, slots=True)
class ProductGain:
    """Part of one product in a model's gain."""

    problem: str
    """Name of the problem, as it was compiled."""
    count: int
    """Compiled occurrences of the product."""
    outcome: str
    """Use of the table: `row`, `aten row`, `unused row`, `miss` or `no problem`."""
    kernel: str
    """Kernel that runs, with its config, or the reason why no row applies."""
    baseline_ns: float | None = None
    """Time of the vendor library by the table, ns; None without a row."""
    row_ns: float | None = None
    """Time of the row's kernel by the table, ns; None without a row."""

    @property
    def saved_ns(self) -> float:
        """Time that the table expects to save per call of the model, ns; 0 where the vendor library runs."""
        if self.outcome != "row" or self.baseline_ns is None or self.row_ns is None:
            return 0.0
        return (self.baseline_ns - self.row_ns) * self.count


@dataclass(frozen=True, slots=True)
class ModelBench:
    """Times of one model, in one process, in alternating rounds."""

    call: str
    """Name of the model or function."""
    inputs: tuple[str, ...]
    """Inputs in the form of `--input`."""
    grad: bool
    """Whether a call is a forward pass with its gradients."""
    device: str
    """Name of the GPU."""
    torch: str
    """Version of torch that compiled the model."""
    in_graphs: bool
    """Whether calls were replays of CUDA graphs; without them the host's time counts, too."""
    arms: tuple[ArmTimes, ...]
    """Arms, in the order of `ARMS`."""
    products: tuple[ProductGain, ...] = ()
    """Products of the arm with the table."""

    def arm(self, name: str) -> ArmTimes | None:
        """Return an arm that has times; None if it failed or was not asked for."""
        return next((arm for arm in self.arms if arm.arm == name and arm.samples_ns), None)

    def ratio(self, arm: str, base: str = BASE) -> Ratio | None:
        """Return the speed of an arm over another's; None if one has no times.

        Rounds are paired, since both arms ran in each: what slows a round slows both.
        """
        one, other = self.arm(arm), self.arm(base)
        return None if one is None or other is None else paired_ratio(other.samples_ns, one.samples_ns)

    @property
    def fastest(self) -> str | None:
        """Name of the fastest arm without the table; None if none has times."""
        times = {arm.arm: arm.time.time_ns for arm in self.arms if arm.time is not None and arm.arm != TABLE}
        return min(times, key=lambda name: times[name], default=None)


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """Return the ratio of two arms' times, from one pair per round.

    Raises:
        ValueError: there is no round, or the arms have different numbers of them.
    """
    logs = [log(one / other) for one, other in zip(numerators, denominators, strict=True)]
    middle, low, high = location_interval(logs)
    return Ratio(exp(middle), exp(low), exp(high))
