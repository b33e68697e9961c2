"""Binaries travel as bytes, and each job and each artifact gets files of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gemmtune.engine.execution.ray.actor import pack_job, take_binary, unpack_job, with_binary
from gemmtune.engine.measure.builder import BuildFailure, BuildJob
from gemmtune.engine.measure.jobs import FinalJob, MeasureJob
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task

TASK = Task(Problem(16, 64, 64), catalogue.device("H200"), "toy")


def artifact(path: str) -> Artifact:
    return Artifact("key", "toy", path, "digest", (("entry", "kernel"),), None, 0.5, Toolchain(()))


def job(built: Artifact, x: int = 0) -> MeasureJob:
    return MeasureJob(TASK, Config({"x": x}), built)


@pytest.fixture
def machines(tmp_path):
    """Folders of a builder, of the driver and of a worker."""
    for name in ("builder", "driver", "worker"):
        (tmp_path / name).mkdir()
    return tmp_path


def arrived(machines: Path, content: bytes) -> Artifact:
    """An artifact at the driver, after its build."""
    file = machines / "builder" / "k.cubin"
    file.write_bytes(content)
    built = artifact(str(file))
    result = with_binary(built, take_binary(built), machines / "driver")
    assert isinstance(result, Artifact)
    assert not file.exists(), "the builder keeps nothing"
    return result


def test_a_binary_arrives_whole_in_a_file_of_its_own(machines):
    first, second = arrived(machines, b"one"), arrived(machines, b"one")
    assert first.path != second.path
    assert {Path(a.path).read_bytes() for a in (first, second)} == {b"one"}
    assert Path(first.path).suffix == ".cubin"
    assert first.launch == (("entry", "kernel"),)


def test_results_and_jobs_without_a_file_travel_unchanged():
    vendor, failure, build = artifact(""), BuildFailure("no", 0.1), BuildJob(TASK, Config({"x": 0}))
    assert take_binary(vendor) == take_binary(failure) == b""
    assert with_binary(vendor, b"", Path()) is vendor
    assert with_binary(failure, b"", Path()) is failure
    assert unpack_job(pack_job(job(vendor)), Path()) == job(vendor)
    assert unpack_job(pack_job(build), Path()) == build


def test_each_finalist_gets_its_own_binary(machines):
    final = FinalJob((job(arrived(machines, b"one"), 1), job(artifact(""), 2), job(arrived(machines, b"two"), 3)))
    sent: Any = unpack_job(pack_job(final), machines / "worker")
    assert [finalist.config["x"] for finalist in sent.finalists] == [1, 2, 3]
    assert [f.artifact.path and Path(f.artifact.path).read_bytes() for f in sent.finalists] == [b"one", "", b"two"]
    assert {Path(f.artifact.path).parent for f in sent.finalists if f.artifact.path} == {machines / "worker"}
