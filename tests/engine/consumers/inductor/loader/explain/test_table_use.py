"""Reports on compiled products, without torch."""

from __future__ import annotations

import json
from threading import Thread

import pytest

from gemmtune.engine.consumers.inductor.exporter import product_key
from gemmtune.engine.consumers.inductor.loader.explain.table_use import (
    ProductUse,
    UseLog,
    problem_name,
)
from gemmtune.engine.records.gemm.problem import Problem


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


def test_the_report_names_each_miss_once_and_the_command_that_tunes_it():
    log, graph = UseLog("NVIDIA H200"), Graph()
    miss = ProductUse("16x8x8:fp16:nt", "miss", "ATen runs")
    assert [log.add(graph, use) for use in (miss, ProductUse("8x8x8:bf16:nt", "row", "triton::mm"), miss)] == [1, 0, 0]
    report = log.report()
    assert (report.products, report.misses) == (3, ("16x8x8:fp16:nt",))
    assert str(report) == (
        "3 products compiled: 1 run a row's kernel, 2 have no row\n"
        "  16x8x8:fp16:nt: miss, ATen runs (2 times)\n"
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
    log = UseLog("NVIDIA H200")
    outcomes = ("row", "aten row", "next choice", "unused row", "miss", "no problem", "other device", "failed")
    for times, outcome in enumerate(outcomes, start=1):
        for _ in range(times):
            log.add(None, ProductUse(f"p{times}", outcome, "detail"))
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
    assert uses[0] == {"problem": "p1", "outcome": "row", "detail": "detail", "count": 1}
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
        "no product was compiled since install: torch compiled nothing, or took it from its caches; the table is for "
        "NVIDIA H200"
    )
    log = UseLog("NVIDIA H200")
    for device in ("the CPU", "the XPU"):
        log.add(None, ProductUse("mm", "other device", f"on {device}"))
    assert str(log.report()).splitlines()[0] == (
        "2 products were compiled for the CPU and the XPU; the table is for NVIDIA H200"
    )
