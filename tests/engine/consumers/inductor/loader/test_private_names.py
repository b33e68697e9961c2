"""Compile what stock torch compiles, whichever private name torch takes away: with a warning, without a benchmark."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row

pytestmark = [
    pytest.mark.slow(8, together="probes"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]

TILES = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 128, "GROUP_M": 8, "num_stages": 3, "num_warps": 8}
SPLIT_K = {"warp_n": 16, "warps_n": 1, "warps_k": 4, "split_k": 1, "k_unroll": 1, "num_stages": 4, "share_a": False}
SPLIT_K |= {"use_pdl": False}
SHIPPED = {"max_autotune_gemm": False, "shape_padding": False, "coordinate_descent_tuning": False}
LEAST = 63  # names and functions that are taken away


def choice(space, params):
    return Choice(space, Config(params), 100.0, 99.0, 101.0, 32, Evidence.MEASURED, "torch 2.13.0", "events-cold-l2")


def row(problem, space="triton_mm", params=TILES, baseline=None):
    return Row(Problem.parse(problem), (choice(space, params),), baseline, 0.0, ())


@pytest.fixture(scope="module")
def report(exported, unbuilt, probed):
    rows = (
        row("64x96x256:bf16:nt:epilogue=relu.mul(matrix)"),
        row("64x96x256:bf16:nt:addmm"),
        row("64x128x256:bf16:nt:epilogue=relu", "cute_splitk", SPLIT_K, choice("aten", {})),
    )
    dynamic = Problem.parse("64x96x256:bf16:nt:dynamic_m=true")
    folder = exported(rows, (RangeRow(dynamic, 2, 64, choice("triton_mm", TILES), ((64, 0.0),)),))
    return probed("private_names_probe.py", folder)


def test_with_all_names_the_rows_run(report):
    found = report["with_table"]
    assert (found["options"], found["warnings"], found.get("error")) == (SHIPPED, [], None)
    assert found["counts"] == {"products": [1] * 3, "ranged": [1], "binary": [1], "grouped": [], "convolved": [1]}
    assert (found["kernels"], found["binaries"]) == (["pointwise", *["template"] * 4], 1)


def test_without_any_name_everything_compiles_that_stock_torch_compiles(report):
    assert len(report["found"]) >= LEAST
    failed = {name: (each["step"], each["error"]) for name, each in report["found"].items() if "error" in each}
    assert failed == {}


def test_without_any_name_nothing_has_more_choices_than_without_a_table(report):
    counted = {name: each["counts"] for name, each in report["found"].items() if "counts" in each}
    assert len(counted) > 60
    assert set().union(*counted.values()) == set(report["stock"]["counts"])
    for name, of_models in counted.items():
        for model, counts in of_models.items():
            assert counts == [1] * max(len(counts), len(report["stock"]["counts"][model])), (name, model)


def test_without_any_name_the_loader_warns_at_most_once(report):
    said = {name: each["warnings"] for name, each in report["found"].items()}
    assert {name: messages for name, messages in said.items() if len(messages) > 1} == {}


def test_without_any_name_uninstall_leaves_the_choice_to_torch(report):
    assert [name for name, each in report["found"].items() if not each["is_gone"]] == []


def test_where_install_uses_no_table_it_warns_gives_no_options_and_the_report_says_so(report):
    unused = {name: each for name, each in report["found"].items() if each["is_stock"]}
    assert len(unused) > 30
    for name, each in unused.items():
        assert each["options"] == {}, name
        (message,) = each["warnings"]
        assert message.endswith("this process compiles as without a table"), name
        assert each["report"].startswith("no table is used, and torch compiles as without one: torch "), name
