from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem

_TILE = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}


@pytest.fixture
def rendered(tmp_path):
    """Render a problem's kernel for a GPU: (the source, the Rendering)."""
    from gemmtune.spaces.inductor.render import render
    from gemmtune.spaces.inductor.target import environment, target

    def fill_in(problem, sku="H200", **changes):
        parsed = Problem.parse(problem)
        with environment(str(tmp_path)), target(catalogue.device(sku)):
            rendering = render(parsed, Config(_TILE | changes))
        return Path(rendering.kernel.module_path).read_text(), rendering

    return fill_in


@pytest.fixture
def warps_of_32(monkeypatch):
    """Tell Inductor the size of a GPU's warps: torch 2.15 prunes no list where no GPU answers."""
    cuda = pytest.importorskip("torch", reason="torch is not installed").cuda
    monkeypatch.setattr(cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda, "get_device_properties", lambda *_: SimpleNamespace(warp_size=32))
