"""Guards of a table's ranges, questions about speed, and ends of ranges, without torch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.consumers.inductor.graphs.guards import Guard, Range, product_ranges, rows_of
from gemmtune.engine.consumers.inductor.graphs.layers import Product
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType, Op
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow

H200, A100, L4 = map(catalogue.device, ("H200", "A100", "L4"))
SLOW = replace(H200, memory_bandwidth_gb_s=1.0)
"""A GPU outside of Inductor's datasheet whose balance some products exceed, and some do not."""
FORWARD = Product("forward", None, 256, 96, "nt", (Op.MM, Op.ADDMM))
GRADIENT = Product("weight gradient", 96, None, 256, "tn")
GEMM = Problem.parse("64x96x256:bf16:nt:dynamic_m=true")
INDEX = (2**31 - 1) // 256


def row(first, last, space="triton_mm", problem=GEMM):
    config = Config({"BLOCK_M": 16} if space == "triton_mm" else {})
    choice = Choice(space, config, 100.0, 99.0, 101.0, 32, Evidence.MEASURED, "torch 2.13.0", "p")
    return RangeRow(replace(problem, m=last), first, last, choice, ((last, 0.0),))


def cut(*rows, products=(FORWARD,), **how):
    """Return first and last size of each graph, with the first size of the row that each product runs."""
    found = product_ranges(products, DType.BF16, "2.13", H200, rows=rows, **how)
    return [(each.first, each.last, [its.first for its in each.rows.values()]) for each in found]


def test_without_rows_only_the_index_ends_a_graph():
    assert cut() == [(2, INDEX, []), (INDEX + 1, None, [])]
    assert cut(first=5, end=64) == [(5, 64, [])]
    assert cut(end=INDEX) == [(2, INDEX, [])]
    assert cut(end=INDEX + 5) == [(2, INDEX, []), (INDEX + 1, INDEX + 5, [])]
    assert cut(first=64, end=64) == [(64, 64, [])]


@pytest.mark.parametrize(
    ("rows", "graphs"),
    [
        ([(2, 16)], [(2, 16, [2]), (17, 99, [])]),
        ([(2, 16), (17, 64)], [(2, 16, [2]), (17, 64, [17]), (65, 99, [])]),
        ([(17, 64), (2, 16)], [(2, 16, [2]), (17, 64, [17]), (65, 99, [])]),
        ([(5, 16)], [(2, 4, []), (5, 16, [5]), (17, 99, [])]),
        ([(2, 16), (20, 64)], [(2, 16, [2]), (17, 19, []), (20, 64, [20]), (65, 99, [])]),
        ([(2, 16, "aten")], [(2, 99, [2])]),  # no guard is set for the vendor library
        ([(2, 16), (17, 64, "aten")], [(2, 16, [2]), (17, 99, [17])]),
        ([(17, 64, "aten")], [(2, 99, [])]),
    ],
)
def test_the_rows_of_a_product_cut_its_graphs(rows, graphs):
    assert cut(*(row(*each) for each in rows), end=99) == graphs


def test_a_rows_guard_says_what_runs_and_where_it_is_set():
    inside, beyond = product_ranges((FORWARD,), DType.BF16, "2.13", H200, rows=[row(5, 16)], first=5, end=99)
    name, file = "forward mm(m×256, 256×96)", "gemmtune_inductor"
    assert inside.guards[-1] == Guard(5, 16, "the row of m 5–16", name, file)
    assert beyond.guards[-1] == Guard(17, None, "no row but the vendor library's", name, file)
    assert (inside.guards[-1].text, beyond.guards[-1].text) == ("m <= 16", "m >= 17")
    assert inside.ends == inside.guards[-1:]
    assert inside.rows == {name: row(5, 16)}
    assert (beyond.ends, beyond.rows) == ((), {})
    index = inside.guards[0]
    assert (index.first, index.last, index.asked) == (2, INDEX, "m·256 <= 2³¹-1")
    assert index.source == "torch/_inductor/codegen/simd.py: can_use_32bit_indexing"


def test_two_products_cut_each_others_graphs():
    other = replace(FORWARD, role="other", n=64)
    rows = [row(2, 16), row(17, 64), row(2, 32, problem=replace(GEMM, n=64)), row(33, 64, problem=replace(GEMM, n=64))]
    assert cut(*rows, products=(FORWARD, other), end=99) == [
        (2, 16, [2, 2]),
        (17, 32, [17, 2]),
        (33, 64, [17, 33]),
        (65, 99, []),
    ]


