"""Conformance checks for objectives, which need only the objective's class."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from statistics import median

from gemmtune.engine.measure.protocols import PROTOCOLS
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import DeviceState, Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.testing._contract import require, require_lightness, run_checks

_SAMPLES_NS = (91_800.0, 90_200.0, 90_500.0, 90_300.0, 97_100.0, 90_400.0, 90_250.0, 90_350.0, 90_450.0)
_POWER_WATTS = 600.0


def example_measurement(samples_ns: tuple[float, ...] = _SAMPLES_NS) -> Measurement:
    """Return a successful measurement with every field filled; its energy is 600 W times the median launch."""
    time_ns = median(samples_ns)
    return Measurement(
        task=Task(Problem.parse("2048x4096x4096:bf16:nt"), catalogue.device("H200"), "example"),
        config=Config({"tile": 64}),
        status=Status.OK,
        evidence=Evidence.MEASURED,
        protocol="example",
        toolchain=Toolchain((("example", "1.0"),)),
        worker="example",
        created_at="2026-01-01T00:00:00+00:00",
        samples_ns=samples_ns,
        estimate=Estimate(time_ns, min(samples_ns), max(samples_ns)),
        energy_joules=_POWER_WATTS * time_ns * 1e-9,
        error_norm=1.6e-3,
        before=DeviceState(1980, 3201, 41, 180_000),
        after=DeviceState(1950, 3201, 44, 520_000),
        resources=Resources(168, 147_456, 0, 256),
        build_seconds=0.5,
    )


def example_failure(status: Status) -> Measurement:
    """Return a failed measurement without samples."""
    return replace(
        example_measurement(),
        status=status,
        reason="an example of a failure",
        samples_ns=(),
        estimate=None,
        energy_joules=None,
    )


def check_objective(objective: type[Objective]) -> None:
    """Score `example_measurement` and variants of it, and check scores, parts, failures and repeatability.

    Example:
        >>> from gemmtune.objectives.latency import Latency
        >>> check_objective(Latency)

    Raises:
        ContractError: the objective broke its contract; the message says how.
    """
    run_checks(CHECKS, objective, Objective)


def names_its_protocol_and_unit(objective: type[Objective]) -> None:
    """Check that the class has both as text, since a campaign reads them before it creates an instance."""
    for name in ("protocol", "unit"):
        value: object = getattr(objective, name, None)
        require(isinstance(value, str) and bool(value.strip()), objective, f"has the {name} {value!r}")
    is_known = objective.protocol in PROTOCOLS
    require(is_known, objective, f"has the protocol {objective.protocol!r}; known: {', '.join(PROTOCOLS)}")


def names_its_parts(objective: type[Objective]) -> None:
    """Check that an objective has no parts, or several, each with a unique name and a unit."""
    parts: object = objective.parts
    named = isinstance(parts, tuple) and all(isinstance(part, str) and len(part.split()) > 1 for part in parts)
    require(named, objective, f"has the parts {parts!r}, not a tuple of names with their units")
    several = len(set(objective.parts)) == len(objective.parts) != 1
    require(several, objective, f"has the parts {parts!r}; name none, or several once each")


def scores_successes(objective: type[Objective]) -> None:
    """Check that scores are finite and above 0, from one sample up and from a microsecond to a second."""
    for samples in (_SAMPLES_NS, _SAMPLES_NS[:1], _SAMPLES_NS[:2], (1e3,) * 9, (1e9, 1.1e9, 1.2e9)):
        _score(objective, example_measurement(samples))


def scores_every_part(objective: type[Objective]) -> None:
    """Check that each part has a finite score above 0, and that the first one is the score."""
    measurement = example_measurement()
    scores = objective().scores(measurement)
    due = len(objective.parts) or 1
    require(len(scores) == due, objective, f"gave the scores {scores} where {due} are due")
    require(all(0 < score < math.inf for score in scores), objective, f"gave the scores {scores}")
    first = _score(objective, measurement)
    require(scores[0] == first, objective, f"gave the scores {scores}, which do not begin with the score {first}")


def gives_a_failure_no_score(objective: type[Objective]) -> None:
    """Check that `score` and `scores` raise ValueError for a failure, even with samples and an estimate."""
    for status in Status:
        if status is Status.OK:
            continue
        failure = example_failure(status)
        for example in (failure, replace(example_measurement(), status=status, reason=failure.reason)):
            for score in (objective().score, objective().scores):
                with suppress(ValueError):
                    require(False, objective, f"scored a measurement that is {status} with {score(example)}")


def prefers_the_faster(objective: type[Objective]) -> None:
    """Check that at equal power the kernel with lower samples has the lower score."""
    shares = (0.5, 0.9, 0.999, 1.0, 1.001, 1.1, 2.0)
    scores = [_score(objective, example_measurement(tuple(share * x for x in _SAMPLES_NS))) for share in shares]
    require(scores == sorted(set(scores)), objective, f"scored slower and slower launches {scores}")


def repeats_itself(objective: type[Objective]) -> None:
    """Check that one measurement gives equal scores a second time and from another instance."""
    one, measurement = objective(), example_measurement()
    scores = {one.score(measurement), one.score(measurement), objective().score(measurement)}
    require(len(scores) == 1, objective, f"scored one measurement {sorted(scores)}")


def scores_lightly(objective: type[Objective]) -> None:
    """Check in a fresh process that scoring loads no heavy package and gives equal scores."""
    require_lightness(_example_score, objective)


CHECKS: tuple[Callable[[type[Objective]], None], ...] = (
    names_its_protocol_and_unit,
    names_its_parts,
    scores_successes,
    scores_every_part,
    gives_a_failure_no_score,
    prefers_the_faster,
    repeats_itself,
    scores_lightly,
)
"""Checks that `check_objective` runs, in order."""


def _example_score(objective: type[Objective]) -> str:
    return repr(objective().score(example_measurement()))


def _score(objective: type[Objective], measurement: Measurement) -> float:
    score = objective().score(measurement)
    number = isinstance(score, int | float) and not isinstance(score, bool)
    require(number, objective, f"scored {score!r}, not a number")
    require(0 < score < math.inf, objective, f"scored {measurement.samples_ns} with {score}")
    return score
