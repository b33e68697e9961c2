"""Rows of CuTe kernels inside the installed torch's Inductor, on a machine without a GPU: see cute_probe.py."""

from __future__ import annotations

import json
from importlib.metadata import version
from importlib.util import find_spec

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row

pytestmark = [
    pytest.mark.slow(5, together="probes"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
]

TORCH = f"torch {version('torch')}" if find_spec("torch") else ""
GEMV = {"outputs_per_warp": 2, "warps_n": 1, "warps_k": 4, "split_k": 2, "k_unroll": 1, "num_stages": 4}
SPLIT_K = {"warp_n": 16, "warps_n": 1, "warps_k": 4, "split_k": 4, "k_unroll": 2, "num_stages": 4, "share_a": False}
TILES = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 128, "GROUP_M": 4, "num_stages": 3, "num_warps": 4}
MM, ADDMM, DYNAMIC = "1x96x4096:bf16:nt", "8x96x4096:bf16:nt:addmm", "16x96x4096:bf16:nt:dynamic_m=true"


def choice(space, config, time_ns):
    interval = (time_ns, time_ns - 1, time_ns + 1)
    return Choice(space, Config(config), *interval, 32, Evidence.MEASURED, TORCH, "events-cold-l2")


def row(problem, *choices):
    return Row(Problem.parse(problem), choices, choice("aten", {}, 120.0), 0.2, ())


GEMV_CHOICE = choice("cute_gemv", GEMV | {"use_pdl": False}, 100.0)
SPLIT_K_CHOICE = choice("cute_splitk", SPLIT_K | {"use_pdl": True}, 100.0)
ROWS = (
    row(MM, GEMV_CHOICE, choice("cute_splitk", SPLIT_K | {"use_pdl": False}, 105.0), choice("triton_mm", TILES, 110.0)),
    row(ADDMM, SPLIT_K_CHOICE, choice("triton_mm", TILES, 130.0)),
)
RANGES = (RangeRow(Problem.parse(DYNAMIC), 2, 16, SPLIT_K_CHOICE, ((16, 0.0),)),)


@pytest.fixture(scope="module")
def folder(probe, exported):
    return exported(ROWS, RANGES)


@pytest.fixture(scope="module")
def table(folder):
    return json.loads((folder / "inductor_table.json").read_text())


@pytest.fixture(scope="module")
def report(probed, folder):
    cases = [
        {
            "name": p.name,
            **{name: getattr(p, name) for name in ("batch", "m", "n", "k")},
            "op": p.op.value,
            "dtype": p.a_dtype.torch_name,
            "layout": f"{p.a_layout}{p.b_layout}",
            "bias": p.bias.value,
            "dynamic": p.dynamic_m,
        }
        for p in map(Problem.parse, (MM, ADDMM, DYNAMIC))
    ]
    return probed("cute_probe.py", folder, json.dumps(cases))


def chosen(found):
    return {name: (case["choices"], case["node"]) for name, case in found["choices"].items()}


def test_the_export_contains_each_kernel_once_with_the_versions_that_built_it(table):
    entries = [entry for entries in table["rows"].values() for entry in entries]
    assert {entry["kernel"] for entry in entries} == set(table["kernels"])
    assert len(table["kernels"]) == 3  # one of a GEMV, one with a bias, one without
    for kernel in table["kernels"].values():
        assert set(kernel["packages"]) == {"apache-tvm-ffi", "nvidia-cutlass-dsl"}
        assert kernel["call"] == ["a", "b.mT", "out", ["bias"], "stream"]


def test_the_notice_of_our_own_kernels_says_what_compiled_them_and_has_no_licence_of_another(folder):
    notice = (folder / "NOTICE").read_text()
    assert "nvidia-cutlass-dsl" in notice
    assert "Redistribution" not in notice


