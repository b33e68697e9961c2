from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gemmtune.engine.consumers.inductor.exporter import InductorExporter, _next_choice, product_key
from gemmtune.engine.consumers.inductor.loader.lookup import lookup_keys
from gemmtune.engine.consumers.inductor.next_choice import unless_beaten
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row
from gemmtune.engine.tables.table_file import table_sha256
from gemmtune.engine.testing.exporter_conformance import example_table
from gemmtune.engine.toolchain.releases import source_hash

TABLE = example_table()
TILES = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 4, "num_warps": 8}


def choice(space, config, toolchain="torch 2.13.0"):
    return Choice(space, Config(config), 100.0, 99.0, 101.0, 32, Evidence.MEASURED, toolchain, "events-cold-l2")


def row(problem, *choices):
    problem = Problem.parse(problem) if isinstance(problem, str) else problem
    return Row(problem, choices, None, 0.0, ())


def export(*rows):
    return InductorExporter().export(replace(TABLE, rows=rows))


def lookup(*rows):
    return json.loads(export(*rows)["lookup_table.json"])


@pytest.mark.parametrize(
    ("problem", "a", "b"),
    [
        ("2048x4096x512:bf16:nt", "bfloat16, [2048, 512], [512, 1]", "bfloat16, [512, 4096], [1, 512]"),
        ("2048x4096x512:fp16:nn", "float16, [2048, 512], [512, 1]", "float16, [512, 4096], [4096, 1]"),
        ("2048x4096x512:fp32:tn", "float32, [2048, 512], [1, 2048]", "float32, [512, 4096], [4096, 1]"),
        ("2048x4096x512:bf16:tt", "bfloat16, [2048, 512], [1, 2048]", "bfloat16, [512, 4096], [1, 512]"),
        ("1x4096x512:bf16:nt", "bfloat16, [1, 512], [512, 1]", "bfloat16, [512, 4096], [1, 512]"),
        ("1x1x512:tf32:tn", "float32, [1, 512], [1, 1]", "float32, [512, 1], [1, 1]"),
        ("8x4x1:bf16:nt", "bfloat16, [8, 1], [1, 1]", "bfloat16, [1, 4], [1, 1]"),
    ],
)
def test_key_is_written_as_torch_writes_it(problem, a, b):
    assert lookup_keys(TABLE.device, Problem.parse(problem)) == (f"NVIDIA H200+((torch.{a}), (torch.{b}))+mm",)


def test_the_keys_of_addmm_have_the_bias_expanded_and_as_it_is():
    rest = "(torch.bfloat16, [64, 512], [512, 1]), (torch.bfloat16, [512, 96], [1, 512]))+alpha=1&beta=1+addmm"
    vector, matrix = "64x96x512:bf16:nt:addmm", "64x96x512:bf16:nt:addmm:bias=matrix"
    assert lookup_keys(TABLE.device, Problem.parse(vector)) == (
        f"NVIDIA H200+((torch.bfloat16, [64, 96], [0, 1]), {rest}",
        f"NVIDIA H200+((torch.bfloat16, [96], [1]), {rest}",
    )
    assert lookup_keys(TABLE.device, Problem.parse(matrix)) == (
        f"NVIDIA H200+((torch.bfloat16, [64, 96], [96, 1]), {rest}",
    )


def test_the_key_of_bmm_has_a_batch():
    assert lookup_keys(TABLE.device, Problem.parse("6x64x96x512:bf16:nt:bmm")) == (
        "NVIDIA H200+((torch.bfloat16, [6, 64, 512], [32768, 512, 1]), "
        "(torch.bfloat16, [6, 512, 96], [49152, 1, 512]))+bmm",
    )


@pytest.mark.parametrize(
    ("problem", "key"),
    [
        ("64x96x512:bf16:nt", "mm:bfloat16:nt:1x96x512:none:static"),
        ("64x96x512:tf32:tn", "mm:tf32:tn:1x96x512:none:static"),
        ("64x96x512:bf16:nt:dynamic_m=true", "mm:bfloat16:nt:1x96x512:none:dynamic"),
        ("64x96x512:fp16:nn:addmm", "addmm:float16:nn:1x96x512:vector:static"),
        ("64x96x512:bf16:nt:addmm:bias=matrix", "addmm:bfloat16:nt:1x96x512:matrix:static"),
        ("6x64x96x512:bf16:nt:bmm", "bmm:bfloat16:nt:6x96x512:none:static"),
    ],
)
def test_the_loaders_key_has_all_of_a_problem_but_m(problem, key):
    assert product_key(Problem.parse(problem)) == key
    assert product_key(replace(Problem.parse(problem), m=3)) == key


