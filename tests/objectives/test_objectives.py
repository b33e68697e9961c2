"""Each objective: its score, its timing, and the measurements it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.measurement import Estimate, Status
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.testing import objective_conformance
from gemmtune.engine.testing.objective_conformance import example_measurement

FAILURES = [status for status in Status if status is not Status.OK]
MEASURED = replace(
    example_measurement((3e4, 1e4, 2e4)), estimate=Estimate(19_750.0, 19_500.0, 20_000.0), energy_joules=0.0125
)


@pytest.mark.parametrize("check", objective_conformance.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", registry.names(Objective))
def test_registered_objective_keeps_the_contract(name, check):
    check(type(registry.objective(name)))


@pytest.mark.parametrize(
    ("name", "protocol", "unit", "parts", "scores"),
    [
        ("latency", "graph-cold-l2", "ns", (), (19_750.0,)),
        ("latency_warm", "graph-warm-l2", "ns", (), (19_750.0,)),
        ("energy", "graph-cold-l2+energy", "J", (), (0.0125,)),
        ("latency_energy", "graph-cold-l2+energy", "ns", ("latency ns", "energy J"), (19_750.0, 0.0125)),
    ],
)
def test_an_objective_names_its_protocol_and_scores_what_the_protocol_estimates(name, protocol, unit, parts, scores):
    objective = registry.objective(name)
    assert (objective.protocol, objective.unit, objective.parts) == (protocol, unit, parts)
    assert (objective.score(MEASURED), objective.scores(MEASURED)) == (scores[0], scores)


@pytest.mark.parametrize("status", FAILURES)
@pytest.mark.parametrize(
    ("name", "lacks"),
    [("latency", "latency"), ("latency_warm", "latency"), ("energy", "energy"), ("latency_energy", "latency")],
)
def test_a_failure_has_no_score_and_the_message_says_why(name, lacks, status):
    failed = replace(example_measurement(), status=status, reason="CUDA driver: out of registers")
    with pytest.raises(ValueError, match=f"is {status} has no {lacks}: CUDA driver: out of registers"):
        registry.objective(name).scores(failed)


def test_a_success_without_an_estimate_is_no_latency():
    with pytest.raises(ValueError, match="is ok has no latency: it has no estimate"):
        registry.objective("latency").score(replace(MEASURED, estimate=None))


@pytest.mark.parametrize("name", ["energy", "latency_energy"])
def test_times_alone_have_no_energy_and_the_message_says_the_way_out(name):
    recorded = replace(MEASURED, energy_joules=None, protocol="events-cold-l2", worker="replay:h200_aten.csv.gz")
    said = (
        r"replay:h200_aten.csv.gz has no energy \(protocol events-cold-l2\): "
        r"measure on a GPU with protocol graph-cold-l2\+energy, or minimise latency"
    )
    with pytest.raises(UsageError, match=f"^{said}$"):
        registry.objective(name).scores(recorded)
