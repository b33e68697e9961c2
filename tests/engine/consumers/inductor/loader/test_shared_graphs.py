"""One graph serves every m of a row's range, by Dynamo's own guards, without a GPU."""

from __future__ import annotations

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow

pytestmark = pytest.mark.slow(5, together="probes")

TILES = {"BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 4, "num_stages": 3, "num_warps": 4}


def ranged(first, last, block_m):
    problem = Problem.parse(f"{last}x384x512:bf16:nt:addmm:dynamic_m=true")
    config = Config({**TILES, "BLOCK_M": block_m})
    choice = Choice("triton_mm", config, 100.0, 99.0, 101.0, 1, Evidence.MEASURED, "by hand", "p")
    return RangeRow(problem, first, last, choice, ((last, 0.0),))


@pytest.fixture(scope="module")
def found(probed, exported):
    return probed("shared_graph_probe.py", exported(ranges=(ranged(2, 64, 16), ranged(65, 256, 64))))


def test_a_graph_is_compiled_for_each_range_and_serves_all_of_it(found):
    graphs = {m: each["graphs"] for m, each in found["sizes"].items()}
    assert graphs == {"16": 1, "32": 0, "100": 1, "200": 0, "60": 0, "1000": 1}


def test_each_graph_has_the_row_of_its_range_and_the_last_has_none(found):
    assert found["blocks"] == ["16", "64", None]
