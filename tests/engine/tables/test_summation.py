"""Batch-invariant tables: the order of summation that serves a series, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError, UsageError
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice
from gemmtune.engine.tables.diff import merge_tables
from gemmtune.engine.tables.earlier import Fate, read_earlier, with_earlier
from gemmtune.engine.tables.loss_limits import RangeLimits
from gemmtune.engine.tables.ranking import Contender, Ranking
from gemmtune.engine.tables.summation import invariant_table, orders_by_loss
from gemmtune.engine.tables.table_file import parse_table, table_text, write_table

GEMM = Problem.parse("16x4096x4096:bf16:nt:dynamic_m=true")
ATEN = ("aten", Config({}))
H200 = catalogue.device("H200")


def tile(block_m, block_k):
    return "triton_mm", Config({"BLOCK_M": block_m, "BLOCK_K": block_k})


def ranking(m, times, bits=None, weight=1.0, gemm=GEMM):
    """Return the ranking of one m from choice to time in ns; `bits` names the digest of choices."""
    contenders = []
    for (space, config), time_ns in sorted(times.items(), key=lambda item: item[1]):
        interval = time_ns, time_ns * 0.9999, time_ns * 1.0001
        choice = Choice(space, config, *interval, 32, Evidence.MEASURED, "torch 2.11.0", "p")
        digest = (bits or {}).get((space, config), "" if space == "aten" else "equal")
        contenders.append(Contender(choice, time_ns, 0, None, digest))
    problem = replace(gemm, m=m, weight=weight)
    return Ranking(problem, tuple(contenders), next((c for c in contenders if c.choice.space == "aten"), None), None)


def summation_of(problem, space, config):
    return "" if space == "aten" else f"BLOCK_K {config['BLOCK_K']}"


def table(*rankings):
    return invariant_table(H200, "latency", rankings, summation_of, limits=RangeLimits())


SMALL, LARGE, DEEP = tile(16, 64), tile(128, 64), tile(128, 128)
MEASURED = (
    ranking(16, {SMALL: 100.0, LARGE: 160.0, DEEP: 90.0, ATEN: 95.0}),
    ranking(4096, {SMALL: 1500.0, LARGE: 790.0, DEEP: 1000.0, ATEN: 700.0}),
)


def test_the_order_that_loses_least_over_all_sizes_serves_each_of_them():
    rows = table(*MEASURED).rows
    assert [(row.problem.m, [choice.config for choice in row.choices]) for row in rows] == [
        (16, [SMALL[1]]),
        (4096, [LARGE[1]]),
    ]
    # BLOCK_K 64 loses 0.11 and 0.13, BLOCK_K 128 loses 0 and 0.43.
    assert [row.loss for row in rows] == [pytest.approx(100 / 90 - 1), pytest.approx(790 / 700 - 1)]
    assert [row.lead for row in rows] == [pytest.approx(95 / 100 - 1), pytest.approx(700 / 790 - 1)]


def test_weights_decide_which_sizes_may_lose():
    decoding = (replace(MEASURED[0], problem=replace(MEASURED[0].problem, weight=10.0)), MEASURED[1])
    assert [row.choices[0].config for row in table(*decoding).rows] == [DEEP[1], DEEP[1]]


def test_ranges_have_choices_of_the_order_alone_whatever_the_vendor_library_takes():
    small, large = table(*MEASURED).ranges
    assert (small.choice.config, large.choice.config) == (SMALL[1], LARGE[1])
    assert (small.first, small.last + 1, large.last) == (16, large.first, 4096)


def test_kernels_whose_bits_differ_have_different_orders():
    bits = {SMALL: "one", LARGE: "other", DEEP: "deep"}
    measured = [ranking(each.problem.m, times_of(each), bits) for each in MEASURED]
    orders = orders_by_loss(measured, summation_of)[GEMM.bits_series]
    assert orders[0] == ("triton_mm", "BLOCK_K 128", "deep")
    assert [row.choices[0].config for row in table(*measured).rows] == [DEEP[1], DEEP[1]]


def test_a_kernel_whose_bits_were_not_compared_has_no_row():
    measured = [ranking(each.problem.m, times_of(each), {SMALL: "", LARGE: ""}) for each in MEASURED]
    assert [row.choices[0].config for row in table(*measured).rows] == [DEEP[1], DEEP[1]]


def times_of(ranking):
    return {(c.choice.space, c.choice.config): c.score for c in ranking.contenders}


def test_a_series_without_an_order_for_all_of_its_sizes_has_no_row():
    apart = ranking(16, {SMALL: 100.0, ATEN: 95.0}), ranking(4096, {DEEP: 1000.0, ATEN: 700.0})
    other = replace(GEMM, n=512)
    whole = ranking(16, {SMALL: 50.0}, gemm=other), ranking(64, {SMALL: 60.0}, gemm=other)
    found = table(*apart, *whole)
    assert {row.problem.n for row in found.rows} == {512}
    assert {row.problem.n for row in found.ranges} == {512}


def test_static_and_dynamic_sizes_of_one_product_have_one_order():
    static = replace(GEMM, dynamic_m=False)
    found = table(ranking(1, {SMALL: 90.0, DEEP: 50.0, ATEN: 95.0}, gemm=static), *MEASURED)
    assert [row.choices[0].config for row in found.rows] == [DEEP[1]] * 3


def test_the_tables_file_carries_that_it_is_batch_invariant():
    found = table(*MEASURED)
    text = table_text(found)
    assert '"batch_invariant": true' in text
    assert parse_table(text, "text").batch_invariant
    assert "batch_invariant" not in table_text(replace(found, batch_invariant=False))


def test_a_batch_invariant_table_is_joined_and_merged_with_no_other(tmp_path):
    found = table(*MEASURED)
    plain = replace(found, batch_invariant=False)
    write_table(tmp_path / "table.json", plain)
    with pytest.raises(UsageError, match="not batch-invariant, and their rows do not mix"):
        read_earlier(tmp_path / "table.json", H200, "latency", batch_invariant=True)
    write_table(tmp_path / "table.json", found)
    assert read_earlier(tmp_path / "table.json", H200, "latency", batch_invariant=True) == found
    with pytest.raises(UsageError, match="this table is batch-invariant, and the new one is not"):
        read_earlier(tmp_path / "table.json", H200, "latency")
    with pytest.raises(TableError, match="merged with no others"):
        merge_tables({"a": found, "b": plain})


def test_a_series_that_is_tuned_again_keeps_no_row_of_another_order():
    other = replace(GEMM, n=512)
    kept = ranking(16, {SMALL: 50.0}, gemm=other), ranking(64, {SMALL: 60.0}, gemm=other)
    earlier = table(*MEASURED, *kept)
    now = table(ranking(16, {DEEP: 50.0}), ranking(64, {DEEP: 60.0}))
    joined, fates = with_earlier(now, earlier, {row.problem for row in now.rows})
    assert joined.batch_invariant
    assert {(gemm(row.problem).n, row.choices[0].config["BLOCK_K"]) for row in joined.rows} == {(4096, 128), (512, 64)}
    assert {(gemm(row.problem).n, row.choice.config["BLOCK_K"]) for row in joined.ranges} == {(4096, 128), (512, 64)}
    assert [fate.before.problem.size for fate in fates if fate.fate is Fate.DROPPED] == [4096]


def test_a_faster_config_of_the_order_leads_a_finalist_of_it():
    whole = MEASURED[0]
    finalist = next(c for c in whole.contenders if (c.choice.space, c.choice.config) == LARGE)
    others = [replace(c, rank=1) for c in whole.contenders if c is not finalist]
    first = replace(whole, contenders=(finalist, *others))
    assert [row.choices[0].config for row in table(first, MEASURED[1]).rows] == [SMALL[1], LARGE[1]]
