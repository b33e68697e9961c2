"""Tests of `gemmtune show --graphs`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest

from gemmtune.engine import cli
from gemmtune.engine.consumers.inductor.graphs.layers import Linear, layers_of
from gemmtune.engine.consumers.inductor.report.explain import explain_layer
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.tables.table_file import write_table

H200 = catalogue.device("H200")
FORUM = Linear(3420, 1280, DType.BF16)
ATEN = Choice("aten", Config({}), 1e4, 1e4, 1e4, 1, Evidence.MEASURED, "torch 2.13", "graph")
TILES = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 128, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}
TRITON = replace(ATEN, space="triton_mm", config=Config(TILES))
PROBLEMS = (
    "560x1280x3420:bf16:nt",
    "1024x1280x3420:bf16:nt",
    "2048x1280x3420:bf16:nt:addmm",
    "2048x1280x3420:bf16:nn",  # not a linear layer
    "2048x1280x3420:e4m3:nt",  # of another layer, whose guards are not known
    "16x64x64:fp16:nt",
)
TABLE = Table(H200, tuple(Row(Problem.parse(p), (ATEN,), ATEN, 0.0, ()) for p in PROBLEMS), "latency")


def test_record_has_the_ranges_and_the_guards_that_end_them():
    record: Any = explain_layer(FORUM, "2.11", H200, None).report().to_json()
    assert record["ranges"] == [[2, 1280], [1281, 3419], [3420, 3420], [3421, 627919], [627920, None]]
    guards = [(guard["guard"], guard["last"], guard["product"].partition(" mm")[0]) for guard in record["guards"]]
    assert guards[:3] == [
        ("m <= 1280", 1280, "weight gradient"),
        ("m <= 3419", 3419, "forward"),
        ("m <= 3420", 3420, "weight gradient"),
    ]
    assert {guard["last"] for guard in record["guards"][3:]} == {627919}
    assert record["warm_up"] == [first for first, _ in record["ranges"]]


def test_range_is_warmed_up_with_its_weightiest_row():
    found = explain_layer(FORUM, "2.11", H200, TABLE)
    record = found.report().to_json()
    assert record["rows"][:3] == [list(PROBLEMS[:2]), [PROBLEMS[2]], []]
    assert record["warm_up"][:3] == [1024, 2048, 3420]
    heavy = replace(TABLE.rows[0], problem=replace(TABLE.rows[0].problem, weight=5))
    weighted = explain_layer(FORUM, "2.11", H200, replace(TABLE, rows=(heavy, *TABLE.rows[1:])))
    assert weighted.warm_up(weighted.ranges[0]) == 560


RANGED = replace(
    TABLE,
    ranges=tuple(
        RangeRow(Problem.parse(f"{last}x1280x3420:bf16:nt:dynamic_m=true"), first, last, choice, ((last, 0.0),))
        for first, last, choice in ((2, 64, TRITON), (65, 512, ATEN), (513, 2048, TRITON))
    ),
)


def test_ranges_of_a_table_end_graphs_where_the_loader_guards_them():
    found = explain_layer(FORUM, "2.13", H200, RANGED)
    assert [(each.first, each.last) for each in found.ranges][:4] == [(2, 64), (65, 512), (513, 2048), (2049, 627919)]
    record: Any = found.report().to_json()
    forward = "forward mm(m×3420, 3420×1280)"
    assert [hits.get(forward, {}).get("space") for hits in record["hits"]][:4] == [
        "triton_mm",
        "aten",
        "triton_mm",
        None,
    ]
    assert [guard["guard"] for guard in record["guards"]][:3] == ["m <= 64", "m <= 512", "m <= 2048"]
    assert {guard["source"] for guard in record["guards"][:3]} == {"gemmtune_inductor"}
    assert record["warm_up"][:4] == [64, 512, 2048, 2049]
    (row,) = [line for line in found.report().to_text().splitlines() if line.startswith("513–2048 ")]
    assert "forward triton_mm" in row


def test_a_static_row_serves_no_graph_of_a_dynamic_m():
    assert "a dynamic m needs ranges: tune with dynamic_m" in (
        explain_layer(FORUM, "2.13", H200, TABLE).report().to_text()
    )


def test_ranges_of_single_m_stand_beside_the_rows_of_single_m():
    each = (Problem.parse(PROBLEMS[1]), Problem.parse(PROBLEMS[2]))
    spans = zip(each, ((2, 1024), (1025, 2048)), strict=True)
    ranges = [RangeRow(problem, *ends, TRITON, ((ends[1], 0.0),)) for problem, ends in spans]
    found = explain_layer(FORUM, "2.11", H200, replace(TABLE, ranges=tuple(ranges)))
    assert found.ranges == explain_layer(FORUM, "2.11", H200, TABLE).ranges
    record: Any = found.report().to_json()
    assert [[(row["first"], row["last"]) for row in spans] for spans in record["spans"]][:3] == [
        [(2, 1024), (1025, 1280)],
        [(1281, 2048)],
        [],
    ]
    assert "560, 1024, 2–1024, 1025–1280" in found.report().to_text()


def test_layers_of_a_table_have_its_forward_products():
    layers = layers_of([row.problem for row in TABLE.rows], weight_grad=False, input_grad=False)
    assert layers == (replace(FORUM, weight_grad=False), Linear(64, 64, DType.FP16, weight_grad=False))


def test_text_has_the_guards_and_the_setting_that_removes_them():
    lines = explain_layer(FORUM, "2.11", H200, TABLE).report().to_text().splitlines()
    assert lines[0] == "Linear 3420→1280, bf16, gradient of weight: torch 2.11, NVIDIA H200"
    (row,) = [line for line in lines if line.startswith("2–1280 ")]
    assert row.split()[1:4] == ["1024", "560,", "1024"]
    assert "m <= 1280" in row
    assert row.endswith("weight gradient mm(1280×m, m×3420), pad_mm.py: is_mm_compute_bound")
    heads = next(line for line in lines if line.startswith("m "))
    end = heads.index("warm up") + len("warm up")
    assert row[end - len("1024") : end] == "1024"  # numbers stand to the right, all else to the left
    assert row.index("560,") == heads.index("rows at m =")
    assert any(line.startswith("m = 3420 gets a graph of its own: mark_dynamic raises") for line in lines)
    assert "shape_padding=False, as gemmtune_inductor.options() has it, leaves 2–627919, 627920–" in lines


@pytest.mark.parametrize("torch", ["2.12", "2.13", "2.14", "2.15"])
def test_shape_padding_is_not_mentioned_where_it_guards_nothing(torch: str):
    assert "shape_padding" not in explain_layer(FORUM, torch, H200, None).report().to_text()


@pytest.fixture
def run(monkeypatch, capsys):
    """The command line in this process: its exit status, output and errors."""

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gemmtune", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return command


LAYER = ("show", "--graphs", "1x1280x3420:bf16:nt", "--torch", "2.11")


def test_the_command_shows_the_graphs_of_a_layer(run):
    status, out, _ = run(*LAYER, "--no-grad", "--json")
    assert status == 0
    assert json.loads(out)["ranges"] == [[2, 3419], [3420, 627919], [627920, None]]
    _, out, _ = run(*LAYER, "--no-padding", "--json")
    assert json.loads(out)["ranges"] == [[2, 627919], [627920, None]]


def test_the_command_shows_the_graphs_of_the_layers_of_a_table(run, tmp_path):
    path = tmp_path / "table.json"
    write_table(path, TABLE)
    status, out, _ = run("show", str(path), "--graphs", "all", "--torch", "2.11", "--json")
    layers = json.loads(out)["layers"]
    assert status == 0
    assert [(each["linear"]["inputs"], each["linear"]["dtype"]) for each in layers] == [(3420, "bf16"), (64, "fp16")]
    assert layers[0]["warm_up"][:2] == [1024, 2048]
    assert run("show", str(path), "--graphs", "all", "--torch", "2.11")[1].count("Linear ") == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("all",), "--graphs all shows the layers of a table: name the table, a problem, or MODULE:CALL"),
        (("3420",), "malformed problem '3420'"),
        (
            ("1x64x64:bf16:nt", "--torch", "2.10"),
            "torch 2.10 are not known without it; known: 2.11, 2.12, 2.13, 2.14, 2.15",
        ),
        (("1x64x64:bf16:nn",), "1x64x64:bf16:nn is no linear layer's product: MxNxK:DTYPE:nt, DTYPE of bf16, fp16"),
        (("grouped:rows:m64:g4:n96:k64",), "grouped:rows:m64:g4:n96:k64 is no linear layer's product: MxNxK:DTYPE:nt"),
        (("1x64x64:bf16:nt", "--html", "page.html"), "show --graphs does not read --html; see gemmtune show --help"),
    ],
)
def test_command_names_what_has_no_graphs(run, arguments: tuple[str, ...], complaint: str):
    status, out, err = run("show", "--graphs", *arguments)
    assert (status, out) == (2, "")
    assert complaint in err


MODEL = """
import torch


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(64, 96, bias=False)
        self.down = torch.nn.Linear(96, 64)

    def forward(self, x):
        x = self.up(x)
        if x.shape[0] > 512:
            x = x * 2
        return self.down(x)


