"""Reports on compiled products, without torch."""

from __future__ import annotations

import gc
import json
from threading import Thread

import pytest

from gemmtune.engine.consumers.inductor.exporter import product_key
from gemmtune.engine.consumers.inductor.loader.loader_rows import ProductRow
from gemmtune.engine.consumers.inductor.loader.table_use import (
    NearestRow,
    ProductUse,
    UseLog,
    nearest_row,
    problem_name,
)
from gemmtune.engine.records.problem import Problem


def rows(*problems):
    found = {}
    for problem in map(Problem.parse, problems):
        found.setdefault(product_key(problem), []).append(ProductRow(problem.m, problem.m, "aten::mm", {}))
    return found


def nearest(problem, *problems):
    wanted = Problem.parse(problem)
    return nearest_row(rows(*problems), product_key(wanted), wanted.m)


class Graph:
    """Stand-in for Inductor's graph, which can be referenced weakly."""


@pytest.mark.parametrize(
    "name",
    [
        "16x4096x4096:bf16:nt",
        "16x4096x4096:fp16:tn",
        "16x4096x4096:tf32:nn",
        "16x4096x4096:fp32:nn",
        "16x4096x4096:bf16:nt:addmm",
        "16x4096x4096:bf16:nt:addmm:bias=matrix",
        "16x4096x4096:bf16:nt:addmm:dynamic_m=true",
        "16x4096x4096:bf16:nt:addmm:bias=matrix:dynamic_m=true",
        "6x16x96x256:bf16:nt:bmm",
        "1x16x96x256:bf16:nt:bmm",
    ],
)
def test_the_name_of_a_product_is_that_of_its_problem(name):
    problem = Problem.parse(name)
    assert problem_name(product_key(problem), problem.m) == problem.name == name


@pytest.mark.parametrize(
    ("problem", "differences"),
    [
        ("16x4096x4096:fp16:nt", ("dtype bf16, here fp16",)),
        ("16x4096x4096:bf16:nn", ("layout nt, here nn",)),
        ("32x4096x4096:bf16:nt", ("m 16, here 32",)),
        ("16x2048x4096:bf16:nt", ("n 4096, here 2048",)),
        ("16x4096x4096:bf16:nt:addmm", ("operation mm, here addmm",)),
        ("16x4096x4096:bf16:nt:dynamic_m=true", ("kind of m static, here dynamic",)),
        ("16x4096x4096:bf16:nt", ()),
    ],
)
def test_the_nearest_row_says_what_differs(problem, differences):
    found = nearest(problem, "16x4096x4096:bf16:nt", "8x512x512:fp32:tt")
    assert found == NearestRow("16x4096x4096:bf16:nt", differences)


def test_of_rows_that_differ_in_as_much_the_one_of_the_nearest_sizes_is_the_nearest():
    found = nearest("48x4096x4096", "16x4096x4096", "64x4096x4096", "4096x4096x4096")
    assert found.name == "64x4096x4096:bf16:nt"


def test_a_row_of_the_same_sizes_is_nearer_than_one_of_the_same_dtype_for_another_size():
    found = nearest("16x4096x4096:fp16:nt", "16x4096x4096:bf16:nt", "4096x4096x4096:fp16:nt")
    assert found.differences == ("dtype bf16, here fp16",)


def test_an_empty_table_has_no_nearest_row():
    assert nearest("16x4096x4096") is None


def test_the_report_names_each_miss_once_and_the_command_that_tunes_it():
    log, graph = UseLog("NVIDIA H200"), Graph()
    miss = ProductUse("16x8x8:fp16:nt", "miss", "ATen runs", NearestRow("16x8x8:bf16:nt", ("dtype bf16, here fp16",)))
    assert [log.add(graph, use) for use in (miss, ProductUse("8x8x8:bf16:nt", "row", "triton::mm"), miss)] == [1, 0, 0]
    report = log.report()
    assert (report.products, report.misses) == (3, ("16x8x8:fp16:nt",))
    assert str(report) == (
        "3 products compiled: 1 run a row's kernel, 2 have no row\n"
        "  16x8x8:fp16:nt: miss, ATen runs; nearest row 16x8x8:bf16:nt: dtype bf16, here fp16 (2 times)\n"
        "  8x8x8:bf16:nt: row, triton::mm\n"
        "to tune: gemmtune tune --problem 16x8x8:fp16:nt"
    )
    assert json.loads(json.dumps(report.to_dict()))["without_row"] == 2


def test_a_graph_is_forgotten_when_it_ends_or_is_deleted():
    log, graph, failed = UseLog("NVIDIA H200"), Graph(), Graph()
    use = ProductUse("8x8x8:bf16:nt", "row", "triton::mm")
    log.add(graph, use)
    assert (log.end(graph), log.end(graph)) == ((use,), ())
    log.add(failed, use)
    del failed
    gc.collect()
    assert log.add(Graph(), use)
    assert log.report().products == 3