def test_a_row_names_its_fastest_choice_that_needs_torch_alone(table):
    (of_mm,) = table["rows"]["mm:bfloat16:nt:1x96x4096:none:static"]
    (of_addmm,) = table["rows"]["addmm:bfloat16:nt:1x96x4096:vector:static"]
    assert (of_mm["template"], of_mm["otherwise"]) == ("cute::cute_gemv", {"template": "triton::mm", "kwargs": TILES})
    assert of_addmm["otherwise"] == {"template": "aten::addmm", "kwargs": {}}  # cuBLAS is faster than its Triton


def test_the_stock_lookup_table_leaves_out_what_it_cannot_name(folder):
    assert json.loads((folder / "lookup_table.json").read_text()) == {}


def test_a_row_is_the_only_choice_and_nothing_is_benchmarked(report, table):
    for when in ("here", "again"):  # a second install finds the kernels registered
        found = report[when]
        assert found["warnings"] == []
        for name, (choices, node) in chosen(found).items():
            assert (len(choices), node) == (1, "ExternKernelOut"), name
            assert choices[0] in table["kernels"]
            assert found["choices"][name]["benchmarks"] == {}
        assert found["use"]["rows"] == found["use"]["products"]
    assert report["same"] == [True] * 3
    assert report["here"]["key"] == report["again"]["key"]


def test_a_graph_with_a_dynamic_m_serves_the_range_of_its_kernel(report):
    assert report["here"]["choices"]["dynamic"]["serves"] == [2, 16]


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ("missing", "needs nvidia-cutlass-dsl 4.8.1, here is none"),
        ("other", "here is 0.0.1"),
        ("unlinked", "cannot be linked: OSError: no libcuda"),
        ("without binaries", "needs a binary, and install(binaries=False) links none"),
    ],
)
def test_without_the_packages_or_the_binaries_the_next_choice_runs_and_the_report_says_why(report, when, reason):
    found = report[when]
    assert chosen(found)[MM][1] == "TritonTemplateBuffer"
    ((of_addmm,), node) = chosen(found)[ADDMM]
    assert (of_addmm in ("addmm", "bias_addmm"), node) == (True, "ExternKernelOut")  # torch 2.11 has both
    assert chosen(found)["dynamic"] == (["mm"], "ExternKernelOut")
    assert found["use"]["next_choices"] == found["use"]["products"]
    assert all(reason in text for text in found["warnings"])
    assert len(found["warnings"]) == 2  # once per space
    assert reason in found["text"]


def test_code_compiled_without_the_packages_is_never_taken_from_the_caches_with_them(report):
    assert len({report[when]["key"] for when in ("here", "missing", "other", "without binaries")}) == 4


def test_without_binaries_none_is_registered_or_linked(report):
    assert report["without binaries"]["reached"] == [False, False]
    assert report["with binaries"]["reached"] == [True, True]
    assert chosen(report["with binaries"]) == chosen(report["here"])


def test_the_policy_ignore_links_with_any_version(report):
    assert chosen(report["other ignored"]) == chosen(report["here"])


def test_code_that_cannot_call_python_gets_the_next_choice(report):
    assert report["aot"]["choices"] == ["mm"]


def test_without_the_options_a_warning_says_what_to_pass(report):
    assert report["no_options"]["node"] == "ExternKernelOut"
    assert "needs options=gemmtune_inductor.options()" in report["no_options_warnings"][0]


def test_operands_that_the_kernel_cannot_load_go_to_aten(report):
    assert report["unaligned"] == {MM: True, ADDMM: True}
    assert len(report["unaligned_warnings"]) == 2
    assert "reads rows at multiples of 16 bytes, nt in memory" in report["unaligned_warnings"][0]


def test_a_kernel_that_does_not_build_refuses_the_export_with_its_problem(exported):
    too_large = choice("cute_gemv", GEMV | {"use_pdl": False, "k_unroll": 4, "num_stages": 16}, 100.0)
    with pytest.raises(TableError, match=r"1x96x4096:bf16:nt: .*shared memory"):
        exported((row(MM, too_large),))
