from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.problem import DType, Problem
from gemmtune.engine.records.table import Choice, Row
from gemmtune.engine.tables.inductor_exporter import InductorExporter, lookup_key
from gemmtune.engine.tables.table_file import table_sha256
from gemmtune.engine.testing.exporter_conformance import example_table

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
    assert lookup_key(TABLE.device, Problem.parse(problem)) == f"NVIDIA H200+((torch.{a}), (torch.{b}))+mm"


def test_a_triton_row_is_complete_and_holds_nothing_else():
    (entries,) = lookup(row("2048x4096x4096:bf16:nt", choice("triton_mm", TILES), choice("aten", {}))).values()
    assert entries == [
        {"template_id": "triton::mm", **TILES, "EVEN_K": True, "ACC_TYPE": "tl.float32", "USE_FAST_ACCUM": False}
    ]


@pytest.mark.parametrize(("k", "even"), [(4096, True), (64, True), (4000, False), (1, False), (96, False)])
def test_even_k_is_computed_from_k_and_block_k(k, even):
    (entries,) = lookup(row(f"64x64x{k}:bf16:nt", choice("triton_mm", TILES))).values()
    assert entries[0]["EVEN_K"] is even


def test_an_aten_row_says_aten_alone():
    assert list(lookup(row("64x64x64", choice("aten", {}), choice("triton_mm", TILES))).values()) == [
        [{"template_id": "aten::mm"}]
    ]


def test_the_facts_stand_beside_the_dictionary():
    settled = replace(row("64x64x64", choice("triton_mm", TILES)), regret_bound=0.004)
    table = replace(TABLE, rows=(settled, row("8x8x8", choice("aten", {}, "t 1"))))
    files = InductorExporter().export(table)
    info = json.loads(files["table_info.json"])
    assert sorted(files) == ["gemmtune_inductor.py", "lookup_table.json", "table_info.json"]
    assert info["device"] == {"sku": "H200", "name": "NVIDIA H200", "arch": "sm_90a"}
    assert info["table_sha256"] == table_sha256(table)
    assert info["lookup_sha256"] == hashlib.sha256(files["lookup_table.json"].encode()).hexdigest()
    assert info["toolchains"] == ["t 1", "torch 2.13.0"]
    assert set(info["rows"]) == set(json.loads(files["lookup_table.json"]))
    assert info["rows"][lookup_key(TABLE.device, Problem.parse("64x64x64"))] == {
        "problem": "64x64x64:bf16:nt",
        "space": "triton_mm",
        "config": TILES,
        "time_ns": 100.0,
        "evidence": "measured",
        "protocol": "events-cold-l2",
        "regret_bound": 0.004,
    }
    assert info["rows"][lookup_key(TABLE.device, Problem.parse("8x8x8"))]["regret_bound"] is None


def test_the_loader_needs_torch_alone():
    text = export()["gemmtune_inductor.py"]
    compile(text, "gemmtune_inductor.py", "exec")
    assert "import gemmtune" not in text.replace("import gemmtune_inductor", "")
    assert "from gemmtune" not in text


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (row("8x8x8", choice("cute_gemm", {})), "8x8x8:bf16:nt: no Inductor template for space 'cute_gemm'"),
        (row("8x8x8:bf16:nt:addmm", choice("aten", {})), "8x8x8:bf16:nt:addmm: .* not for addmm"),
        (row("4x8x8x8:bf16:nt:bmm", choice("aten", {})), "not for bmm"),
        (row(replace(Problem.parse("8x8x8"), epilogue="relu"), choice("aten", {})), "epilogue='relu' has no key"),
        (row(replace(Problem.parse("8x8x8"), out_dtype=DType.FP32), choice("aten", {})), "one dtype, not bf16, fp32"),
        (row(replace(Problem.parse("8x8x8"), acc_dtype=DType.FP16), choice("aten", {})), "accumulates in fp32, not in"),
        (row("8x8x8", choice("triton_mm", {**TILES, "num_ctas": 2})), "not a config of triton_mm: see num_ctas"),
        (row("8x8x8", choice("triton_mm", {"BLOCK_M": 64})), "see BLOCK_K, BLOCK_N, GROUP_M, num_stages, num_warps"),
        (row("8x8x8", choice("triton_mm", {**TILES, "BLOCK_K": 64.0})), "BLOCK_K=64.0 is not an integer"),
    ],
)
def test_what_inductor_cannot_be_told_is_refused_by_name(broken, message):
    with pytest.raises(TableError, match=message):
        export(broken)


def test_rows_inductor_cannot_tell_apart_are_refused():
    with pytest.raises(TableError, match="8x8x8:fp32:nt and 8x8x8:tf32:nt have the same Inductor key"):
        export(row("8x8x8:fp32:nt", choice("aten", {})), row("8x8x8:tf32:nt", choice("aten", {})))