def flat(x):
    return torch.relu(x)


def experts(x, weights, ends):
    return torch._grouped_mm(x @ x.new_zeros(64, 64), weights.transpose(1, 2), offs=ends)


broken = 3
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    (tmp_path / "explained_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "explained_model"
    sys.modules.pop("explained_model", None)


UP = Problem.parse("64x96x64:bf16:nt:dynamic_m=true")
RANGES = RangeRow(UP, 2, 64, TRITON, ((64, 0.0),)), RangeRow(replace(UP, m=1024), 65, 1024, ATEN, ((1024, 0.0),))
TABLE_OF_UP = replace(TABLE, ranges=RANGES)


def test_graphs_of_a_callable_end_by_its_own_code_and_by_rows(run, model, tmp_path):
    write_table(tmp_path / "table.json", TABLE_OF_UP)
    call = (
        "show",
        "table.json",
        "--graphs",
        f"{model}:Layer",
        "--input",
        "bf16[m:1..4096,64]",
        "--torch",
        "2.13",
        "--no-grad",
    )
    status, out, err = run(*call, "--json")
    assert status == 0, err
    found = json.loads(out)
    assert found["ranges"][:3] == [[2, 64], [65, 512], [513, 22369621]]
    small, middle, _ = found["graphs"][:3]
    assert small["products"] == ["forward mm(m×64, 64×96)", "forward addmm(m×96, 96×64)"]
    assert [hit["space"] for hit in small["hits"].values()] == ["triton_mm"]
    assert small["guards"] == ["m <= 64 (forward mm(m×64, 64×96), gemmtune_inductor)"]
    assert middle["guards"] == ["m <= 512 (the model's own)"]
    assert "2–64 triton_mm, 65–512 aten" in run(*call)[1]


def test_products_whose_ranges_are_not_known_are_listed(run, model, tmp_path):
    write_table(tmp_path / "table.json", TABLE_OF_UP)
    inputs = (f"--input={each}" for each in ("bf16[m:1..4096,64]", "bf16[4,96,64]", "int32[4]"))
    call = ("--graphs", f"{model}:experts", *inputs, "--torch", "2.13", "--no-grad")
    for table, runs in (((), "aten"), (("table.json",), "not known")):
        status, out, err = run("show", *table, *call)
        assert status == 0, err
        (line,) = (each for each in out.splitlines() if each.startswith("forward grouped_mm(m×64, 64×96)  nt"))
        assert line.rstrip().endswith(runs)


def test_gradients_of_a_callable_are_explained(run, model):
    layer = ("--graphs", f"{model}:Layer", "--input", "bf16[m:1..4096,64]")
    _, out, _ = run("show", *layer, "--torch", "2.13", "--json")
    products = json.loads(out)["graphs"][0]["products"]
    assert "backward mm(m×96, 96×64)" in products  # of the input
    assert "backward mm(96×m, m×64)" in products  # of the first weight


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("explained_model", "--input", "bf16[m:1..9,64]"), "malformed callable 'explained_model'"),
        (("explained_model:none", "--input", "bf16[m:1..9,64]"), "cannot import explained_model:none"),
        (("explained_model:broken", "--input", "bf16[m:1..9,64]"), "is int, which cannot be called"),
        (("explained_model:Layer",), "one size of the inputs is open, and here none is: --input bf16[m:1..4096,4096]"),
        (("explained_model:Layer", "--input", "64*m"), "malformed input '64*m'"),
        (
            ("explained_model:Layer", "--input", "int8[2,m:1..9]", "--input", "fp64[m]"),
            "the guards of float64 products",
        ),
        (("explained_model:Layer", "--input", "bf16[m:1..9,63]"), "failed on inputs with m=2 on the meta device"),
    ],
)
def test_a_callable_that_cannot_be_traced_is_named(run, model, arguments, complaint):
    status, _, err = run("show", "--graphs", *arguments)
    assert status == 2
    assert complaint in err
