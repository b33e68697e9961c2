"""Export for vLLM's linear layers: rows and kernels of the file, what is left out, and what its reader refuses."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gemmtune.engine.consumers.serving.linear.table import parse_linear_table, product_text
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.tables.sealed import seal_of

sys.path.insert(0, str(Path(__file__).parent))

from linear_tables import SCALED, TENSOR_WISE, exported, ranged, row, table

KEY = f"96x64:e4m3:nt:epilogue={SCALED}"
TABLE = table(
    row(f"16x{KEY}", "cute_splitk", "triton_mm"),
    row(f"32x{KEY}", "aten"),
    row(f"64x{KEY}", "triton_mm"),
    ranges=(ranged(f"256x{KEY}", 1, 256, "triton_mm"),),
)


def content(found):
    return json.loads(exported(found)["vllm_fp8_table.json"])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("row_wise", "scales"), [(True, SCALED), (False, TENSOR_WISE)])
@pytest.mark.parametrize("out", ["bf16", "fp16"])
def test_the_loader_names_a_layers_products_as_problems_are_named(out, row_wise, scales, bias):
    behind = f".add({'row2' if row_wise else 'row'})" * bias
    problem = Problem.parse(f"7x96x64:e4m3:nt:out_dtype={out}:epilogue={scales}{behind}")
    assert problem.name == f"7x{product_text(96, 64, out, row_wise=row_wise, bias=bias)}"
    assert content(table(row(problem.name, "triton_mm")))["rows"].keys() == {problem.name.removeprefix("7x")}


def test_rows_name_their_kernels_and_a_cute_row_the_next_one():
    found = content(TABLE)
    rows = [(r["first"], r["last"], [name.rpartition("_")[0] for name in r["kernels"]]) for r in found["rows"][KEY]]
    splitk, triton = "gemmtune_cute_splitk", "gemmtune_triton_mm"
    assert rows == [(16, 16, [splitk, triton]), (32, 32, []), (64, 64, [triton]), (2, 256, [triton])]
    assert [name.rpartition("_")[0] for name in found["binaries"]] == [splitk]
    launches = sorted((c["launch"]["first"], c["launch"]["last"], c["arguments"]) for c in found["cubins"].values())
    assert launches == [
        (2, 256, "a b out column row m"),  # a range's kernel takes m
        (16, 16, "a b out column row"),
        (64, 64, "a b out column row"),
    ]


@pytest.mark.parametrize(
    "problem",
    [
        "16x96x64:bf16:nt",
        "16x96x64:e5m2:nt:epilogue=" + SCALED,
        f"16x{KEY}.silu",
        f"16x96x64:e4m3:nt:out_dtype=fp32:epilogue={SCALED}",
        f"16x{KEY}:lda=80",
    ],
)
def test_other_products_are_left_out_and_a_table_of_them_alone_is_refused_by_name(problem):
    assert content(table(row(f"64x{KEY}", "triton_mm"), row(problem, "triton_mm")))["left_out"] == 1
    with pytest.raises(TableError, match="the plug-in of vllm cannot run space 'triton_mm' for it"):
        exported(table(row(problem, "triton_mm")))


def test_a_range_of_a_static_m_serves_where_none_is_of_a_dynamic_one():
    dynamic = ranged(f"128x{KEY}:dynamic_m=true", 2, 128, "triton_mm")
    assert [(r["first"], r["last"]) for r in content(table(ranges=(dynamic,)))["rows"][KEY]] == [(2, 128)]
    both = content(replace(TABLE, rows=(), ranges=(*TABLE.ranges, dynamic)))
    assert [(r["first"], r["last"]) for r in both["rows"][KEY]] == [(2, 128)]


def changed(record, path, value):
    found = copy.deepcopy(record)
    place = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    bare = json.dumps({**found, "sha256": ""}).encode()
    return bare.replace(b'"sha256": ""', f'"sha256": "{seal_of(bare, "")}"'.encode())


def test_a_changed_field_is_refused_by_name():
    record = content(TABLE)
    [binary], cubin = record["binaries"], record["rows"][KEY][2]["kernels"][0]
    in_row, in_cubin = ("rows", KEY, 2), ("cubins", cubin)
    assert parse_linear_table(changed(record, ("left_out",), 3)).rows
    for path, values in {
        ("left_out",): (-1, None),
        ("rows", KEY): ({}, None),
        (*in_row, "first"): (0, "64", True),
        (*in_row, "last"): (63, 2**31, "64"),
        (*in_row, "kernels"): (cubin, ["gone"], [0], [binary, "gone"]),
        (*in_row, "facts"): (None, {"time_ns": []}),
        (*in_cubin, "object"): ("", "AAAA", 7),
        (*in_cubin, "product"): (KEY + "0", None),
        (*in_cubin, "entry"): ("other", None),
        (*in_cubin, "arguments"): ("a b", None),
        (*in_cubin, "launch", "last"): (128, "64"),
        (*in_cubin, "launch", "threads"): (0, 128),
        ("binaries", binary, "epilogue"): ("none",),
    }.items():
        for value in values:
            with pytest.raises((TypeError, ValueError)) as refused:
                parse_linear_table(changed(record, path, value))
            assert path[-1] in str(refused.value), (path, value)


def test_a_kernel_of_another_product_or_m_is_refused():
    record = content(table(*TABLE.rows, row(f"16x160x64:e4m3:nt:epilogue={SCALED}", "triton_mm")))
    rows = record["rows"]
    [other] = rows[f"160x64:e4m3:nt:epilogue={SCALED}"]
    for kernels in (other["kernels"], rows[KEY][0]["kernels"][1:]):
        with pytest.raises(ValueError, match="is not for m=64 to 64 of this product"):
            parse_linear_table(changed(record, ("rows", KEY, 2, "kernels"), kernels))
    with pytest.raises(ValueError, match="two rows are for m=64"):
        parse_linear_table(changed(record, ("rows", KEY), [rows[KEY][2]] * 2))
    scalars = f"96x64:e4m3:nt:epilogue={TENSOR_WISE}"
    with pytest.raises(ValueError, match="computes the epilogue"):
        parse_linear_table(changed({**record, "rows": {scalars: []}}, ("rows", scalars), [rows[KEY][0]]))
