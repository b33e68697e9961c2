"""Facts of releases: sources of templates, and Triton's setting to fuse multiplications and additions."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest

from gemmtune.engine.toolchain import releases
from gemmtune.engine.toolchain.releases import fp_fusion, source_hash

TEMPLATES = ("triton::mm", "triton::bmm", "flex::forward", "flex::backward", "flex::decode")


def test_releases_that_share_a_source_share_its_hash(monkeypatch):
    monkeypatch.setattr(releases, "_installed_sources", lambda *_: [])
    hashes = {name: [source_hash(name, f"{its}.0+cu130") for its in releases.TORCH_VERSIONS] for name in TEMPLATES}
    assert all(len(its) == 64 for of_template in hashes.values() for its in of_template)
    first_with = {name: [its.index(each) for each in its] for name, its in hashes.items()}
    assert first_with == {
        "triton::mm": [0, 1, 1, 1, 1],
        "triton::bmm": [0, 1, 2, 2, 4],
        "flex::forward": [0, 1, 2, 3, 4],
        "flex::backward": [0, 1, 2, 3, 3],
        "flex::decode": [0, 0, 2, 3, 4],
    }


def test_the_known_sources_are_those_of_the_installed_torch(monkeypatch):
    torch = pytest.importorskip("torch")
    read = [source_hash(name, torch.__version__) for name in TEMPLATES]
    monkeypatch.setattr(releases, "_installed_sources", lambda *_: [])
    assert read == [source_hash(name, torch.__version__) for name in TEMPLATES]


def test_a_torch_that_is_neither_known_nor_installed_has_no_known_source():
    assert source_hash("triton::mm", "9.8.0") is None
    assert source_hash("aten::mm", "2.13.0") is None


@pytest.mark.parametrize(
    ("found", "said"), [("2.13.0+cu130", "2.13.0"), ("2.11.0", "2.11.0"), (PackageNotFoundError("torch"), "")]
)
def test_the_installed_torch_is_told_without_its_suffix_and_may_be_none(found, said, monkeypatch):
    def version(name):
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(releases, "version", version)
    assert releases.installed_torch() == said
    assert releases.release_of(said) == ".".join(said.split(".")[:2])


def test_an_unknown_torch_that_is_installed_is_read(tmp_path, monkeypatch):
    folder = tmp_path / "_inductor/kernel/templates"
    folder.mkdir(parents=True)
    (folder / "triton_mm.py.jinja").write_bytes(b"")
    monkeypatch.setattr(releases, "version", lambda _: "9.8.0+cu150")
    spec = type("Spec", (), {"origin": str(tmp_path / "__init__.py")})
    monkeypatch.setattr(releases, "find_spec", lambda _: spec)
    of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert [source_hash("triton::mm", its) for its in ("9.8.0", "9.8.1")] == [of_nothing, None]
    assert source_hash("triton::bmm", "9.8.0") is None


@pytest.mark.parametrize(
    ("environment", "fuses"),
    [
        ({}, True),
        ({"TRITON_DEFAULT_FP_FUSION": "1"}, True),
        ({"TRITON_DEFAULT_FP_FUSION": "On"}, True),
        ({"TRITON_DEFAULT_FP_FUSION": "0"}, False),
        ({"TRITON_DEFAULT_FP_FUSION": ""}, False),
        ({"TRITON_FORCE_DISABLE_FP_FUSION": "1"}, False),
        ({"TRITON_FORCE_DISABLE_FP_FUSION": "0"}, True),
    ],
)
def test_triton_fuses_unless_the_environment_forbids_it(environment, fuses, monkeypatch):
    assert fp_fusion(environment) is fuses
    knobs = pytest.importorskip("triton.knobs").language
    for name in ("TRITON_DEFAULT_FP_FUSION", "TRITON_FORCE_DISABLE_FP_FUSION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if "TRITON_FORCE_DISABLE_FP_FUSION" not in environment:
        assert knobs.default_fp_fusion is fuses
