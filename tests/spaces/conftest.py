from __future__ import annotations

from pathlib import Path

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.problem import Problem

_TEMPLATES = {"mm": "triton::mm", "addmm": "triton::mm", "bmm": "triton::bmm"}
_TILE = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}


@pytest.fixture
def rendered(tmp_path):
    """Render a problem's kernel for a GPU: (the source, the Rendering)."""
    from gemmtune.spaces.inductor.render import render
    from gemmtune.spaces.inductor.target import environment, target

    def fill_in(problem, sku="H200", template=None, **changes):
        parsed = Problem.parse(problem)
        with environment(str(tmp_path)), target(catalogue.device(sku)):
            rendering = render(template or _TEMPLATES[parsed.op], parsed, Config(_TILE | changes))
        return Path(rendering.module_path).read_text(), rendering

    return fill_in
