"""An executor for a GPU that is not here: real builds, estimated times, nothing measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmtune.engine.execution.estimate import EstimateExecutor
from gemmtune.engine.execution.pruning import UNBUILT
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Evidence, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams import registry
from gemmtune.engine.search.pruners.static_pruner import StaticPruner

TASK = Task(Problem.parse("64x64x64"), catalogue.device("B200"), "toy_priced")


def evaluated(tiles, **options):
    """Tile to measurement, from one executor of one builder."""
    executor = EstimateExecutor({TASK.space: registry.space(TASK.space)}, builders=1, **options)
    try:
        for tile in tiles:
            executor.submit(TASK, Config({"TILE": tile}))
        found = []
        while len(found) < len(tiles):
            found += executor.collect(30.0)
        folder = Path(executor._folder.name) if executor._folder else None
        left = list(folder.iterdir()) if folder else []
    finally:
        executor.close()
    assert left == []
    assert folder is None or not folder.exists()
    return {m.config["TILE"]: m for m in found}


@pytest.mark.usefixtures("toy_priced")
def test_what_builds_has_the_estimate_of_its_space_and_the_facts_of_its_build():
    found = evaluated([2, 3])
    for tile, m in found.items():
        assert (m.status, m.evidence, m.reason) == (Status.OK, Evidence.ESTIMATED, "")
        assert m.estimate == Estimate(1000.0 * tile, 1000.0 * tile, 1000.0 * tile)
        assert m.samples_ns == ()
        assert m.build_seconds == 0.5
    assert found[2].protocol == "estimate: toy model 1.0"
    assert found[2].toolchain == Toolchain((("toy", "1.0"),))
    assert found[3].resources == Resources(48, 3072, 100, 128)


@pytest.mark.usefixtures("toy_priced")
def test_what_does_not_build_is_no_better_for_its_estimate():
    m = evaluated([1])[1]
    assert (m.status, m.estimate) == (Status.BUILD_FAILED, None)
    assert m.reason == "TILE 1 needs 300000 B of shared memory > 232448 B a block"
    assert m.build_seconds >= 0


@pytest.mark.usefixtures("toy_priced")
def test_what_the_model_has_no_opinion_of_is_not_built():
    m = evaluated([10])[10]
    assert (m.status, m.reason) == (Status.INVALID, "toy model 1.0 has no estimate of it")
    assert m.build_seconds is None


@pytest.mark.usefixtures("toy_priced")
def test_pruners_are_asked_before_the_build_and_after_it():
    no_sevens = SimpleNamespace(
        judge=lambda candidate, history: (
            Verdict.no("seven", "TILE 7") if candidate.config["TILE"] == 7 else Verdict.yes()
        )
    )
    found = evaluated([2, 3, 7], pruners={"sevens": no_sevens, "static": StaticPruner()})
    assert found[2].status is Status.OK
    built, unbuilt = found[3], found[7]
    assert (built.status, built.reason) == (Status.INVALID, "pruned by static: 100 B spilled per thread > 64 B")
    assert (built.protocol, built.build_seconds) == ("estimate: toy model 1.0", 0.5)
    assert (unbuilt.status, unbuilt.reason) == (Status.INVALID, "pruned by sevens: TILE 7")
    assert (unbuilt.protocol, unbuilt.build_seconds) == (UNBUILT, None)


@pytest.mark.usefixtures("toy_priced")
def test_it_starts_no_process_for_nothing_and_holds_no_final():
    executor = EstimateExecutor({TASK.space: registry.space(TASK.space)})
    assert (executor.holds_finals, executor.collect(0.0)) == (False, [])
    with pytest.raises(ContractError, match="asked for a final"):
        executor.hold_final([(TASK, Config({"TILE": 2}))])
    executor.close()
