"""The exported files inside the installed torch's Inductor, on a machine without a GPU: see inductor_probe.py."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gemmtune.engine.consumers.inductor.loader.lookup import lookup_keys
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row
from gemmtune.engine.testing.exporter_conformance import example_table

pytestmark = pytest.mark.slow(4, together="probes")

TILES = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 128, "GROUP_M": 4, "num_stages": 3, "num_warps": 8}
TRITON = (
    "64x96x256:bf16:nt",
    "64x96x256:bf16:nn",
    "64x96x256:bf16:tn",
    "64x96x256:bf16:tt",
    "64x96x200:bf16:nt",
    "1x96x256:bf16:nt",
    "1x96x256:bf16:tn",
    "64x1x256:bf16:nt",
    "64x1x256:bf16:nn",
    "64x96x256:fp16:nt",
    "64x96x256:fp32:nn",
    "6x64x96x256:bf16:nn:bmm",
    "6x64x96x200:bf16:nt:bmm",
    "64x96x256:bf16:nt:ldb=320",
    "6x64x96x256:bf16:nt:bmm:batch_stride_b=0",
    "6x64x96x256:bf16:nt:bmm:ldb=1536:batch_stride_b=256",
    "6x64x96x256:bf16:nt:baddbmm",
)
ADDMM = ("64x96x256:bf16:nt:addmm", "64x96x200:bf16:nn:addmm", "64x96x256:bf16:nt:addmm:bias=matrix")
DEEP = "16x16x4096:bf16:nt"  # k ≥ 64·max(m, n): Inductor itself would not offer triton::mm
ATEN = ("256x96x256:bf16:nt", "2048x4096x4096:bf16:nt")
ATEN_OF = ("256x96x256:bf16:nt:addmm", "256x96x256:bf16:nt:addmm:bias=matrix", "6x256x96x256:bf16:nt:bmm")
DYNAMIC = "64x96x256:bf16:nt:dynamic_m=true"


def choice(space, config):
    return Choice(space, Config(config), 100.0, 99.0, 101.0, 32, Evidence.MEASURED, "torch 2.13.0", "events-cold-l2")


def row(problem, space, config):
    return Row(Problem.parse(problem), (choice(space, config),), None, 0.0, ())


def ranged(m, first, last, space, config):
    problem = replace(Problem.parse(DYNAMIC), m=m)
    return RangeRow(problem, first, last, choice(space, config), ((m, 0.0),))


ROWS = (
    *(row(p, "triton_mm", TILES) for p in (*TRITON, *ADDMM, DEEP)),
    *(row(p, "aten", {}) for p in (*ATEN, *ATEN_OF)),
    row(DYNAMIC, "triton_mm", TILES),
)
RANGES = (
    ranged(64, 33, 64, "triton_mm", TILES),
    ranged(256, 65, 256, "aten", {}),
    ranged(1024, 257, 1024, "triton_mm", {**TILES, "BLOCK_M": 128}),
)
"""An m of 2 to 32, 65 to 256 and above 1024 is ATen's."""


def case(problem):
    return {
        "name": problem.name,
        "op": problem.op.value,
        "batch": problem.batch,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "dtype": problem.a_dtype.torch_name,
        "layout": f"{problem.a_layout}{problem.b_layout}",
        "bias": problem.bias.value,
        "dynamic": problem.dynamic_m,
        **{name: getattr(problem, name) for name in ("ldb", "batch_stride_b") if getattr(problem, name) is not None},
    }


@pytest.fixture(scope="module")
def report(probed, exported):
    cases = json.dumps([case(r.problem) for r in ROWS])
    return probed("inductor_probe.py", exported(ROWS, RANGES), exported(ROWS[:1]), cases)


def splits_addmm(report):
    """Return whether that torch asks for ATen's addmm with the bias as it is, and for templates with it expanded."""
    return not report["torch"].startswith("2.11.")


@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        *(("cases", p) for p in (*TRITON, *ADDMM, DEEP)),
        *(("small_gpu", p) for p in (*TRITON, *ADDMM, DEEP)),
        *(("stock", p) for p in TRITON),
    ],
)
def test_a_triton_row_is_the_only_choice_with_its_blocks(report, handler, problem):
    found = report[handler][problem]
    k = Problem.parse(problem).k
    assert (len(found["choices"]), found["node"]) == (1, "TritonTemplateBuffer")
    name = "triton_bmm_" if "bmm" in problem else "triton_mm_"
    assert found["choices"][0].startswith(name)
    blocks = {**{name: str(TILES[name]) for name in TILES if name.isupper()}, "EVEN_K": str(k % 128 == 0)}
    assert {name: found["blocks"][name] for name in blocks} == blocks
    assert (found["blocks"]["ACC_TYPE"], found["blocks"]["USE_FAST_ACCUM"]) == ("tl.float32", "False")
    assert found["stages_warps"] == ["3", "8"]


