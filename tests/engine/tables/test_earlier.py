"""Rows of an earlier table that stay beside those of an edited class."""

from __future__ import annotations

from dataclasses import replace

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.tables.earlier import with_earlier
from gemmtune.spaces.workloads.triton_kernel import KernelCase

CHOICE = Choice("triton_kernel", Config({"BLOCK": 64}), 9e3, 8.9e3, 9.1e3, 32, Evidence.MEASURED, "", "graph-cold-l2")
GEMM = Problem.parse("16x4096x4096:bf16:nt")
SMALL, LARGE = (KernelCase("Scale", "a" * 12, (("n", n),), "n", kernel_sha256="0a1b") for n in (64, 128))
OTHER_CLASS = replace(SMALL, kernel="Shift", source="b" * 12)
OTHER_KERNEL = replace(SMALL, source="c" * 12, kernel_sha256="2c3d")
EDITED = replace(SMALL, source="d" * 12)


def table(*problems, ranges=()):
    rows = tuple(Row(problem, (CHOICE,), None, 0.0, (CHOICE.config,)) for problem in problems)
    return Table(catalogue.device("H200"), rows, "latency", tuple(of_range(each) for each in ranges))


def of_range(problem):
    return RangeRow(problem, 2, problem.size, CHOICE, ((problem.size, 0.0),))


def problems(rows):
    return {row.problem for row in rows}


def test_rows_of_a_class_before_its_edit_are_dropped_and_all_others_kept():
    earlier = table(GEMM, SMALL, LARGE, OTHER_CLASS, OTHER_KERNEL)
    merged, kept, outdated = with_earlier(table(EDITED), earlier, {EDITED})
    assert problems(kept) == {GEMM, OTHER_CLASS, OTHER_KERNEL}
    assert problems(outdated) == {SMALL, LARGE}
    assert problems(merged.rows) == {EDITED, *problems(kept)}


def test_ranges_of_a_class_before_its_edit_are_dropped():
    earlier = table(SMALL, OTHER_KERNEL, ranges=(SMALL, OTHER_KERNEL))
    merged, *_ = with_earlier(table(EDITED, ranges=(EDITED,)), earlier, {EDITED})
    assert problems(merged.ranges) == {EDITED, OTHER_KERNEL}


def test_another_case_of_a_class_keeps_the_rows_of_its_first():
    _, kept, outdated = with_earlier(table(LARGE), table(SMALL, LARGE), {LARGE})
    assert (problems(kept), outdated) == ({SMALL}, ())


def test_two_editions_that_are_tuned_together_keep_each_others_rows():
    _, kept, outdated = with_earlier(table(EDITED, SMALL), table(LARGE), {EDITED, SMALL})
    assert (problems(kept), outdated) == ({LARGE}, ())


def test_a_row_of_one_name_is_replaced_although_its_types_were_others():
    _, kept, outdated = with_earlier(table(SMALL), table(replace(SMALL, dtypes=("torch.float32",))), {SMALL})
    assert (kept, outdated) == ((), ())
