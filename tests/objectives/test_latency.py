from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.testing import objective_conformance
from gemmtune.engine.testing.objective_conformance import example_measurement
from gemmtune.objectives.latency import Latency


@pytest.mark.parametrize("check", objective_conformance.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", registry.names(Objective))
def test_registered_objective_keeps_the_contract(name, check):
    check(type(registry.objective(name)))


@pytest.mark.parametrize(
    ("samples_ns", "score"),
    [
        ((91_000.0,), 91_000.0),
        ((3.0, 1.0, 2.0), 2.0),
        ((4.0, 1.0, 3.0, 2.0), 2.5),
        ((90.0, 91.0, 92.0, 93.0, 1e9), 92.0),  # one disturbed launch moves nothing
    ],
)
def test_latency_is_the_median_launch_in_nanoseconds(samples_ns, score):
    assert Latency().score(example_measurement(samples_ns)) == score


def test_latency_says_how_it_is_timed():
    assert (Latency.protocol, Latency.unit) == ("events-cold-l2", "ns")


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_a_failure_has_no_latency_and_the_message_says_why(status):
    failed = replace(example_measurement(), status=status, reason="CUDA driver: out of registers")
    with pytest.raises(ValueError, match=f"{status} has no latency: CUDA driver: out of registers"):
        Latency().score(failed)


class Unnamed(Latency):
    protocol = ""


class Generous(Latency):
    def score(self, measurement):
        return min(measurement.samples_ns, default=float("inf"))


class Backwards(Latency):
    def score(self, measurement):
        return 1e18 / super().score(measurement)


class Coarse(Latency):
    def score(self, measurement):
        return round(super().score(measurement) / 1e3)


class Moody(Latency):
    calls = 0

    def score(self, measurement):
        Moody.calls += 1
        return super().score(measurement) + Moody.calls


@pytest.mark.parametrize(
    ("objective", "check", "broken"),
    [
        (Unnamed, objective_conformance.names_its_protocol_and_unit, "has the protocol ''"),
        (Generous, objective_conformance.gives_a_failure_no_score, "scored a measurement that is invalid with inf"),
        (Backwards, objective_conformance.prefers_the_faster, "ever slower"),
        (Coarse, objective_conformance.prefers_the_faster, "ever slower"),
        (Moody, objective_conformance.repeats_itself, "scored one measurement"),
    ],
)
def test_suite_catches_a_broken_objective(objective, check, broken):
    with pytest.raises(ContractError, match=broken):
        check(objective)
