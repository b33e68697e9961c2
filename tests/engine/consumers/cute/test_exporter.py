from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from gemmtune.engine.consumers.cute.exporter import CuteExporter, problem_key
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.tables.table_file import table_sha256

CUTE = {
    "operator": "PersistentDenseGemmOperator",
    "mma_tiler_m": 256,
    "mma_tiler_n": 128,
    "cluster_shape_m": 2,
    "cluster_shape_n": 1,
    "use_2cta_instrs": True,
    "use_tma_store": True,
    "tile_scheduler": "clc",
}
QUACK = {
    "tile_m": 128,
    "tile_n": 192,
    "cluster_m": 2,
    "cluster_n": 1,
    "pingpong": True,
    "swap_ab": False,
    "is_dynamic_persistent": False,
    "max_swizzle_size": 8,
}


def choice(space, config, time_ns=1000.0, evidence=Evidence.MEASURED):
    toolchain = "nvidia-cutlass-dsl 4.8.1, quack-kernels 0.6.5"
    return Choice(space, Config(config), time_ns, time_ns - 1, time_ns + 1, 32, evidence, toolchain, "graph-cold-l2")


def row(problem, *choices, baseline=None, lead=0.25):
    problem = Problem.parse(problem) if isinstance(problem, str) else problem
    fastest = min(choices, key=lambda choice: choice.time_ns)
    return Row(problem, choices, baseline, lead, (fastest.config,), regret_bound=0.004)


def table(*rows, sku="B200"):
    return Table(catalogue.device(sku), rows, "latency")


def content(*rows, sku="B200"):
    return json.loads(CuteExporter().export(table(*rows, sku=sku))["cute_table.json"])


def entries(*rows, sku="B200"):
    """Return the entries of each dispatcher by problem."""
    found = content(*rows, sku=sku)["rows"]
    return {space: {entry["problem"]: entry for entry in of_space.values()} for space, of_space in found.items()}


def only_row(*rows, sku="B200"):
    (found,) = (entry for of_space in content(*rows, sku=sku)["rows"].values() for entry in of_space.values())
    return found


@pytest.mark.parametrize(
    ("problem", "key"),
    [
        ("512x1024x256:bf16:nt", "512x1024x256:bfloat16:bfloat16:bfloat16:float32:nt"),
        ("1x2x8:fp16:tn:out_dtype=fp32", "1x2x8:float16:float16:float32:float32:tn"),
        ("8x8x8:fp16:nt:acc_dtype=fp16", "8x8x8:float16:float16:float16:float16:nt"),
    ],
)
def test_key_has_sizes_types_and_layouts_of_the_operands(problem, key):
    assert problem_key(Problem.parse(problem)) == key


def test_a_cute_row_names_class_and_design_and_no_operator_name():
    assert only_row(row("512x1024x256", choice("cute_gemm", CUTE)))["operator"] == {
        "class": "PersistentDenseGemmOperator",
        "design": {
            "tile_shape": [256, 128],
            "cluster_shape": [2, 1],
            "use_2cta_mma": True,
            "use_tma_store": True,
            "tile_scheduler": "CLCDynamicPersistentTileSchedulerMetadata",
        },
    }


@pytest.mark.parametrize("name", ["cute_gemm", "quack_gemm"])
@pytest.mark.parametrize("sku", ["H200", "B200"])
def test_every_seed_of_both_spaces_can_be_exported(name, sku):
    seeds = registry.space(name).seeds(Task(Problem(512, 1024, 256), catalogue.device(sku), name))
    found = entries(*(row(f"{m}x1024x256", choice(name, seed)) for m, seed in enumerate(seeds, 1)), sku=sku)[name]
    assert len(found) == len(seeds) > 3
    assert all(entry["config"] in map(dict, seeds) for entry in found.values())


@pytest.mark.parametrize(("sku", "capacity"), [("H200", 9), ("B200", 10), ("RTX-5090", 12)])
def test_a_quack_row_is_a_complete_gemm_config_of_its_gpu(sku, capacity):
    found = only_row(row("512x1024x256", choice("quack_gemm", QUACK)), sku=sku)
    assert found["gemm_config"] == {**QUACK, "device_capacity": capacity}


