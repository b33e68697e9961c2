"""The ptxas of builds: the one that Inductor runs, recorded with the artifact."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import ToolchainMissing
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.toolchain import ptxas

GIVEN = (None, "", "/named/ptxas")


def script(path: Path, said: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("given", [None, "", "/named/ptxas"])
def test_builds_select_the_ptxas_that_inductor_selects(given: str | None):
    inductors = pytest.importorskip("torch._inductor.runtime.compile_tasks", reason="torch is not installed")
    with patch.dict(os.environ, {} if given is None else {ptxas.PTXAS_VARIABLE: given}):
        if given is None:
            os.environ.pop(ptxas.PTXAS_VARIABLE, None)
        ours = ptxas.current_ptxas()
        inductors._set_triton_ptxas_path()
        named = os.environ.get(ptxas.PTXAS_VARIABLE)
    assert ours == (Path(named) if named else None)


def test_torchs_bundled_ptxas_is_selected(tmp_path: Path, monkeypatch):
    monkeypatch.delenv(ptxas.PTXAS_VARIABLE, raising=False)
    torch = type("Spec", (), {"origin": str(tmp_path / "torch" / "__init__.py")})
    monkeypatch.setattr(ptxas, "find_spec", lambda _name: torch)
    assert ptxas.current_ptxas() is None
    brought = script(tmp_path / "torch" / "bin" / "ptxas", "")
    assert ptxas.current_ptxas() == brought
    brought.chmod(0o644)
    assert ptxas.current_ptxas() is None


def test_the_variable_comes_first_and_its_ptxas_is_in_the_toolchain(tmp_path: Path, monkeypatch):
    pytest.importorskip("triton")
    named = script(tmp_path / "bin" / "ptxas", "Cuda compilation tools, release 13.9, V13.9.77")
    monkeypatch.setenv(ptxas.PTXAS_VARIABLE, str(named))
    assert ptxas.current_ptxas() == named
    assert dict(registry.space("triton_mm").toolchain().versions)["ptxas"] == "13.9.77"
    monkeypatch.setenv(ptxas.PTXAS_VARIABLE, str(ptxas.triton_ptxas()))
    assert "ptxas" not in dict(registry.space("triton_mm").toolchain().versions)


def test_tritons_own_ptxas_runs():
    own = ptxas.triton_ptxas()
    if own is None:
        pytest.skip("needs triton")
    assert len(ptxas.ptxas_release(own).split(".")) == 3


@pytest.mark.parametrize(("said", "why"), [(None, "does not run"), ("hello", "names no release, but 'hello'")])
def test_a_broken_ptxas_is_refused_with_the_way_out(tmp_path: Path, said: str | None, why: str):
    path = tmp_path / "bin" / "ptxas"
    if said is not None:
        script(path, said)
    with pytest.raises(ToolchainMissing, match=rf"{why}.*unset that"):
        ptxas.ptxas_release(path)


def test_a_build_runs_the_selected_ptxas_and_records_its_release(tmp_path: Path, monkeypatch):
    pytest.importorskip("torch")
    own = ptxas.triton_ptxas()
    if own is None:
        pytest.skip("needs triton")
    monkeypatch.delenv(ptxas.PTXAS_VARIABLE, raising=False)
    torch = type("Spec", (), {"origin": str(tmp_path / "torch" / "__init__.py")})
    monkeypatch.setattr(ptxas, "find_spec", lambda name: torch if name == "torch" else find_spec(name))
    brought = script(tmp_path / "torch" / "bin" / "ptxas", "")
    calls = tmp_path / "calls"
    brought.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec {own} "$@"\n')
    from triton.backends.nvidia import compiler

    with monkeypatch.context() as named:
        named.setenv(ptxas.PTXAS_VARIABLE, str(brought))
        if compiler.get_ptxas(90).path != str(brought):
            pytest.skip(f"this triton does not ask {ptxas.PTXAS_VARIABLE} on sm_90")
    space, task = registry.space("triton_mm"), Task(Problem.parse("64x512x512"), catalogue.device("H200"), "triton_mm")
    artifact = space.build(task, space.seeds(task)[0], tmp_path)
    assert "sm_90a" in calls.read_text()
    assert artifact.toolchain == space.toolchain()
    assert dict(artifact.toolchain.versions)["ptxas"] == ptxas.ptxas_release(own)
