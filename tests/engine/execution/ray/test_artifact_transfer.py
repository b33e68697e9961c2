"""Binaries travel under the hash of their content, and are written once a machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from gemmtune.engine.execution.ray import artifact_transfer as parcels
from gemmtune.engine.execution.ray.artifact_transfer import Cellar, Packed, packed, unpacked
from gemmtune.engine.measure.builder import BuildFailure, BuildJob
from gemmtune.engine.measure.jobs import FinalJob, MeasureJob
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task

TASK = Task(Problem(16, 64, 64), catalogue.device("H200"), "toy")


def artifact(path: str) -> Artifact:
    return Artifact("key", "toy", path, "digest", (("entry", "kernel"),), None, 0.5, Toolchain(()))


def job(built: Artifact, x: int = 0) -> MeasureJob:
    return MeasureJob(TASK, Config({"x": x}), built)


@pytest.fixture
def site(tmp_path):
    """Folders of a builder, of the driver and of a worker."""
    for name in ("builder", "driver", "worker"):
        (tmp_path / name).mkdir()
    return tmp_path


def arrived(site: Path, content: bytes) -> Artifact:
    """What a builder has built, at the driver."""
    file = site / "builder" / "k.cubin"
    file.write_bytes(content)
    result = unpacked(packed(artifact(str(file))), site / "driver")
    assert isinstance(result, Artifact)
    assert not file.exists(), "the builder keeps nothing"
    return result


def test_a_binary_arrives_whole_in_a_file_of_its_own(site):
    first, second = arrived(site, b"one"), arrived(site, b"one")
    assert first.path != second.path
    assert {Path(a.path).read_bytes() for a in (first, second)} == {b"one"}
    assert Path(first.path).suffix == ".cubin"
    assert first.launch == (("entry", "kernel"),)
    assert Cellar.needs(job(first)).keys() == {hashlib.sha256(b"one").hexdigest()}


def test_what_has_no_file_travels_as_it_is():
    library, failure = artifact(""), BuildFailure("no", 0.1)
    assert packed(library) is library
    assert packed(failure) is failure
    assert unpacked(failure, Path()) is failure
    assert Cellar.needs(job(library)) == {}
    assert Cellar.needs(BuildJob(TASK, Config({"x": 0}))) == {}


def test_a_machine_writes_one_content_once_and_loads_its_own_file(site):
    cellar = Cellar(site / "worker")
    first, again, other = arrived(site, b"one"), arrived(site, b"one"), arrived(site, b"two")
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("one", "two")}
    placed = cellar.place(job(first), {digests["one"]: b"one"})
    assert Path(placed.artifact.path).parent == site / "worker"
    final = cellar.place(FinalJob((job(again, 1), job(other, 2))), {digests["two"]: b"two"})
    assert [Path(f.artifact.path).read_bytes() for f in final.finalists] == [b"one", b"two"]
    assert [f.config["x"] for f in final.finalists] == [1, 2]
    assert len(list((site / "worker").iterdir())) == 2


def test_a_machine_keeps_the_latest_only(site, monkeypatch):
    monkeypatch.setattr(parcels, "_MOST_FILES", 2)
    cellar = Cellar(site / "worker")
    for content in (b"one", b"two", b"one", b"three"):
        placed = cellar.place(job(arrived(site, content)), {hashlib.sha256(content).hexdigest(): content})
        assert Path(placed.artifact.path).read_bytes() == content
    assert {path.read_bytes() for path in (site / "worker").iterdir()} == {b"one", b"three"}


def test_a_packed_artifact_tells_no_path_of_the_machine_it_comes_from(site):
    file = site / "builder" / "k.cubin"
    file.write_bytes(b"one")
    parcel = packed(artifact(str(file)))
    assert isinstance(parcel, Packed)
    assert parcel.artifact.path == ".cubin"