def test_a_row_has_the_evidence_and_versions_of_its_time():
    estimated = choice("quack_gemm", QUACK, evidence=Evidence.ESTIMATED)
    found = only_row(row("512x1024x256", estimated, baseline=choice("aten", {}, 1250.0)))
    del found["gemm_config"]
    assert found == {
        "problem": "512x1024x256:bf16:nt",
        "config": QUACK,
        "time_ns": 1000.0,
        "low_ns": 999.0,
        "high_ns": 1001.0,
        "samples": 32,
        "evidence": "estimated",
        "protocol": "graph-cold-l2",
        "packages": {"nvidia-cutlass-dsl": "4.8.1", "quack-kernels": "0.6.5"},
        "winner": "quack_gemm",
        "loss": 0.0,
        "lead": 0.25,
        "regret_bound": 0.004,
        "rounded_loss": None,
    }


def test_the_file_names_its_table_and_gpu_and_has_its_own_hash():
    exported = table(row("8x8x8", choice("cute_gemm", CUTE)), row("16x8x8", choice("aten", {})))
    files = CuteExporter().export(exported)
    assert sorted(files) == ["cute_table.json", "gemmtune_cute_table.py", "gemmtune_cutlass.py", "gemmtune_quack.py"]
    found = json.loads(files["cute_table.json"])
    assert found["device"] == {"sku": "B200", "name": "NVIDIA B200", "arch": "sm_100a"}
    assert (found["objective"], found["table_sha256"]) == ("latency", table_sha256(exported))
    assert found["left_out"] == {"cute_gemm": 1, "quack_gemm": 2}
    assert {space: len(entries) for space, entries in found["rows"].items()} == {"cute_gemm": 1, "quack_gemm": 0}
    bare = "".join(files["cute_table.json"].split()).replace(found["sha256"], "")
    assert found["sha256"] == hashlib.sha256(bare.encode()).hexdigest()


def test_rows_with_a_bias_or_an_epilogue_are_left_out():
    names = ("8x8x8:bf16:nt", "8x8x8:bf16:nt:addmm", "8x8x8:bf16:nt:epilogue=relu")
    found = content(*(row(name, choice("quack_gemm", QUACK)) for name in names))
    assert found["left_out"] == {"cute_gemm": 3, "quack_gemm": 2}


def test_quacks_dispatcher_gets_exact_products_of_8_bit_floats_alone():
    names = ("16x32x64:e4m3:nt:accumulation=exact", "8x32x64:e4m3:nt")
    found = content(*(row(name, choice("quack_gemm", QUACK)) for name in names), sku="H100")
    assert list(found["rows"]["quack_gemm"]) == ["16x32x64:float8e4m3fn:float8e4m3fn:bfloat16:float32:nt"]
    assert found["left_out"]["quack_gemm"] == 1


def test_rows_at_neighbouring_m_state_the_loss_of_rounding_up():
    other = choice("cute_gemm", {**CUTE, "mma_tiler_n": 64}, 990.0)
    rows = content(
        row("256x8x8", other, choice("cute_gemm", CUTE)),
        row("512x8x8", choice("cute_gemm", CUTE)),
        row("512x16x8", choice("cute_gemm", CUTE)),
    )["rows"]["cute_gemm"]
    losses = {found["problem"]: found["rounded_loss"] for found in rows.values()}
    assert losses == {
        "256x8x8:bf16:nt": None,
        "512x8x8:bf16:nt": pytest.approx(1001 / 989 - 1),
        "512x16x8:bf16:nt": None,
    }


def test_the_loaders_import_nothing_of_gemmtune():
    files = CuteExporter().export(table())
    for name in ("gemmtune_cute_table.py", "gemmtune_cutlass.py", "gemmtune_quack.py"):
        compile(files[name], name, "exec")
        imports = [line.strip() for line in files[name].splitlines() if "import" in line and "gemmtune" in line]
        assert all("gemmtune." not in line for line in imports if line.startswith(("from", "import")))
    assert "from gemmtune_cute_table import CuteTable" in files["gemmtune_quack.py"]