def test_a_triton_row_has_every_keyword_and_no_other():
    (entries,) = lookup(row("2048x4096x4096:bf16:nt", choice("triton_mm", TILES), choice("aten", {}))).values()
    assert entries == [
        {"template_id": "triton::mm", **TILES, "EVEN_K": True, "ACC_TYPE": "tl.float32", "USE_FAST_ACCUM": False}
    ]


@pytest.mark.parametrize(("k", "even"), [(4096, True), (64, True), (4000, False), (1, False), (96, False)])
def test_even_k_is_computed_from_k_and_block_k(k, even):
    (entries,) = lookup(row(f"64x64x{k}:bf16:nt", choice("triton_mm", TILES))).values()
    assert entries[0]["EVEN_K"] is even


def test_an_aten_row_has_only_its_template():
    assert list(lookup(row("64x64x64", choice("aten", {}), choice("triton_mm", TILES))).values()) == [
        [{"template_id": "aten::mm"}]
    ]


def test_a_bias_vector_of_an_aten_row_is_found_by_both_keys_and_a_triton_row_by_the_templates_alone():
    keys = lookup_keys(TABLE.device, Problem.parse("64x96x64:bf16:nt:addmm"))
    assert set(lookup(row("64x96x64:bf16:nt:addmm", choice("aten", {})))) == set(keys)
    assert set(lookup(row("64x96x64:bf16:nt:addmm", choice("triton_mm", TILES)))) == {keys[0]}


def test_a_row_of_a_dynamic_m_is_left_out_of_the_stock_table():
    assert lookup(row("64x64x64:bf16:nt:dynamic_m=true", choice("triton_mm", TILES))) == {}


def test_each_row_has_the_facts_of_its_time():
    timed = replace(row("64x64x64", choice("triton_mm", TILES, "torch 2.11.0+cu130, triton 3.6.0")), regret_bound=0.004)
    ranged = RangeRow(
        Problem.parse("128x64x64:bf16:nt:dynamic_m=true"),
        65,
        128,
        choice("aten", {}, "torch 2.11.0+cu130"),
        ((128, 0.0),),
        ((96, 0.01),),
    )
    table = replace(TABLE, rows=(timed,), ranges=(ranged,))
    files = InductorExporter().export(table)
    found = json.loads(files["inductor_table.json"])
    assert {name.partition("/")[0] for name in files} == {
        *("gemmtune_inductor", "gemmtune_record", "gemmtune_report", "inductor_table.json", "lookup_table.json")
    }
    assert found["device"] == {"sku": "H200", "name": "NVIDIA H200", "arch": "sm_90a"}
    assert found["table_sha256"] == table_sha256(table)
    assert found["made_with"] == {"torch": ["2.11.0+cu130"], "triton": ["3.6.0"]}
    assert found["templates"] == {"triton::mm": [source_hash("triton::mm", "2.11.0")]}
    (static,), (dynamic,) = found["rows"][product_key(timed.problem)], found["rows"][product_key(ranged.problem)]
    assert static == {
        "first": 64,
        "last": 64,
        "template": "triton::mm",
        "kwargs": TILES,
        "fuses_cheap": False,
        "kernel": None,
        "otherwise": None,
        "facts": {
            "problem": "64x64x64:bf16:nt",
            "time_ns": 100.0,
            "evidence": "measured",
            "protocol": "events-cold-l2",
            "toolchain": "torch 2.11.0+cu130, triton 3.6.0",
            "regret_bound": 0.004,
            "loss": 0.0,
        },
    }
    assert (dynamic["first"], dynamic["last"], dynamic["template"], dynamic["kwargs"]) == (65, 128, "aten::mm", {})
    assert (dynamic["facts"]["tuned"], dynamic["facts"]["held_out"]) == ({"128": 0.0}, {"96": 0.01})