@pytest.mark.parametrize(
    ("handler", "problem"),
    [*(("cases", p) for p in (*ATEN, *ATEN_OF)), *(("small_gpu", p) for p in (*ATEN, *ATEN_OF))],
)
def test_an_aten_row_is_the_only_choice(report, handler, problem):
    found = report[handler][problem]
    assert (len(found["choices"]), found["node"]) == (1, "ExternKernelOut")
    assert found["choices"][0] in (Problem.parse(problem).op.value, "bias_addmm")


def test_the_bias_of_a_linear_layer_reaches_the_cublas_kernel_that_fuses_it(report):
    (name,) = report["cases"]["256x96x256:bf16:nt:addmm"]["choices"]
    assert name == ("addmm" if splits_addmm(report) else "bias_addmm")


def test_nothing_is_benchmarked(report):
    for handler in ("cases", "small_gpu"):
        assert [found["benchmarks"] for found in report[handler].values()] == [{}] * (len(ROWS) - 1)
    assert report["cases_warnings"] == []


@pytest.mark.parametrize("op", ["mm", "addmm", "bmm"])
def test_a_product_without_a_row_gets_aten_alone(report, op):
    found = report["miss"][op]
    assert (len(found["choices"]), found["node"], found["benchmarks"]) == (1, "ExternKernelOut", {})
    assert report["miss_warnings"] == []


def test_the_tables_options_give_each_row_its_kernel_without_autotuning(report):
    assert {name: found["node"] for name, found in report["options"].items()} == {
        name: found["node"] for name, found in report["cases"].items()
    }
    assert [found["benchmarks"] for found in report["options"].values()] == [{}] * (len(ROWS) - 1)
    assert (report["options_miss"]["choices"], report["options_miss"]["benchmarks"]) == (["mm"], {})


def test_a_product_without_a_row_gets_stock_inductors_choices_with_autotune(report):
    assert len(report["autotuned_miss"]["choices"]) > 10
    assert report["autotuned_miss"]["node"] == "MultiTemplateBuffer"


def test_a_range_of_aten_counts_as_a_row(report):
    assert [found["choices"] for found in report["autotune_dynamic"]] == [["mm"]]


def test_a_row_of_another_layout_does_not_apply(report):
    assert report["other_layout"]["choices"] == ["mm"]


def test_stock_inductor_has_no_triton_for_a_gpu_under_68_sms(report):
    assert report["stock_small_gpu"]["choices"] == ["mm"]


def test_a_symbolic_k_has_no_row(report):
    assert report["symbolic_k"]["choices"] == ["mm"]


def test_another_gpu_warns_once_and_has_no_row(report):
    assert report["other_gpu_warnings"] == ["gemmtune's table is for NVIDIA H200; on NVIDIA L4 no row applies"]
    assert report["other_gpu"]["choices"] == ["mm"]


def test_another_gpu_runs_the_rows_with_the_policy_ignore(report):
    assert report["ignored_gpu"]["node"] == "TritonTemplateBuffer"
    assert report["ignored_gpu_warnings"] == []


def test_settings_that_rule_a_row_out_warn_once_and_leave_aten(report):
    assert len(report["no_options_warnings"]) == 2  # triton::mm and triton::bmm
    assert all(
        "pass options=gemmtune_inductor.options() to torch.compile" in text for text in report["no_options_warnings"]
    )
    assert {len(found["choices"]) for found in (*report["no_options"], *report["no_triton"])} == {1}
    assert {found["node"] for found in (*report["no_options"], *report["no_triton"])} == {"ExternKernelOut"}


def test_backends_without_aten_still_have_one_choice(report):
    assert {len(found["choices"]) for found in report["no_aten"]} == {1}


def test_stock_inductor_asks_for_the_keys_that_are_written(report):
    for problem, keys in report["stock_keys"].items():
        written = lookup_keys(example_table().device, Problem.parse(problem))
        assert set(keys) == set(written if splits_addmm(report) else written[:1]), problem
        assert keys[-1] == written[0]  # the key of the templates, which is asked for last


