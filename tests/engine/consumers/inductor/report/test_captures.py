"""Report of a capture: a line per problem that gets rows, the work that gets none, and the command that goes on."""

from __future__ import annotations

import pytest

from gemmtune.engine.consumers.inductor.capture.captured import Captured, CapturedCall, CapturedProduct, Unseen
from gemmtune.engine.consumers.inductor.floor.shares import Cost
from gemmtune.engine.consumers.inductor.report.capture_page import capture_html
from gemmtune.engine.consumers.inductor.report.captures import capture_report
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.gemm.problem import Problem

FIXED, OPEN, ENDED = (Problem.parse(f"{m}x32x64") for m in (16, 8, 4))
CHAINED = (CapturedProduct(FIXED, 3.0, epilogues=(("relu", 2.0),)), CapturedProduct(ENDED, 1.0, "s1", 4, 64))
UNREADABLE = CapturedProduct(OPEN, 5.0, "s0", 2, epilogues=(("unreadable: sum", 1.0),))
NOT_OPEN = {"m_expression": None, "first": None, "last": None}


def test_every_problem_has_its_runs_sizes_and_what_compiled_it():
    unseen = (Unseen("bmm", "batched twice", 2.0),)
    captured = Captured((*CHAINED, UNREADABLE), unseen, "model.py:Net", "2.13.0", {FIXED.name: 4})
    report = capture_report(captured, "net.toml")
    assert report.to_json() == {
        "source": "model.py:Net",
        "torch": "2.13.0",
        "calls": [],
        "products": [
            {"problem": f"{FIXED.name}:epilogue=relu", "count": 2.0, "compiled": None, "m": [16], "epilogues": []}
            | NOT_OPEN,
            {"problem": FIXED.name, "count": 1.0, "compiled": 4, "m": [16], "epilogues": []} | NOT_OPEN,
            {"problem": ENDED.name, "count": 1.0, "compiled": None, "m": [4, 16, 64], "epilogues": []}
            | {"m_expression": "s1", "first": 4, "last": 64},
            {"problem": OPEN.name, "count": 5.0, "compiled": None, "m": [2, 4, 16, 64, 256, 1024, 4096, 8192]}
            | {"m_expression": "s0", "first": 2, "last": None}
            | {"epilogues": [{"epilogue": "unreadable: sum", "count": 1.0}]},
        ],
        "layers": [],
        "not_tuned": [{"operation": "bmm", "reason": "batched twice", "count": 2.0}],
        "floor": None,
        "written": "net.toml",
    }
    assert report.to_text().split("\n\n") == [
        "model.py:Net",
        "product                         runs         m  epilogue without a text\n"
        "──────────────────────────────  ────  ────────  ───────────────────────\n"
        "16x32x64:bf16:nt:epilogue=relu     2        16\n"
        "16x32x64:bf16:nt                   1        16\n"
        "mx32x64:bf16:nt                    1   4 to 64\n"
        "mx32x64:bf16:nt                    5  2 to any  unreadable: sum (1)",
        "not to be tuned  runs  reason\n───────────────  ────  ─────────────\nbmm                 2  batched twice",
        "written: net.toml\nto tune: gemmtune tune net.toml --out out",
    ]


def test_a_recorded_program_has_no_torch_and_names_no_file_without_a_product():
    report = capture_report(Captured((), (), "calls.jsonl"), "net.toml")
    assert report.to_text() == "calls.jsonl\n\nIt runs no product that a table can serve: no file is written."
    assert report.to_json() == {
        "source": "calls.jsonl",
        "torch": None,
        "calls": [],
        "products": [],
        "layers": [],
        "not_tuned": [],
        "floor": None,
        "written": None,
    }


@pytest.mark.parametrize("shown", [CHAINED, (CapturedProduct(FIXED, 0.5),)])
def test_the_column_of_epilogues_is_left_out_without_any(shown):
    header = capture_report(Captured(shown, (), "x"), "net.toml").to_text().splitlines()[2]
    assert header.split() == ["product", "runs", "m"]


def test_a_line_per_call_says_how_many_products_it_has():
    calls = (CapturedCall("bf16[1,64]", 512, 2, 9), CapturedCall("bf16[16,64]", 0.5, 7, 31))
    report = capture_report(Captured(CHAINED, (), "x", calls=calls), "net.toml")
    lines = [line.split() for line in report.to_text().splitlines()]
    assert lines[2:6:3] == [["call", "weight", "products", "runs"], ["bf16[16,64]", "0.5", "7", "31"]]
    assert report.to_json()["calls"][0] == {
        "name": "bf16[1,64]",
        "weight": 512,
        "products": 2,
        "runs": 9,
        "floor_ns": None,
        "servable": None,
    }
    text = Captured(CHAINED, (), "x", calls=calls).to_toml()
    assert "# Call bf16[16,64], weight 0.5: 7 products, 31 runs.\n" in text


COST = Cost(0.0, 4.8e6)  # 1 µs of an H200
SHARED = Captured(
    [CapturedProduct(FIXED, 4.0, epilogues=(("relu", 1.0),))],
    [Unseen("bmm", "batched twice", 1.0, {COST: 1.0}), Unseen("attend", "a library's kernel", 2.0, {COST: 2.0})],
    "Products of model.py:Net, forward.",
    rest_bytes=4.8e6,
    device=catalogue.device("H200"),
)


def test_each_part_says_its_share_of_the_floor():
    report = capture_report(SHARED, "net.toml")
    tables = [[line.split() for line in section.splitlines()] for section in report.to_text().split("\n\n")]
    assert tables[1][0] == ["product", "runs", "m", "of", "floor"]
    assert [row[-1] for row in tables[1][2:]] == ["0.0%", "0.1%"]  # one run of four with the epilogue
    assert [(row[0], row[2]) for row in tables[2][2:]] == [("attend", "49.9%"), ("bmm", "25.0%")]
    record = report.to_json()["floor"]
    assert [part["name"] for part in record["parts"]] == ["attend", "bmm", "everything else", FIXED.name]
    assert record["by_kind"]["everything else"] == pytest.approx(0.25, abs=1e-3)
    assert record["servable"] == pytest.approx(1 - 4e3 / record["total_ns"], abs=1e-9)


def test_the_page_has_every_part_and_what_no_row_can_serve():
    text = capture_html(SHARED)
    assert "<title>gemmtune capture: model.py:Net</title>" in text
    for words in (FIXED.name, "attend", "batched twice", "kernels that Inductor writes"):
        assert words in text
    assert "Calls</h2>" not in text
    assert capture_html(SHARED) == text
    with pytest.raises(UsageError, match="capture the model to see its floor"):
        capture_html(Captured((), (), "calls.jsonl"))
