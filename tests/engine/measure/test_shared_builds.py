from __future__ import annotations

from pathlib import Path

from gemmtune.engine.measure.builder import SharedBuilds
from gemmtune.engine.records.artifact import Artifact, Toolchain


def artifact(folder, key="shared", binary=b"kernel"):
    path = folder / "built.o"
    path.write_bytes(binary)
    return Artifact(key, "toy", str(path), "0" * 64, (("entry", "f"),), None, 0.5, Toolchain((("toy", "1"),)))


def test_a_shared_build_is_copied_to_a_file_per_task(tmp_path):
    shared, built = SharedBuilds(tmp_path / "shared"), artifact(tmp_path)
    shared.add(built)
    Path(built.path).unlink()  # its task has been measured
    for name in ("first", "second"):
        found = shared.find("shared", tmp_path, name)
        assert found.path == str(tmp_path / f"{name}.o")
        assert Path(found.path).read_bytes() == b"kernel"
        assert (found.key, found.launch, found.build_seconds) == (built.key, built.launch, built.build_seconds)
        Path(found.path).unlink()


def test_an_unknown_key_is_not_found_and_leaves_nothing(tmp_path):
    assert SharedBuilds(tmp_path / "shared").find("shared", tmp_path, "first") is None
    assert not any(tmp_path.iterdir())


def test_builders_on_one_folder_share_their_builds(tmp_path):
    SharedBuilds(tmp_path / "shared").add(artifact(tmp_path))
    SharedBuilds(tmp_path / "shared").add(artifact(tmp_path, binary=b"the same key again"))
    found = SharedBuilds(tmp_path / "shared").find("shared", tmp_path, "first")
    assert Path(found.path).read_bytes() == b"the same key again"
    assert SharedBuilds(tmp_path / "shared").find("another", tmp_path, "first") is None