@pytest.mark.parametrize(
    ("asked", "name", "serves", "guards"),
    [
        ("40", "triton_mm_", [33, 64], 2),
        ("200", "mm", [65, 256], 2),  # ATen, between two rows of Triton's
        ("300", "triton_mm_", [257, 1024], 2),
        ("5000", "mm", [1025, None], 1),  # beyond the greatest m that was tuned
        ("40:100", "mm", [2, 100], 0),  # a range that was marked is not narrowed
        ("40:64", "triton_mm_", [33, 64], 0),
        ("40:100:aot", "mm", [2, 100], 0),  # nothing would check a guard
        ("40:64:aot", "triton_mm_", [33, 64], 0),
    ],
)
def test_a_graph_with_a_dynamic_m_serves_the_range_of_its_row(report, asked, name, serves, guards):
    for found in (report["dynamic"][asked], report["options_dynamic"][asked]):
        assert found["benchmarks"] == {}
        assert len(found["choices"]) == 1
        assert found["choices"][0].startswith(name)
        assert (found["serves"], found["guards"]) == (serves, guards)


def test_the_handler_is_installed_in_and_removed_from_every_thread(report):
    assert report["handlers"] == ["TableChoices"] * 3  # this thread, a new one, one that had resolved its own before
    assert report["handlers_after"] == ["InductorChoices"] * 3


def test_the_table_is_part_of_the_compile_cache_key_in_every_thread(report):
    keys = [set(report[name]) for name in ("keys_before", "keys_other", "keys_autotune", "keys_table", "keys_after")]
    assert [len(k) for k in keys] == [1] * 5  # all threads agree
    assert len(set.union(*keys[:4])) == 4
    assert keys[0] == keys[4]


def test_the_autograd_cache_key_covers_all_of_the_graph_cache_key(report):
    assert report["autograd_key_extends_graph_key"]


def test_the_report_counts_the_products_by_the_row_they_run(report):
    use = report["use"]
    assert use["empty"].startswith("no product was compiled since install")
    found = {name: use["dict"][name] for name in ("products", "rows", "aten_rows", "without_row", "no_problem")}
    assert found == {"products": 13, "rows": 3, "aten_rows": 1, "without_row": 8, "no_problem": 1}
    assert use["text"].splitlines()[0] == (
        "13 products compiled: 3 run a row's kernel, 1 run ATen because a row says so, 8 have no row, "
        "1 are no problem that can be tuned"
    )
    (none,) = [each for each in use["dict"]["uses"] if each["outcome"] == "no problem"]
    assert (none["problem"], none["detail"]) == ("mm", "n or k is dynamic, in a product of 64x96x256")


def test_the_misses_are_problems_to_tune_and_a_dynamic_m_names_the_size_seen_first(report):
    assert [Problem.parse(name).name for name in report["use"]["dict"]["misses"]] == [
        "64x96x200:fp16:nt",
        "64x100x256:bf16:nt:addmm:bias=matrix",
        "5000x96x256:bf16:nt:dynamic_m=true",
        "64x96x256:bf16:nt",
    ]


def test_each_product_is_a_line_of_the_log(report):
    assert len(report["use"]["log"]) == report["use"]["dict"]["products"]
    assert {level for level, _ in report["use"]["log"]} == {"INFO"}
    assert report["use"]["log"][0][1].startswith("64x96x256:bf16:nt: row, 64x96x256:bf16:nt triton::mm {'BLOCK_K': 128")


def test_a_graph_without_any_row_warns_once_and_names_its_products(report):
    assert report["use"]["warnings_of_rows"] == []
    names = ("64x96x200:fp16:nt", "64x100x256:bf16:nt:addmm:bias=matrix", "5000x96x256:bf16:nt:dynamic_m=true")
    for name, message in zip(names, report["use"]["warnings_of_misses"], strict=True):
        assert f"{name}. See gemmtune_inductor.report()" in message


def test_a_table_of_another_gpu_warns_once_and_the_report_names_both(report):
    assert len(report["use"]["warnings_of_other_gpu"]) == 1
    uses = report["use"]["dict"]["uses"]
    (detail,) = [u["detail"] for u in uses if u["problem"] == "64x96x256:bf16:nt" and u["outcome"] == "miss"]
    assert detail == "ATen runs; the table is for NVIDIA H200"