def test_products_of_many_threads_are_all_counted():
    log, use = UseLog("NVIDIA H200"), ProductUse("8x8x8:bf16:nt", "row", "triton::mm")
    graph = Graph()
    threads = [Thread(target=lambda: [log.add(graph, use) for _ in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.report().counts == {use: 4000}
    assert len(log.end(graph)) == 4000


def test_the_report_names_the_device_of_products_that_no_table_is_for():
    log = UseLog("NVIDIA H200")
    cpu = ProductUse("mm", "other device", "on the CPU")
    assert not log.add(None, cpu)
    assert str(log.report()).splitlines()[0] == "1 product was compiled for the CPU; the table is for NVIDIA H200"
    log.add(None, ProductUse("mm", "failed", "the look-up failed, see the warning"))
    assert str(log.report()).splitlines()[0] == (
        "2 products compiled: 1 are for another device than a GPU, 1 run as without a table, because the loader failed"
    )
    found = log.report().to_dict()
    assert (found["other_device"], found["failed"], found["device"], found["unused"]) == (1, 1, "NVIDIA H200", "")


def test_a_report_has_every_count_and_use_as_json():
    log, nearest = UseLog("NVIDIA H200"), NearestRow("16x8x8:bf16:nt", ("n 8, here 9",))
    outcomes = ("row", "aten row", "next choice", "unused row", "miss", "no problem", "other device", "failed")
    for times, outcome in enumerate(outcomes, start=1):
        for _ in range(times):
            log.add(None, ProductUse(f"p{times}", outcome, "detail", nearest if outcome == "miss" else None))
    found = log.report().to_dict()
    uses = found.pop("uses")
    assert found == {
        "products": 36,
        "rows": 1,
        "aten_rows": 2,
        "next_choices": 3,
        "unused_rows": 4,
        "without_row": 5,
        "no_problem": 6,
        "other_device": 7,
        "failed": 8,
        "device": "NVIDIA H200",
        "unused": "",
        "misses": ["p5"],
    }
    assert uses[0] == {"problem": "p1", "outcome": "row", "detail": "detail", "nearest": None, "count": 1}
    assert uses[4]["nearest"] == {"row": "16x8x8:bf16:nt", "differences": ["n 8, here 9"]}
    assert str(log.report()).splitlines()[0] == (
        "36 products compiled: 1 run a row's kernel, 2 run ATen because a row says so, 3 run a row's next choice, "
        "because its CuTe kernel cannot run here, 4 have a row that cannot be used here, 5 have no row, 6 are no "
        "problem that can be tuned, 7 are for another device than a GPU, 8 run as without a table, because the loader "
        "failed"
    )


def test_a_report_says_why_no_table_is_used_or_that_nothing_was_compiled():
    assert str(UseLog("NVIDIA H200", "torch lacks it").report()) == (
        "no table is used, and torch compiles as without one: torch lacks it"
    )
    assert str(UseLog("NVIDIA H200").report()) == (
        "no product was compiled since install: torch compiled nothing, or took it from its caches"
    )
    log = UseLog("NVIDIA H200")
    for device in ("the CPU", "the XPU"):
        log.add(None, ProductUse("mm", "other device", f"on {device}"))
    assert str(log.report()).splitlines()[0] == (
        "2 products were compiled for the CPU and the XPU; the table is for NVIDIA H200"
    )


@pytest.mark.parametrize(
    ("first", "last", "m", "differences"),
    [(8, 32, 8, ()), (8, 32, 32, ()), (8, 32, 7, ("m 8 to 32, here 7",)), (16, 16, 17, ("m 16, here 17",))],
)
def test_a_row_of_a_range_serves_its_sizes(first, last, m, differences):
    key = product_key(Problem.parse("16x8x8:bf16:nt"))
    found = nearest_row({key: [ProductRow(first, last, "aten::mm", {})]}, key, m)
    assert found.differences == differences
    assert found.name == ("16x8x8:bf16:nt" if first == last else "32x8x8:bf16:nt (m 8 to 32)")


@pytest.mark.parametrize(
    ("problems", "nearest_name"),
    [
        (("16x2048x4096", "16x1024x4096"), "16x2048x4096:bf16:nt"),
        (("16x8192x4096", "16x1000x4096"), "16x8192x4096:bf16:nt"),
        (("16x4096x8192", "16x4096x1000"), "16x4096x8192:bf16:nt"),
        (("16x4096x1024", "16x4096x8192"), "16x4096x8192:bf16:nt"),
        (("8x4096x4096", "64x4096x4096"), "8x4096x4096:bf16:nt"),
        (("4x4096x4096", "32x4096x4096"), "32x4096x4096:bf16:nt"),
        (("16x2048x2048", "512x4096x4096"), "512x4096x4096:bf16:nt"),  # one fact less
        (("16x2048x4096:fp16", "16x64x64"), "16x2048x4096:fp16:nt"),  # of two differences each, the nearer sizes
        (("16x4096x4096:bf16:nt:epilogue=relu", "16x4096x4096:bf16:tn:epilogue=relu"), None),
    ],
)
def test_powers_of_two_measure_how_near_a_row_is(problems, nearest_name):
    found = nearest("16x4096x4096", *problems)
    assert found.name == nearest_name or (nearest_name is None and found.differences == ("epilogue relu, here none",))


def test_batches_are_compared_too():
    found = nearest("6x16x96x256:bf16:nt:bmm", "8x16x96x256:bf16:nt:bmm", "64x16x96x256:bf16:nt:bmm")
    assert found == NearestRow("8x16x96x256:bf16:nt:bmm", ("batch 8, here 6",))
