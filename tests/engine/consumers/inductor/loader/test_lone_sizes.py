"""No graph with a dynamic m is left with one size, and `gemmtune show --graphs` shows what the loader serves.

Guards that leave one size pin m: ConstraintViolationError where the dimension was marked dynamic. A table has no lone
sizes; here two products cut each other's ranges, m is a multiple of a size, and ranges have gaps.
"""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random

import pytest

from gemmtune.engine.consumers.inductor.graphs.guards import product_ranges
from gemmtune.engine.consumers.inductor.graphs.layers import Product
from gemmtune.engine.consumers.inductor.loader.graph_sizes import cut_sizes
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow

pytestmark = pytest.mark.slow(5, together="probes")

TILES = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}
SPANS = {
    96: ((3, 16, 32), (17, 64, 64), (66, 128, 128)),  # 2 and 65 have no row
    64: ((2, 15, 16), (16, 64, 32)),  # with the ranges of n = 96, 16 is alone
    128: ((65, 128, 16), (129, 256, 32), (257, 1024, 64)),  # of m = 128·s, s = 2 is alone
    32: ((2, 4, 64), (5, 6, 16), (7, 64, 32)),  # of m = s·t, (2, 3) and (3, 2) are alone
}
"""Ranges by n, as (first, last, BLOCK_M)."""

GRAPHS = [
    ([2], 1, (96,), ["32"], [[2, 16]]),
    ([5], 1, (96,), ["32"], [[2, 16]]),
    ([65], 1, (96,), ["128"], [[65, 128]]),
    ([64], 1, (96,), ["64"], [[17, 64]]),
    ([500], 1, (96,), [None], [[129, None]]),
    ([16], 1, (96, 64), ["32", "16"], [[2, 16]]),
    ([15], 1, (96, 64), ["32", "16"], [[2, 16]]),
    ([16], 1, (64, 96), ["32", "64"], [[16, 64]]),
    ([15], 1, (64, 96), ["16", "32"], [[2, 15]]),
    ([2], 128, (128,), ["64"], [[2, 8]]),
    ([3], 128, (128,), ["64"], [[2, 8]]),
    ([9], 128, (128,), [None], [[9, None]]),
    ([2, 2], "product", (32,), ["16"], [[2, None], [2, None]]),  # torch gives equal sizes one symbol: s², from 4 on
    ([2, 3], "product", (32,), ["16"], [[2, None], [2, None]]),  # the guard is on the product
    ([4, 5], "product", (32,), ["32"], [[2, None], [2, None]]),
]
"""First sizes of the input, m as their multiple or product, n of each product, its BLOCK_M, and the sizes served."""


def rows():
    def row(n, first, last, block_m):
        problem = Problem.parse(f"{last}x{n}x256:bf16:nt:dynamic_m=true")
        config = Config({**TILES, "BLOCK_M": block_m})
        choice = Choice("triton_mm", config, 100.0, 99.0, 101.0, 32, Evidence.MEASURED, "torch 2.13.0", "p")
        return RangeRow(problem, first, last, choice, ((last, 0.0),))

    return tuple(row(n, *span) for n, spans in SPANS.items() for span in spans)


def case(n):
    shape = {"name": f"n={n}", "op": "mm", "batch": 1, "n": n, "k": 256}
    return {**shape, "dtype": "bfloat16", "layout": "nt", "bias": "none"}


@pytest.fixture(scope="module")
def answers(probed, exported):
    graphs = [{"sizes": sizes, "m": m, "cases": [case(n) for n in products]} for sizes, m, products, _, _ in GRAPHS]
    return probed("lone_size_probe.py", exported(ranges=rows()), json.dumps(graphs))


@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_no_graph_of_a_dynamic_m_serves_a_single_size(answers, number):
    *_, blocks, serves = GRAPHS[number]
    assert answers[number] == {"blocks": blocks, "serves": serves, "refusal": ""}


@pytest.mark.parametrize("number", [n for n, (_, m, *_) in enumerate(GRAPHS) if m == 1])
def test_a_report_shows_the_ranges_that_the_loader_serves(number):
    (m,), _, ns, blocks, (serves,) = GRAPHS[number]
    products = [Product("forward", None, 256, n) for n in ns]
    found = product_ranges(products, DType.BF16, "2.13", catalogue.device("H200"), rows=rows())
    (graph,) = [each for each in found if each.first <= m <= (each.last or m)]
    last = None if serves[1] is None else graph.last  # ends only at the width of an index
    assert [graph.first, last] == serves
    hits = [graph.rows.get(str(product)) for product in products]
    assert [row and str(row.choice.config["BLOCK_M"]) for row in hits] == blocks
    assert all(each.first != each.last for each in found)


def test_parts_follow_each_other_and_none_has_a_single_size():
    for seed in range(200):
        random = Random(seed)
        edges = sorted(random.sample(range(1, 30), 2 * random.randint(0, 6)))
        least = random.randint(2, 10)
        greatest = random.choice([random.randint(least, 35), 2**63 - 1])
        parts = cut_sizes(list(zip(edges[::2], edges[1::2], strict=True)), least, greatest)
        assert [parts[0][1], parts[-1][2]] == [least, greatest], seed
        assert all(one[2] + 1 == other[1] for one, other in pairwise(parts)), seed
        assert len(parts) == 1 or all(first < last for _, first, last in parts), seed


@pytest.mark.parametrize(
    ("ranges", "parts"),
    [
        ([], [(None, 2, 99)]),
        ([(2, 16), (17, 64)], [(0, 2, 16), (1, 17, 64), (None, 65, 99)]),
        ([(3, 16)], [(0, 2, 16), (None, 17, 99)]),  # 2 joins the range after it
        ([(2, 16), (18, 64)], [(0, 2, 16), (1, 17, 64), (None, 65, 99)]),  # 17 joins the range after it
        ([(2, 98)], [(0, 2, 99)]),  # the greatest size joins the range before it
    ],
)
def test_a_lone_size_joins_the_part_after_it_and_the_greatest_the_part_before(ranges, parts):
    assert cut_sizes(ranges, 2, 99) == parts
