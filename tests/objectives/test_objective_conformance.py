"""The conformance suite catches each way to break an objective's contract."""

from __future__ import annotations

import pytest

from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.testing import objective_conformance
from gemmtune.objectives.latency import Latency
from gemmtune.objectives.latency_energy import LatencyEnergy


class Unnamed(Latency):
    protocol = ""


class Unknown(Latency):
    protocol = "no-such-protocol"


class Generous(Latency):
    def score(self, measurement):
        return min(measurement.samples_ns, default=float("inf"))


class HalfStrict(Latency):
    def scores(self, measurement):
        return (min(measurement.samples_ns, default=1.0),)


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


class Lonely(Latency):
    parts = ("latency ns",)


class Twins(LatencyEnergy):
    parts = ("latency ns", "latency ns")


class Bare(LatencyEnergy):
    parts = "latency ns"


class Unitless(LatencyEnergy):
    parts = ("latency", "energy")


class Partial(Latency):
    parts = ("latency ns", "energy J")


class EnergyFirst(LatencyEnergy):
    def scores(self, measurement):
        return super().scores(measurement)[::-1]


class Free(LatencyEnergy):
    def scores(self, measurement):
        return self.score(measurement), 0.0


@pytest.mark.parametrize(
    ("objective", "check", "broken"),
    [
        (Unnamed, objective_conformance.names_its_protocol_and_unit, "has the protocol ''"),
        (Unknown, objective_conformance.names_its_protocol_and_unit, "'no-such-protocol'; known: graph-cold-l2"),
        (Lonely, objective_conformance.names_its_parts, r"has the parts \('latency ns',\); name none, or several once"),
        (Twins, objective_conformance.names_its_parts, "name none, or several once each"),
        (Bare, objective_conformance.names_its_parts, "not a tuple of names with their units"),
        (Unitless, objective_conformance.names_its_parts, "not a tuple of names with their units"),
        (Generous, objective_conformance.gives_a_failure_no_score, "scored a measurement that is invalid with inf"),
        (HalfStrict, objective_conformance.gives_a_failure_no_score, "scored a measurement that is invalid with"),
        (Backwards, objective_conformance.prefers_the_faster, "slower and slower"),
        (Coarse, objective_conformance.prefers_the_faster, "slower and slower"),
        (Moody, objective_conformance.repeats_itself, "scored one measurement"),
        (Partial, objective_conformance.scores_every_part, r"gave the scores \(90400.0,\) where 2 are due"),
        (EnergyFirst, objective_conformance.scores_every_part, "do not begin with the score 90400.0"),
        (Free, objective_conformance.scores_every_part, r"gave the scores \(90400.0, 0.0\)"),
    ],
)
def test_suite_catches_a_broken_objective(objective, check, broken):
    with pytest.raises(ContractError, match=broken):
        check(objective)
