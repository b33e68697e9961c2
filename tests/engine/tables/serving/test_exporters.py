"""The files that vLLM and SGLang load, read back by the engines' own look-up functions."""

from __future__ import annotations

import ast
import json
import logging
import os
import zipfile
from functools import lru_cache
from types import SimpleNamespace

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import parse_workload
from gemmtune.engine.tables.export import export_table
from gemmtune.engine.tables.serving.exporters import SglangExporter, VllmExporter

H200 = catalogue.device("H200")
TOKENS = (1, 16, 64, 1024)
MOE = "vllm/model_executor/layers/fused_moe/fused_moe.py"
LINEAR = "vllm/model_executor/layers/quantization/utils/fp8_utils.py"
SGLANG_MOE = "sglang/srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_config.py"
SGLANG_LINEAR = "sglang/kernels/ops/gemm/fp8_kernel.py"


def config(block_m, **more):
    tile = {"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1}
    return Config({**tile, "num_warps": 4, "num_stages": 3, **more})


def choice(space, of, time_ns=100.0, triton="3.8.0"):
    interval = (time_ns, time_ns - 1, time_ns + 1)
    return Choice(space, of, *interval, 32, Evidence.MEASURED, f"triton {triton}, vllm 0.33.0", "graph-cold-l2")


def row(name, *choices, baseline_ns=130.0):
    work = parse_workload(name)
    baseline = choice(work.baseline_space, config(64, num_stages=2), baseline_ns)
    return Row(work, (*choices, baseline), baseline, baseline_ns / choices[0].time_ns - 1, (choices[0].config,))


def moe_table(kind="vllm_moe", dtype="bf16", tokens=TOKENS, ranges=(), **more):
    rows = [
        row(f"{kind}:m{m}:e8:k2:h4096:n1792:{dtype}", choice(kind, config(16 << min(i, 3))))
        for i, m in enumerate(tokens)
    ]
    return Table(H200, tuple(rows), "latency", ranges=tuple(ranges), **more)


def test_a_file_has_the_engines_name_and_only_token_counts_beside_the_version():
    files = VllmExporter().export(moe_table(dtype="fp8_block"))
    name = "E=8,N=1792,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    assert set(files) == {name, "gains.json"}
    content = json.loads(files[name])
    assert list(content) == ["triton_version", "1", "16", "64", "1024"]
    assert content["triton_version"] == "3.8.0"
    assert list(content["1"]) == [
        "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages",
    ]  # fmt: skip
    gains = json.loads(files["gains.json"])["files"][name]
    assert gains["1"]["gain_over_deployed"] == {"vllm_moe:m1:e8:k2:h4096:n1792:fp8_block": 0.3}


def test_sglangs_files_go_to_the_folder_of_their_triton_and_have_no_version():
    files = SglangExporter().export(moe_table("sglang_moe", "fp8_block"))
    name = "configs/triton_3_8_0/E=8,N=1792,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
    assert list(json.loads(files[name])) == ["1", "16", "64", "1024"]


def test_both_ends_of_each_range_are_written():
    table = moe_table()
    ends = [(1, 24), (25, 2048)]
    ranges = [
        RangeRow(table.rows[i].problem, *end, choice("vllm_moe", config(16 << i)), ((1, 0.0),))
        for i, end in enumerate(ends)
    ]
    files = VllmExporter().export(Table(H200, table.rows, "latency", ranges=tuple(ranges)))
    content = json.loads(files["E=8,N=1792,device_name=NVIDIA_H200.json"])
    assert {key: each["BLOCK_SIZE_M"] for key, each in content.items() if key != "triton_version"} == {
        "1": 16, "24": 16, "25": 32, "2048": 32,
    }  # fmt: skip


def test_layers_that_share_a_file_share_the_config_that_loses_least_at_worst():
    fast, slow, even = config(16), config(32), config(128)
    one = row(
        "vllm_moe:m1:e8:k2:h4096:n1792:bf16",
        *(choice("vllm_moe", c, t) for c, t in ((fast, 100.0), (even, 104.0), (slow, 120.0))),
    )
    two = row(
        "vllm_moe:m1:e8:k4:h2048:n1792:bf16",
        *(choice("vllm_moe", c, t) for c, t in ((slow, 100.0), (even, 103.0), (fast, 120.0))),
    )
    files = VllmExporter().export(Table(H200, (one, two), "latency"))
    name = "E=8,N=1792,device_name=NVIDIA_H200.json"
    assert json.loads(files[name])["1"]["BLOCK_SIZE_M"] == 128
    assert json.loads(files["gains.json"])["files"][name]["1"]["worst_loss"] == pytest.approx(0.04)


@pytest.mark.parametrize("wrong", ["sglang_moe", "triton_mm"])
def test_a_row_that_the_engine_does_not_run_is_refused(wrong):
    table = Table(H200, (row("vllm_moe:m1:e8:k2:h4096:n1792:bf16", choice(wrong, config(16))),), "latency")
    with pytest.raises(TableError, match=f"vllm runs no {wrong} for vllm_moe:m1"):
        VllmExporter().export(table)


def test_entries_of_two_versions_of_triton_are_not_mixed():
    rows = [
        row(f"vllm_moe:m{m}:e8:k2:h4096:n1792:bf16", choice("vllm_moe", config(16), triton=version))
        for m, version in ((1, "3.7.0"), (2, "3.8.0"))
    ]
    with pytest.raises(TableError, match=r"3\.7\.0, 3\.8\.0"):
        VllmExporter().export(Table(H200, tuple(rows), "latency"))


def test_rows_of_other_workloads_are_left_to_other_consumers():
    moe, gemm = moe_table(), row("16x64x64:bf16:nt", choice("aten", Config({})))
    mixed = Table(H200, (*moe.rows, gemm), "latency")
    assert export_table(VllmExporter(), mixed) == export_table(VllmExporter(), moe)
    with pytest.raises(TableError, match="the consumer runs workloads of kind gemm; rows are of vllm_moe"):
        export_table(registry.exporter("inductor"), moe)


def functions(wheel, path, names, stand_ins, folder):
    """The engine's own functions, run from its wheel's text; `folder` holds the file, for those that look beside it."""
    with zipfile.ZipFile(wheel) as file:
        tree = ast.parse(file.read(path))
    body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    for function in body:
        function.returns = None
        for argument in function.args.args:
            argument.annotation = None
    log = logging.getLogger("engine")
    log.info_once = log.warning_once = lambda *_, **__: None
    scope = {"os": os, "json": json, "logger": log, "functools": SimpleNamespace(lru_cache=lru_cache), **stand_ins}
    scope["__file__"] = str(folder / "engine.py")
    exec(compile(ast.Module(body, type_ignores=[]), path, "exec"), scope)
    return scope


def looked_up(configs, tokens):
    return configs[min(configs.keys(), key=lambda key: abs(key - tokens))]


def written(files, folder):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def expected(table, tokens):
    """The config of the row with the nearest token count, the smaller one of two."""
    nearest = min(table.rows, key=lambda each: (abs(each.problem.size - tokens), each.problem.size))
    return dict(nearest.choices[0].config)


EVERY = [*range(1, 200), 500, 544, 545, 1024, 4096, 100_000]


@pytest.mark.parametrize(("dtype", "block"), [("bf16", None), ("fp8_tensor", None), ("fp8_block", 128)])
def test_vllms_own_look_up_gives_our_configs_for_every_token_count(wheel_of, tmp_path, dtype, block):
    table = moe_table(dtype=dtype)
    written(VllmExporter().export(table), tmp_path)
    stand_ins = {
        "envs": SimpleNamespace(VLLM_BATCH_INVARIANT=False, VLLM_TUNED_CONFIG_FOLDER=str(tmp_path)),
        "get_device_name_as_file_name": lambda: "NVIDIA_H200",
    }
    names = {"get_moe_configs", "get_config_file_name"}
    scope = functions(wheel_of("vllm"), MOE, names, stand_ins, tmp_path)
    configs = scope["get_moe_configs"](8, 1792, "fp8_w8a8" if dtype != "bf16" else None, block, block)
    assert all(looked_up(configs, tokens) == expected(table, tokens) for tokens in EVERY)
    known = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages"}
    assert all(set(each) == known for each in configs.values())  # all of which the kernel or Triton takes


def test_vllms_own_look_up_serves_our_ranges_to_their_last_token(wheel_of, tmp_path):
    table = moe_table()
    ranges = [
        RangeRow(table.rows[0].problem, 1, 23, choice("vllm_moe", config(16)), ((1, 0.0),)),
        RangeRow(table.rows[2].problem, 24, 1024, choice("vllm_moe", config(128)), ((64, 0.0),)),
    ]
    written(VllmExporter().export(Table(H200, table.rows, "latency", ranges=tuple(ranges))), tmp_path)
    stand_ins = {
        "envs": SimpleNamespace(VLLM_BATCH_INVARIANT=False, VLLM_TUNED_CONFIG_FOLDER=str(tmp_path)),
        "get_device_name_as_file_name": lambda: "NVIDIA_H200_NVL",
    }
    scope = functions(wheel_of("vllm"), MOE, {"get_moe_configs", "get_config_file_name"}, stand_ins, tmp_path)
    configs = scope["get_moe_configs"](8, 1792, None)
    assert [looked_up(configs, tokens)["BLOCK_SIZE_M"] for tokens in (1, 12, 13, 23, 24, 25, 5000)] == [
        16, 16, 16, 16, 128, 128, 128,
    ]  # fmt: skip


@pytest.mark.parametrize(("dtype", "block"), [("bf16", 0), ("fp8_tensor", 0), ("fp8_block", 128)])
def test_sglangs_own_look_up_gives_our_configs_for_every_token_count(wheel_of, tmp_path, monkeypatch, dtype, block):
    table = moe_table("sglang_moe", dtype)
    written(SglangExporter().export(table), tmp_path)
    monkeypatch.setenv("SGLANG_MOE_CONFIG_DIR", str(tmp_path))
    off = SimpleNamespace(deterministic=SimpleNamespace(enable_deterministic_inference=False))
    stand_ins = {
        "get_exec": lambda: off,
        "get_device_name": lambda: "NVIDIA H200",
        "triton": SimpleNamespace(__version__="3.8.0"),
    }
    names = {"get_moe_configs", "get_config_file_name"}
    scope = functions(wheel_of("sglang"), SGLANG_MOE, names, stand_ins, tmp_path)
    configs = scope["get_moe_configs"](8, 1792, "fp8_w8a8" if dtype != "bf16" else None, block, block)
    assert all(looked_up(configs, tokens) == expected(table, tokens) for tokens in EVERY)
    assert scope["get_moe_configs"](8, 1792, "fp8_w8a8" if dtype != "bf16" else None, block, block, down_moe=True)