def test_each_dispatcher_gets_the_best_of_its_own_space_with_its_loss_against_the_winner():
    vendor = choice("aten", {}, 1000.0)
    slower = {**QUACK, "tile_n": 128}
    found = entries(
        row(
            "8x8x8",
            vendor,
            choice("quack_gemm", QUACK, 1100.0),
            choice("quack_gemm", slower, 1150.0),
            choice("cute_gemm", CUTE, 1250.0),
            baseline=vendor,
            lead=0.0,
        )
    )
    quack, cute = found["quack_gemm"]["8x8x8:bf16:nt"], found["cute_gemm"]["8x8x8:bf16:nt"]
    assert (quack["config"], cute["config"]) == (QUACK, CUTE)
    assert {quack["winner"], cute["winner"]} == {"aten"}
    assert (quack["loss"], cute["loss"]) == (pytest.approx(0.1), pytest.approx(0.25))
    assert (quack["lead"], cute["lead"]) == (pytest.approx(-1 / 11), pytest.approx(-0.2))
    assert (quack["regret_bound"], cute["regret_bound"]) == (None, None)  # the row's is that of the vendor library


def test_a_kernel_that_the_vendor_library_ties_with_has_the_rows_regret_bound_and_no_loss():
    vendor = choice("aten", {}, 1000.0)
    (found,) = entries(row("8x8x8", vendor, choice("cute_gemm", CUTE, 990.0), baseline=vendor, lead=1000 / 990 - 1))[
        "cute_gemm"
    ].values()
    assert (found["winner"], found["loss"]) == ("aten", pytest.approx(-0.01))
    assert (found["lead"], found["regret_bound"]) == (pytest.approx(1000 / 990 - 1), 0.004)


def test_an_estimate_beside_a_measured_winner_is_not_exported():
    guess = choice("cute_gemm", CUTE, 10.0, evidence=Evidence.ESTIMATED)
    found = entries(row("8x8x8", choice("quack_gemm", QUACK), guess), row("16x8x8", choice("cute_gemm", CUTE)))
    assert list(found["cute_gemm"]) == ["16x8x8:bf16:nt"]


def test_rounding_up_counts_the_loss_within_the_dispatchers_space():
    fast, slow = choice("triton_mm", {}, 900.0), choice("triton_mm", {"tile": 2}, 500.0)
    rows = (row("256x8x8", slow, choice("cute_gemm", CUTE)), row("512x8x8", fast, choice("cute_gemm", CUTE)))
    assert entries(*rows)["cute_gemm"]["512x8x8:bf16:nt"]["rounded_loss"] == 0.0


def test_a_table_without_a_cute_choice_is_refused_with_its_spaces():
    message = "8x8x8:bf16:nt: a CuTe dispatcher cannot run space 'aten', .* \\(choices are of aten, triton_mm\\)"
    with pytest.raises(TableError, match=message):
        content(row("8x8x8", choice("aten", {})), row("16x8x8", choice("triton_mm", {})))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (row("8x8x8:bf16:nt:addmm", choice("quack_gemm", QUACK)), "no row of a plain mm has a choice of"),
        (row("8x8x8", choice("cute_gemm", {**CUTE, "stages": 2})), "config has the unknown field 'stages'"),
        (row("8x8x8", choice("quack_gemm", {"tile_m": 64})), "8x8x8:.*:nt': config has the missing field 'cluster_m'"),
        (
            row("8x8x8", choice("cute_gemm", {**CUTE, "tile_scheduler": "x"})),
            "tile_scheduler='x' is not one of 'clc', 'none'",
        ),
    ],
)
def test_problems_and_configs_unknown_to_the_dispatchers_are_refused_by_name(broken, message):
    with pytest.raises(TableError, match=message):
        content(broken)


def test_of_a_static_and_a_dynamic_m_the_static_row_is_written():
    dynamic, static = (
        row("8x8x8:bf16:nt:dynamic_m=true", choice("cute_gemm", CUTE)),
        row("8x8x8", choice("cute_gemm", CUTE)),
    )
    (entry,) = content(dynamic, static)["rows"]["cute_gemm"].values()
    assert entry["problem"] == "8x8x8:bf16:nt"
    (alone,) = content(dynamic)["rows"]["cute_gemm"].values()
    assert alone["problem"] == "8x8x8:bf16:nt:dynamic_m=true"


def test_two_rows_with_one_cute_key_are_refused():
    twice = [replace(Problem.parse("8x8x8:fp32:nt"), allow_tf32=tf32, out_dtype=DType.FP16) for tf32 in (False, True)]
    with pytest.raises(TableError, match=r"8x8x8:fp32:nt:.* and 8x8x8:tf32:nt:.* have the same CuTe key"):
        content(*(row(problem, choice("cute_gemm", CUTE)) for problem in twice))
