"""Report of a table: every column and field, by a table with rows of three kinds and a range."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, GeneratedRow, RangeRow, Row, Table
from gemmtune.engine.report.tables import table_report


def choice(space, time_ns, low_ns, high_ns, **config):
    found = Choice(
        space, Config(config), time_ns, low_ns, high_ns, 9, Evidence.MEASURED, "torch 2.13.0", "graph-cold-l2"
    )
    return found if space == "aten" else replace(found, toolchain="torch 2.13.0, triton 3.6.0")


ATEN = choice("aten", 1e5, 9e4, 1.2e5)
KERNEL = choice("triton_mm", 8e4, 7.5e4, 8.8e4, num_warps=4, BLOCK_M=64)
CLOSE = replace(KERNEL, high_ns=1e5)
BAND = (KERNEL.config, Config({"BLOCK_M": 32}))
ROWS = (
    Row(Problem(1280, 640, 320), (KERNEL, ATEN), ATEN, 0.25, BAND, 0.0012, 0.01),
    Row(Problem(160, 640, 320), (ATEN, CLOSE), ATEN, 0.25, (Config({}),)),
    Row(Problem(320, 640, 320), (replace(KERNEL, evidence=Evidence.REPLAYED),), None, None, (KERNEL.config,)),
)
RANGE = RangeRow(Problem(64, 64, 32, dynamic_m=True), 16, 64, KERNEL, ((16, 0.0), (64, 0.02)))
TABLE = Table(
    catalogue.device("H200"), ROWS, "latency", (RANGE,), margin=0.03, measured_at="2026-11-26", drivers=("580.1",)
)


def cells(grid):
    return ["|".join(re.split(r" {2,}", line.strip())) for line in grid.splitlines() if "─" not in line]


def test_the_text_has_a_line_per_row_and_range_and_explains_its_words():
    title, rows, legends, ranges = table_report(TABLE, ["a note"]).to_text().split("\n\n")
    assert title.splitlines() == [
        "NVIDIA H200: 3 rows, objective latency, margin 3.0%, measured up to 2026-11-26",
        "made with torch 2.13.0, triton 3.6.0, driver 580.1",
        "a note",
    ]
    tile = "BLOCK_M=64 num_warps=4"
    assert cells(rows) == [
        "problem|run|µs|95 % interval|% of peak|aten µs|lead|why|ties|regret|loss|evidence|config",
        "160x640x320:bf16:nt|aten|100.0|90.0–120.0|0%|100.0|+25.0%|within noise|1|-|0.00%|measured",
        f"320x640x320:bf16:nt|triton_mm|80.0|75.0–88.0|0%|-|-|no baseline|1|-|0.00%|replayed|{tile}",
        f"1280x640x320:bf16:nt|triton_mm|80.0|75.0–88.0|1%|100.0|+25.0%|wins|2|≤ 0.12%|1.00%|measured|{tile}",
    ]
    words = [line.partition(":")[0] for line in legends.splitlines()]
    assert words == ["wins", "within noise", "no baseline", "lead", "ties"]
    assert cells(ranges) == [
        "problem|m|run|loss at tuned m|probed m|held-out m|config",
        f"mx64x32:bf16:nt:dynamic_m=true|16–64|triton_mm|16: 0.0%, 64: 2.0%|-|-|{tile}",
    ]


def test_columns_that_say_nothing_are_left_out():
    same = replace(TABLE, rows=(replace(ROWS[0], regret_bound=None, loss=0.0),), ranges=(), measured_at="", drivers=())
    title, rows, _ = table_report(same).to_text().split("\n\n")
    assert title.splitlines()[0] == "NVIDIA H200: 1 row, objective latency, measured, margin 3.0%"
    assert cells(rows)[0] == "problem|run|µs|95 % interval|% of peak|aten µs|lead|why|ties|config"
    empty = table_report(replace(same, rows=())).to_text()
    assert empty == "NVIDIA H200: 0 rows, objective latency, margin 3.0%"


def test_the_record_has_every_field_of_the_table_its_rows_and_ranges():
    record = table_report(TABLE).to_json()
    (first, *others), ranges = record.pop("rows"), record.pop("ranges")
    assert record == {
        "device": "H200",
        "objective": "latency",
        "margin": 0.03,
        "measured_at": "2026-11-26",
        "drivers": ["580.1"],
    }
    tile = {"BLOCK_M": 64, "num_warps": 4}
    times = {"time_ns": 8e4, "low_ns": 7.5e4, "high_ns": 8.8e4, "samples": 9, "evidence": "measured"}
    vendor = {"time_ns": 1e5, "low_ns": 9e4, "high_ns": 1.2e5, "samples": 9, "evidence": "measured"}
    moved = 2 * (1280 * 320 + 640 * 320 + 1280 * 640)
    assert first == {
        "problem": "1280x640x320:bf16:nt",
        "lead": 0.25,
        "why": "wins",
        "ties": 2,
        "regret_bound": 0.0012,
        "loss": 0.01,
        "choices": [{"space": "triton_mm", "config": tile} | times, {"space": "aten", "config": {}} | vendor],
        "baseline_ns": 1e5,
        "tflop_s": pytest.approx(2 * 1280 * 640 * 320 / 8e4 / 1e3),
        "gb_s": pytest.approx(moved / 8e4),
        "bound": "memory",
        "fraction_of_peak": pytest.approx(moved / 8e4 / 4800),
    }
    assert [(row["why"], row["baseline_ns"], row["lead"]) for row in others] == [
        ("within noise", 1e5, 0.25),
        ("no baseline", None, None),
    ]
    assert ranges == [
        {
            "problem": "64x64x32:bf16:nt:dynamic_m=true",
            "first": 16,
            "last": 64,
            "space": "triton_mm",
            "config": tile,
            "tuned": {"16": 0.0, "64": 0.02},
            "held_out": {},
            "probed": {},
        }
    ]


def test_kernels_between_the_products_are_listed_with_the_time_of_the_default():
    softmax = GeneratedRow("ab" * 32, "triton_red_fused__softmax_0", choice("inductor", 2e5, 1e5, 3e5, XBLOCK=2), 2.5e5)
    report = table_report(replace(TABLE, generated=(softmax,)))
    assert cells(report.to_text().split("\n\n")[-1])[-1] == "triton_red_fused__softmax_0|200.0|250.0|XBLOCK=2"
    assert report.record["generated"] == [
        {
            **{"source": softmax.source, "name": softmax.name, "default_ns": 2.5e5, "config": softmax.choice.config},
            **{"time_ns": 2e5, "low_ns": 1e5, "high_ns": 3e5, "samples": 9},
        }
    ]
    assert "generated" not in table_report(TABLE).record
