"""The exported files inside cutlass.operators, on CPU tensors: see cutlass_probe.py."""

from __future__ import annotations

import json
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from gemmtune.engine.consumers.cute.exporter import CuteExporter
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.search.enumeration import enumerate_space
from gemmtune.spaces.cute_gemm import CuteGemmSpace

pytestmark = [
    pytest.mark.slow(4, together="probes"),
    pytest.mark.skipif(find_spec("cutlass") is None, reason="nvidia-cutlass-operators is not installed"),
]

HOPPER, BLACKWELL = "Sm90StaticPersistentGemmOperator", "PersistentDenseGemmOperator"


def config(operator, tile, cluster, scheduler="none", two_cta=False):
    return {
        "operator": operator,
        "mma_tiler_m": tile[0],
        "mma_tiler_n": tile[1],
        "cluster_shape_m": cluster[0],
        "cluster_shape_n": cluster[1],
        "use_2cta_instrs": two_cta,
        "use_tma_store": operator == BLACKWELL,
        "tile_scheduler": scheduler,
    }


def row(problem, config, evidence=Evidence.MEASURED):
    dsl = version("nvidia-cutlass-dsl")
    toolchain = f"nvidia-cutlass-dsl {dsl}, nvidia-cutlass-operators 0.2.9, torch 0.0"
    choice = Choice("cute_gemm", Config(config), 100.0, 99.0, 101.0, 32, evidence, toolchain, "graph-cold-l2")
    return Row(Problem.parse(problem), (choice,), None, 0.0, ())


@cache
def many(sku, step):
    """Return one row per `step`-th config that the space has for a GPU, each at its own m."""
    task = Task(Problem(512, 1024, 256), catalogue.device(sku), "cute_gemm")
    configs = enumerate_space(CuteGemmSpace(), task).feasible[::step]
    return [row(f"{64 + i}x1024x256:bf16:nt", config) for i, config in enumerate(configs)]


def export(folder, sku, *rows):
    folder.mkdir()
    for name, text in CuteExporter().export(Table(catalogue.device(sku), rows, "latency")).items():
        (folder / name).write_text(text, encoding="utf-8")
    return str(folder)


@pytest.fixture(scope="module")
def report(tmp_path_factory, probe):
    folder = tmp_path_factory.mktemp("cutlass")
    hopper = export(
        folder / "hopper",
        "H200",
        row("512x1024x256:bf16:nt", config(HOPPER, (128, 64), (2, 1))),
        row("256x1024x256:bf16:nt", config(HOPPER, (128, 64), (2, 1))),
        row("512x1024x256:fp16:nn", config(HOPPER, (64, 128), (1, 2))),
        row("512x1024x512:bf16:nt", config(HOPPER, (64, 128), (1, 2)), evidence=Evidence.ESTIMATED),
    )
    blackwell = export(
        folder / "blackwell",
        "B200",
        row("512x1024x256:bf16:nt", config(BLACKWELL, (256, 128), (2, 1), "clc", two_cta=True)),
        row("512x1024x512:bf16:nt", config(BLACKWELL, (128, 32), (1, 4), "static")),
    )
    everything = (
        export(folder / "every_hopper", "H200", *many("H200", 1)),
        export(folder / "many_blackwell", "B200", *many("B200", 31)),
    )
    done = probe(Path(__file__).with_name("cutlass_probe.py"), folder, hopper, blackwell, *everything)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_a_row_is_the_only_operator_on_both_architectures(report):
    hopper = {"count": 1, "class": HOPPER, "two_cta": None, "scheduler": "NoneType"}
    assert report["hopper"] == {**hopper, "tile": [128, 64], "cluster": [2, 1]}
    assert report["hopper_fp16_nn"] == {**hopper, "tile": [64, 128], "cluster": [1, 2]}
    blackwell = {"count": 1, "class": BLACKWELL}
    clc, static = "CLCDynamicPersistentTileSchedulerMetadata", "StaticPersistentTileSchedulerMetadata"
    paired = {"tile": [256, 128], "cluster": [2, 1], "two_cta": True, "scheduler": clc}
    single = {"tile": [128, 32], "cluster": [1, 4], "two_cta": False, "scheduler": static}
    assert report["blackwell"] == {**blackwell, **paired}
    assert report["blackwell_static"] == {**blackwell, **single}
    assert report["hits"] == {"log": [], "warnings": []}


@pytest.mark.parametrize(("target", "sku", "step"), [("90a", "H200", 1), ("100a", "B200", 31)])
def test_every_config_of_the_space_finds_its_own_operator(report, target, sku, step):
    schedulers = {"CLCDynamic": "clc", "StaticPer": "static", "NoneType": "none"}
    assert len(many(sku, step)) >= 24
    for expected in many(sku, step):
        found, wanted = report[f"many_{target}"][expected.problem.name], expected.choices[0].config
        assert (found["count"], found["class"]) == (1, wanted["operator"])
        assert found["tile"] == [wanted["mma_tiler_m"], wanted["mma_tiler_n"]]
        assert found["cluster"] == [wanted["cluster_shape_m"], wanted["cluster_shape_n"]]
        assert bool(found["two_cta"]) is wanted["use_2cta_instrs"]
        assert next(v for k, v in schedulers.items() if found["scheduler"].startswith(k)) == wanted["tile_scheduler"]


def test_a_call_without_a_target_finds_its_row(report):
    assert report["no_target"] == report["hopper"]


def test_m_is_rounded_up_where_both_measured_ends_agree(report):
    assert report["rounded"] == report["hopper"]


def test_a_miss_keeps_the_discovery_order_and_is_logged_once(report):
    assert report["miss_is_discovery_order"] == [True, True]
    key = "64x1024x256:bfloat16:bfloat16:bfloat16:float32:nt"
    assert report["misses"] == {"log": [f"no row for {key}: the default chooses"], "warnings": []}


def test_a_miss_goes_to_the_fallback_that_was_given(report):
    assert report["fallback"]


def test_an_operator_the_call_filters_out_is_logged_and_not_replaced(report):
    assert report["filtered_count"] > 1
    (logged,) = report["filtered"]["log"]
    assert logged.startswith("512x1024x256:bfloat16:bfloat16:bfloat16:float32:nt: 0 of ")


def test_loading_warns_of_other_versions_and_of_estimated_rows(report):
    assert report["loading"]["warnings"] == [
        f"gemmtune: the table was made with nvidia-cutlass-operators 0.2.9; here is "
        f"{version('nvidia-cutlass-operators')}: tune again",
        "gemmtune: 1 of the table's 4 cute_gemm rows are estimated, not measured",
    ]


def test_another_architecture_or_gpu_warns_once_and_finds_no_row(report):
    assert report["other_arch_count"] == [True, True]
    assert report["other_arch"]["warnings"] == ["gemmtune: the table is for sm_90; for sm_100a no row applies"]
    assert min(report["other_gpu_count"]) > 1
    assert report["other_gpu"]["warnings"] == ["gemmtune: the table is for NVIDIA H200; on NVIDIA H100 no row applies"]


def test_operands_that_no_row_describes_keep_the_discovery_order(report):
    assert report["unlike_counts"] == [True, True]
    assert report["no_args"]
