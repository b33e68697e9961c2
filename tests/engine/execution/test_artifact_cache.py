"""The binaries of the fastest configs stay for the final; the files of all others go."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmtune.engine.execution.artifact_cache import ArtifactCache, discard
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task

H200 = catalogue.device("H200")
TASK, OTHER = (Task(Problem(m, 64, 64), H200, "toy") for m in (1, 2))


@pytest.fixture
def artifact(tmp_path):
    """Make an artifact whose file exists."""

    def make(name: str) -> Artifact:
        path = tmp_path / name
        path.write_bytes(b"binary")
        return Artifact(name, "toy", str(path), name, (), None, 0.1, Toolchain(()))

    return make


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def config(x: int) -> Config:
    return Config({"x": x})


def test_the_fastest_stay_and_the_files_of_the_others_go(artifact, tmp_path):
    cache = ArtifactCache(3)
    for x, time_ns in enumerate((50.0, 20.0, 40.0, 10.0, 60.0, 30.0)):
        cache.keep(TASK, config(x), artifact(f"{x}"), time_ns)
        assert len(files(tmp_path)) == min(x + 1, 3)
    assert files(tmp_path) == ["1", "3", "5"]
    assert [cache.find(TASK, config(x)) is not None for x in range(6)] == [False, True, False, True, False, True]
    assert cache.find(TASK, config(3)).path == str(tmp_path / "3")


def test_each_task_has_places_of_its_own(artifact, tmp_path):
    cache = ArtifactCache(1)
    cache.keep(TASK, config(0), artifact("slow"), 50.0)
    cache.keep(OTHER, config(0), artifact("fast"), 1.0)
    assert files(tmp_path) == ["fast", "slow"]
    assert cache.find(TASK, config(1)) is None
    assert cache.find(OTHER, config(0)).key == "fast"


def test_a_task_that_is_cleared_leaves_no_file(artifact, tmp_path):
    cache = ArtifactCache(2)
    for x in range(2):
        cache.keep(TASK, config(x), artifact(f"{x}"), float(x))
    cache.keep(OTHER, config(0), artifact("other"), 1.0)
    cache.clear(TASK)
    cache.clear(TASK)
    assert cache.find(TASK, config(0)) is None
    assert files(tmp_path) == ["other"]


def test_a_kernel_without_a_file_and_a_file_that_is_gone_are_fine(artifact, tmp_path):
    discard(Artifact("aten::mm", "aten", "", "0", (), None, 0.0, Toolchain(())))
    gone = artifact("gone")
    discard(gone)
    discard(gone)
    assert files(tmp_path) == []
