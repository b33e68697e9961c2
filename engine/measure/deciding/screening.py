"""Screen candidates against the leader, and spend launches on undecided ranks."""

from dataclasses import dataclass, replace

from gemmtune.engine.measure.deciding.blocks import Block, Timer, estimate_of_blocks
from gemmtune.engine.measure.deciding.clock_drift import Drift
from gemmtune.engine.records.measurement import Estimate

_LARGEST_LEAD = 0.10
"""Largest lead over the leader that is believed without a second measurement, as a share of the leader's time."""


@dataclass(frozen=True, slots=True)
class LaunchLimits:
    """Limits on the launches that screenings and finals spend; see experiments/measurement."""

    slowness_limits: tuple[float, ...] = (5.0, 1.5, 1.1)
    """Multiples of the leader's time that end a screening: of one launch, the faster of two, the fastest of three."""
    least_blocks: int = 2
    """Number of blocks that a candidate on a par with the leader gets, whatever time they take."""
    most_blocks: int = 4
    """Number of blocks that such a candidate gets while they take no more than `block_seconds` together."""
    block_seconds: float = 0.004
    """GPU time of these blocks with the reference kernel, in seconds; fewer blocks of long launches say as much."""
    alone_blocks: int = 8
    """Number of blocks without a leader while they take no more than `alone_seconds`; at least `most_blocks`."""
    alone_seconds: float = 0.012
    """GPU time of the blocks without a leader, in seconds."""
    margin: float = 0.015
    """Gap between the intervals of candidate and leader that ends a screening, as a share; covers leftover drift."""
    most_repeats: int = 2
    """Number of blocks per candidate that are measured again because the clocks moved."""
    final_confidence: float = 0.99
    """Confidence at which a finalist leaves the final; above 95 %, because it is tested after every round."""
    equivalence: float = 0.001
    """Difference of time, as a share, below which a final has nothing left to decide."""
    least_rounds: int = 2
    """Number of rounds before a finalist can leave, so that one late launch among 8 pairs removes no finalist."""
    most_rounds: int = 16
    """Number of rounds after which a final ends: 128 pairs of samples per finalist."""
    final_launches: int = 768
    """Number of launches in a final, with the reference kernel's: 6 rounds of 8 finalists, or 16 rounds of 3."""
    final_seconds: float = 0.03
    """GPU time that a final may take beyond `final_launches`, in seconds; short kernels scatter more and need it."""


@dataclass(frozen=True, slots=True)
class ScreeningResult:
    """Outcome of one candidate's screening."""

    samples_ns: tuple[float, ...]
    """Time of each launch in launch order, in nanoseconds, uncorrected and complete."""
    reference_ns: tuple[float, ...]
    """Time of the reference kernel's launch beside each sample, in nanoseconds."""
    estimate: Estimate
    """Location of the samples with its 95 % interval, corrected for drift."""
    drift: float
    """Divisor of the drift correction."""
    stopped: str
    """Reason for stopping early, as text; empty if the screening ran to its end."""


def screen(timer: Timer, drift: Drift, leader: Estimate | None, limits: LaunchLimits) -> ScreeningResult:
    """Measure one candidate as precisely as its rank deserves; `leader` is the estimate of the task's fastest config.

    Single launches end the screening of a candidate far behind the leader. Blocks are added until the candidate's
    interval lies below the leader's, or above it by more than `limits.margin`, or the limits are reached. The estimate
    comes from the blocks if there are any. A block is measured again if the reference moved since the block before, at
    most `limits.most_repeats` times; its samples stay in the result.
    """
    samples: list[float] = []
    reference: list[float] = []
    singles = blocks = repeats = launches = 0

    def take(block: Block) -> None:
        samples.extend(block.samples_ns)
        reference.extend(block.reference_ns)

    def wants_block() -> bool:
        busy_seconds = (sum(samples[singles:]) + sum(reference[singles:])) / 1e9
        if leader is None:
            return blocks < limits.most_blocks or (blocks < limits.alone_blocks and busy_seconds < limits.alone_seconds)
        return blocks < limits.least_blocks or (blocks < limits.most_blocks and busy_seconds < limits.block_seconds)

    def result(stopped: str) -> ScreeningResult:
        first = singles if len(samples) > singles else 0
        factor, raw = drift.factor(reference[first:]), estimate_of_blocks(samples[first:], launches)
        corrected = Estimate(raw.time_ns / factor, raw.low_ns / factor, raw.high_ns / factor)
        return ScreeningResult(tuple(samples), tuple(reference), corrected, factor, stopped)

    if leader is not None:
        for count, limit in enumerate(limits.slowness_limits, start=1):
            take(timer.single())
            clocks = max(1.0, min(reference) / drift.nominal_ns)  # clocks are never faster than unlimited ones
            multiple = min(samples) / clocks / leader.time_ns
            if multiple > limit:
                fastest = "one launch" if count == 1 else f"the fastest of {count} launches"
                return result(f"{fastest} took {multiple:.3g} times the leader's")

    singles = len(samples)
    previous: Block | None = None
    while wants_block():
        block = timer.block(blocks)
        launches = len(block.samples_ns)
        take(block)
        moved = previous is not None and drift.moved(previous.reference_ns, block.reference_ns)
        previous = block
        if moved and repeats < limits.most_repeats:
            repeats += 1
            continue
        blocks += 1
        if leader is None:
            continue
        so_far = result("")
        if so_far.estimate.low_ns > leader.high_ns * (1 + limits.margin):
            gap = so_far.estimate.low_ns / leader.high_ns - 1
            return replace(
                so_far, stopped=f"after {len(samples)} launches its interval lies {gap:.2%} above the leader's"
            )
        if so_far.estimate.high_ns < leader.low_ns:
            break
    return result("")


def implausible_reason(result: Estimate, leader: Estimate | None, floor_ns: float) -> str:
    """Return why a result is too good to be believed without a second measurement; empty if it is plausible.

    `floor_ns` is the time in which the device could just do the work: its bytes over the bandwidth, for example.
    """
    if result.time_ns < floor_ns:
        return f"{result.time_ns / 1e3:.2f} µs is below the device's floor of {floor_ns / 1e3:.2f} µs"
    if leader is not None and (lead := 1 - result.time_ns / leader.time_ns) > _LARGEST_LEAD:
        return f"{lead:.0%} faster than the leader, more than {_LARGEST_LEAD:.0%}"
    return ""
