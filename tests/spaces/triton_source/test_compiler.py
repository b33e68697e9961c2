"""Settings of a build, and what its binary occupies: with a binary and a disassembler that only tell."""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace

import pytest

from gemmtune.engine.toolchain.ptxas import PTXAS_VARIABLE
from gemmtune.engine.toolchain.releases import FP_FUSION_VARIABLE

triton = pytest.importorskip("triton", reason="triton is not installed")

from gemmtune.engine.records import catalogue  # noqa: E402
from gemmtune.engine.records.artifact import Resources  # noqa: E402
from gemmtune.engine.seams.space import BuildError  # noqa: E402
from gemmtune.spaces.triton_source import compiler as module  # noqa: E402

USAGE = "Function k:\n  REG:168 STACK:24 SHARED:0 LOCAL:0"


@pytest.fixture
def usage(monkeypatch):
    asked = []

    def run(command, **_):
        asked.append(command[1:])
        return SimpleNamespace(stdout=made.text)

    made = SimpleNamespace(text=USAGE, asked=asked)
    monkeypatch.setattr(subprocess, "run", run)
    return made


def binary(profile=0):
    return SimpleNamespace(
        asm={"cubin": b"code"}, metadata=SimpleNamespace(profile_scratch_size=profile, shared=4096, num_warps=8)
    )


def test_a_written_binary_has_its_registers_spills_shared_memory_and_threads(usage, tmp_path):
    file = tmp_path / "k.cubin"
    assert module.write_cubin(binary(), file, catalogue.device("H200")) == Resources(168, 4096, 24, 256)
    assert file.read_bytes() == b"code"
    assert usage.asked == [["-res-usage", file]]


def test_a_binary_that_measures_itself_is_refused_and_not_written(usage, tmp_path):
    with pytest.raises(BuildError, match="wants 128 B to profile itself"):
        module.write_cubin(binary(128), tmp_path / "k.cubin", catalogue.device("H200"))
    assert not list(tmp_path.iterdir())


def test_a_binary_without_resources_is_refused_with_what_was_said(usage, tmp_path):
    usage.text = "\n" + "x" * 300
    with pytest.raises(BuildError, match=f"cuobjdump reports no resources: {'x' * 200}$"):
        module.registers_and_spills(tmp_path / "k.cubin")


@pytest.mark.parametrize(("ptxas", "fuses"), [(None, "1"), ("/opt/ptxas", "1"), (None, "0")])
def test_settings_hold_for_one_build(monkeypatch, ptxas, fuses):
    monkeypatch.setattr(module, "current_ptxas", lambda: ptxas)
    monkeypatch.setenv(FP_FUSION_VARIABLE, fuses)
    monkeypatch.delenv(PTXAS_VARIABLE, raising=False)
    before = dict(os.environ), triton.knobs.compilation.disable_line_info
    with module.compiler_settings("/scratch"):
        assert os.environ["TRITON_CACHE_DIR"] == "/scratch"
        assert os.environ[FP_FUSION_VARIABLE] == fuses
        assert os.environ.get(PTXAS_VARIABLE) == ptxas
        assert triton.knobs.compilation.disable_line_info
    assert (dict(os.environ), triton.knobs.compilation.disable_line_info) == before