@pytest.mark.parametrize(
    "problem",
    [
        "64x96x256:bf16:nt",
        "64x96x256:fp16:nt:dynamic_m=true",
        "64x96x256:bf16:nn:dynamic_m=true",
        "64x97x256:bf16:nt:dynamic_m=true",
        "64x96x257:bf16:nt:dynamic_m=true",
    ],
)
def test_rows_of_another_product_cut_nothing(problem):
    other = row(2, 16, problem=Problem.parse(problem))
    assert rows_of([FORWARD], DType.BF16, [other]) == {str(FORWARD): []}
    assert cut(other, end=99) == [(2, 99, [])]


def test_rows_with_a_bias_are_of_a_layers_product_and_those_of_a_gradient_of_none():
    with_bias = row(2, 16, problem=Problem.parse("64x96x256:bf16:nt:addmm:dynamic_m=true"))
    later = row(17, 64)
    found = rows_of([FORWARD, GRADIENT], DType.BF16, [later, with_bias])
    assert found == {str(FORWARD): [with_bias, later]}
    assert rows_of([replace(FORWARD, ops=(Op.MM,))], DType.BF16, [with_bias]) == {str(FORWARD): []}


@pytest.mark.parametrize(
    ("dtype", "device", "balance"),
    [
        (DType.BF16, L4, 1000 * 242.0 / L4.memory_bandwidth_gb_s / 2),
        (DType.FP16, L4, 1000 * 242.0 / L4.memory_bandwidth_gb_s / 2),
        (DType.FP32, L4, 1000 * 30.3 / L4.memory_bandwidth_gb_s / 2),
        (DType.FP16, SLOW, 2048e-6 * SLOW.sm_count * SLOW.boost_clock_mhz / 2),
        (DType.FP32, SLOW, 128e-6 * SLOW.sm_count * SLOW.boost_clock_mhz / 2),
    ],
)
def test_the_padding_pass_asks_for_the_arithmetic_beyond_a_gpus_balance(dtype, device, balance):
    product = Product("forward", None, 4098, 4098)
    (first, *_) = product_ranges((product,), dtype, "2.11", device, first=4000, end=4000)
    assert f"arithmetic intensity > {balance:.6g}" in [guard.asked for guard in first.guards]


@pytest.mark.parametrize(
    ("product", "device", "m", "asked"),
    [
        (Product("p", None, 3420, 1282), SLOW, 100, ["K > M, 3420 > m", "arithmetic"]),  # and k > n without m
        (
            Product("p", None, 3420, 1282),
            A100,
            100,
            ["K > M, 3420 > m"],
        ),  # of a k beyond both, GPUs before Hopper decide
        (Product("p", None, 1280, 3421), SLOW, 100, ["K > M, 1280 > m", "arithmetic"]),
        (
            Product("p", None, 1280, 3421),
            replace(A100, memory_bandwidth_gb_s=1.0),
            100,
            ["K > M, 1280 > m", "arithmetic"],
        ),
        (Product("p", None, 3420, 1282), SLOW, 5000, ["K > M, 3420 > m", "arithmetic"]),
        (Product("p", 1282, None, 3420), SLOW, 100, ["K > M, m > 1282", "arithmetic"]),
        (Product("p", None, 1280, 1280), SLOW, 100, []),  # nothing to pad
        (Product("p", None, 1, 1280), SLOW, 100, []),
        (Product("p", None, 1284, 1288), SLOW, 100, ["K > M, 1284 > m", "arithmetic"]),
    ],
)
def test_the_padding_pass_asks_in_order_up_to_the_question_that_decides(product, device, m, asked):
    (found, *_) = product_ranges((product,), DType.BF16, "2.11", device, first=m, end=m)
    texts = [guard.asked for guard in found.guards if "2³¹" not in guard.asked]
    assert [text if text.startswith("K") else text.split()[0] for text in texts] == asked
    assert not [
        guard
        for guard in product_ranges((product,), DType.BF16, "2.12", device, first=m, end=m)[0].guards
        if "2³¹" not in guard.asked
    ]


def test_a_range_that_ends_at_no_guard_has_no_ends():
    guard = Guard(2, None, "asked", "product", "source")
    assert Range(2, None, (guard,)).ends == Range(2, 16, (guard,)).ends == ()
    assert guard.text == "m >= 2"