def test_a_row_of_an_epilogue_has_a_key_of_its_own_and_no_place_in_the_stock_table():
    fused = row("64x64x64:bf16:nt:epilogue=silu.mul(matrix)", choice("triton_mm", TILES))
    plain = row("64x64x64:bf16:nt", choice("aten", {}))
    files = InductorExporter().export(replace(TABLE, rows=(plain, fused), ranges=()))
    found = json.loads(files["inductor_table.json"])["rows"]
    assert {key: entries[0]["template"] for key, entries in found.items()} == {
        "mm:bfloat16:nt:1x64x64:none:static": "aten::mm",
        "mm:bfloat16:nt:1x64x64:none:static:silu.mul(matrix)": "triton::mm",
    }
    assert [entries[0]["template_id"] for entries in json.loads(files["lookup_table.json"]).values()] == ["aten::mm"]


@pytest.mark.parametrize(
    ("problem", "config", "fuses"),
    [
        ("2048x4096x4096:bf16:nt", {**TILES, "BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4}, True),
        ("2048x4096x4096:bf16:nt", {**TILES, "BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 4}, False),
        ("2048x4096x4096:bf16:nt", {**TILES, "BLOCK_M": 64, "BLOCK_N": 256, "BLOCK_K": 128, "num_stages": 3}, False),
        ("2048x4096x4096:bf16:nt:epilogue=relu", {**TILES, "BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4}, False),
    ],
)
def test_a_plain_row_with_room_in_registers_and_shared_memory_fuses_what_is_cheap(problem, config, fuses):
    files = InductorExporter().export(replace(TABLE, rows=(row(problem, choice("triton_mm", config)),), ranges=()))
    ((entry,),) = json.loads(files["inductor_table.json"])["rows"].values()
    assert entry["fuses_cheap"] is fuses


def test_a_row_for_one_dynamic_m_serves_no_graph_without_a_range():
    files = export(row("64x64x64:bf16:nt:dynamic_m=true", choice("triton_mm", TILES)))
    assert json.loads(files["inductor_table.json"])["rows"] == {}


@pytest.mark.parametrize(
    ("problem", "space", "template"),
    [
        ("64x64x64:bf16:nt", "aten", "aten::mm"),
        ("64x64x64:bf16:nt:addmm", "aten", "aten::addmm"),
        ("2x64x64x64:bf16:nt:bmm", "aten", "aten::bmm"),
        ("64x64x64:bf16:nt:addmm", "triton_mm", "triton::mm"),
        ("2x64x64x64:bf16:nt:bmm", "triton_mm", "triton::bmm"),
    ],
)
def test_a_template_has_inductors_name(problem, space, template):
    files = export(row(problem, choice(space, {} if space == "aten" else TILES)))
    ((entry,),) = json.loads(files["inductor_table.json"])["rows"].values()
    assert entry["template"] == template


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (row("8x8x8", choice("unknown", {})), "8x8x8:bf16:nt: no Inductor template of mm for space 'unknown'"),
        (row("4x8x8x8:bf16:nt:bmm", choice("cute_gemm", {})), "no Inductor template of bmm for space 'cute_gemm'"),
        (row("8x8x8", choice("triton_mm_tma", TILES)), "no Inductor template of mm for space 'triton_mm_tma'"),
        (row("8x8x8:bf16:nt:addmm:out_dtype=fp32", choice("aten", {})), "one dtype, not bf16, fp32"),
        (row("8x8x8:e4m3:nt:out_dtype=fp32", choice("aten", {})), "scaled_mm has both scales"),
        (row(replace(Problem.parse("8x8x8"), acc_dtype=DType.FP16), choice("aten", {})), "accumulates in fp32, not in"),
        (row("8x8x8", choice("triton_mm", {**TILES, "num_ctas": 2})), "kwargs has the unknown field 'num_ctas'"),
        (
            row("8x8x8", choice("triton_mm", {"BLOCK_M": 64})),
            "mm:bfloat16:nt:1x8x8:none:static: row 1: kwargs has the missing",
        ),
        (row("8x8x8", choice("triton_mm", {**TILES, "BLOCK_K": 64.0})), r"BLOCK_K=64.0 is not in \(1, 2, 4, "),
        (row("8x8x8", choice("triton_mm", {**TILES, "BLOCK_K": 0})), r"BLOCK_K=0 is not in \(1, 2, 4, "),
        (row("8x8x8", choice("triton_mm", {**TILES, "num_warps": 3})), r"num_warps=3 is not in \(1, 2, 4, 8, 16, 32\)"),
        (row("8x8x8", choice("aten", {"BLOCK_M": 64})), "kwargs has the unknown field 'BLOCK_M'"),
        (row("8x8x8", choice("aten", {}, "torch \x1b[31m2.13")), "made_with.torch=.* is not 1 to 300 printable"),
    ],
)
def test_problems_and_configs_unknown_to_inductor_are_refused_by_name(broken, message):
    with pytest.raises(TableError, match=message):
        export(broken)


def test_a_row_that_inductor_has_no_key_for_is_left_out_by_name():
    grouped = row(Grouped.parse("grouped:rows:m512:g4:n256:k64:fp16:nt"), choice("quack_grouped", {}))
    unknown = row("8x16x8", choice("unknown", {}))
    table = replace(TABLE, rows=(grouped, row("8x8x8", choice("aten", {})), unknown))
    content = json.loads(InductorExporter().export(table)["inductor_table.json"])
    assert [*content["rows"]] == ["mm:bfloat16:nt:1x8x8:none:static"]
    assert content["left_out"] == {"quack_grouped": 1, "unknown": 1}
    said = InductorExporter().left_out(table)
    assert "1 choice of quack_grouped left out: grouped:rows:m512:g4:n256:k64:fp16:nt: Inductor's rows are" in said
    assert "8x16x8:bf16:nt: no Inductor template of mm for space 'unknown'" in said


def test_two_rows_with_one_inductor_key_are_refused():
    with pytest.raises(TableError, match="8x8x8:fp32:nt and 8x8x8:tf32:nt have the same Inductor key"):
        export(row("8x8x8:fp32:nt", choice("aten", {})), row("8x8x8:tf32:nt", choice("aten", {})))


def test_parts_of_k_are_a_row_of_the_loader_and_none_of_stock_inductor():
    files = export(row("32x32x65536:bf16:nn", choice("decompose_k", {"k_split": 16})))
    (entries,) = json.loads(files["inductor_table.json"])["rows"].values()
    assert [(each["template"], each["kwargs"]) for each in entries] == [("decompose_k", {"k_split": 16})]
    assert json.loads(files["lookup_table.json"]) == {}
    with pytest.raises(TableError, match="decompose_k"):
        export(row("32x32x65536:bf16:nn:addmm", choice("decompose_k", {"k_split": 16})))


def test_an_output_of_fp32_is_a_part_of_the_loaders_key():
    problem = "64x96x256:bf16:nt:out_dtype=fp32"
    assert product_key(Problem.parse(problem)) == "mm:bfloat16_float32:nt:1x96x256:none:static"
    files = export(row(problem, choice("triton_mm", TILES)), row("64x96x256:bf16:nt", choice("aten", {})))
    assert len(json.loads(files["inductor_table.json"])["rows"]) == 2
    assert [*json.loads(files["lookup_table.json"])] == [*lookup_keys(TABLE.device, Problem.parse("64x96x256:bf16:nt"))]


def test_a_row_of_a_binary_has_the_fastest_choice_beside_it_that_torch_renders():
    times = {"cute_splitk": 10.0, "mine": 11.0, "triton_mm": 12.0}
    choices = [replace(choice(space, TILES), time_ns=time_ns) for space, time_ns in times.items()]
    assert _next_choice(row("8x96x256:bf16:nt", *choices)).space == "triton_mm"


@pytest.mark.parametrize(
    ("baseline", "margin", "served"), [("b", 0.02, "b"), ("b", 0.01, "a"), ("c", 0.02, "a"), (None, 0.02, "a")]
)
def test_the_baseline_is_served_unless_a_choice_beats_it_by_the_margin(baseline, margin, served):
    scores = {"b": 101.0, "a": 100.0, "d": 100.0, "c": 102.0}
    assert unless_beaten(baseline, scores, scores.__getitem__, margin) == served
