from __future__ import annotations

import pytest

from gemmtune.engine.records.artifact import Artifact, Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.pruner import Candidate, Pruner
from gemmtune.engine.search.pruners.static_pruner import StaticPruner
from gemmtune.engine.testing import pruner_conformance

TASK = Task(Problem(m=64, n=64, k=64), Device("TOY", "Toy", "sm_90a", 1, 1000, 1000, 1, 1, 1, 1, 32, 1, 1), "toy")


def built(spill_bytes):
    resources = Resources(registers=255, shared_bytes=0, spill_bytes=spill_bytes, threads=128)
    artifact = Artifact("key", "toy", "", "digest", (), resources, 0.1, Toolchain(()))
    return Candidate(TASK, Config({"tile": 64}), artifact)


@pytest.mark.parametrize("check", pruner_conformance.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", registry.names(Pruner))
def test_registered_pruner_keeps_its_contract(name, check):
    check(type(registry.pruner(name)))


@pytest.mark.parametrize("spill_bytes", [0, 64])
def test_static_keeps_up_to_sixteen_spilled_registers(spill_bytes):
    assert StaticPruner().judge(built(spill_bytes), [])


def test_static_drops_more_than_sixteen_spilled_registers_with_the_reason():
    verdict = StaticPruner().judge(built(68), [])
    assert not verdict
    assert (verdict.rule, verdict.reason) == ("spills", "68 B spilled per thread > 64 B")
