"""The files that vLLM and SGLang load, read back by the engines' own look-up functions."""

from __future__ import annotations

import ast
import inspect
import json
import logging
import os
import zipfile
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import pytest

from gemmtune.engine.consumers.serving.exporters import SglangExporter, VllmExporter
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import parse_workload
from gemmtune.engine.tables.export import export_table

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


@pytest.mark.parametrize(("exporter", "constants"), [(VllmExporter, {"SPLIT_K": 1}), (SglangExporter, {})])
def test_entries_of_integer_weights_state_what_their_engine_takes_from_a_file_alone(exporter, constants):
    kind = f"{exporter.engine}_moe_wna16"
    ((name, text),) = [
        item for item in exporter().export(moe_table(kind, "g128:int4_w4a16")).items() if "E=" in item[0]
    ]
    assert name.endswith("device_name=NVIDIA_H200,dtype=int4_w4a16.json")
    content = json.loads(text)
    assert content["64"] == {**config(64), **constants}
    assert ("24" in content) == (exporter is VllmExporter)  # the most tokens that vLLM runs by its kernel in CUDA
    few = {"BLOCK_SIZE_M": 16, "GROUP_SIZE_M": 1} if exporter is VllmExporter else config(32)
    assert content["16"] == {**few, **constants}


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
    with pytest.raises(
        TableError, match="the consumer runs workloads of kind gemm or grouped or flex; rows are of vllm_moe"
    ):
        export_table(registry.exporter("inductor"), moe)


class Launches(list):
    """An engine's kernel that takes its own arguments and Triton's, as the kernel does, and lists what it was given."""

    def __init__(self, kernel):
        names, defaults = [each.arg for each in kernel.args.args], [each.value for each in kernel.args.defaults]
        given = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        self.signature = inspect.Signature(
            [inspect.Parameter(n, 1, default=given.get(n, inspect.Parameter.empty)) for n in names]
            + [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=0) for n in ("num_warps", "num_stages")]
        )

    def __getitem__(self, grid):
        return lambda *given, **named: self.append(self.signature.bind(*given, **named).arguments)


def functions(wheel, path, names, stand_ins, folder, kernels=()):
    """The engine's own functions, run from its wheel's text; `folder` holds the file, for those that look beside it.

    In place of each of the kernels, they launch `Launches` with the kernel's signature.
    """
    with zipfile.ZipFile(wheel) as file:
        tree = ast.parse(file.read(path))
    defined = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    body = [node for node in defined if node.name in names]
    stand_ins |= {node.name: Launches(node) for node in defined if node.name in kernels}
    for function in body:
        function.returns = None
        for argument in function.args.args:
            argument.annotation = None
    log: Any = logging.getLogger("engine")
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


LINEARS = {
    "vllm": (VllmExporter, LINEAR, "w8a8_triton_block_scaled_mm", ["_w8a8_triton_block_scaled_mm"]),
    "sglang": (
        SglangExporter,
        SGLANG_LINEAR,
        "w8a8_block_fp8_matmul_triton",
        ["_w8a8_block_fp8_matmul", "_w8a8_block_fp8_matmul_hopper", "_reduce_block_fp8_split_k"],
    ),
}
TUNED_BY = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
NOT_SPLIT = {"SWAP_AB": False, "SPLIT_K": 1}
HOPPER = ({"SWAP_AB": True, "SPLIT_K": 1}, {"SWAP_AB": True, "SPLIT_K": 4}, {"SWAP_AB": False, "SPLIT_K": 2}, NOT_SPLIT)


def linear_table(engine):
    kind, more = f"{engine}_block_fp8", HOPPER if engine == "sglang" else [{}] * len(TOKENS)
    rows = [
        row(f"{kind}:m{m}:n256:k512", choice(kind, config(16 << i, **of)))
        for i, (m, of) in enumerate(zip(TOKENS, more, strict=True))
    ]
    return Table(H200, tuple(rows), "latency")


@pytest.fixture
def linear(wheel_of, tmp_path, request):
    """The folder of our files, and a function of the token count: what the engine's product of 256x512 launches."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    exporter, path, product, kernels = LINEARS[request.param]
    written(exporter().export(linear_table(request.param)), tmp_path)
    (tmp_path / "linear_configs").rename(tmp_path / "configs")  # where both engines look
    types = {name: getattr(torch, name) for name in ("float", "int", "float16", "float32", "float8_e8m0fnu", "empty")}
    outside = SimpleNamespace(is_compiling=lambda: False)  # to import the compiler takes 20 s
    stand_ins = {
        "torch": SimpleNamespace(_dynamo=outside, **types),
        "triton": SimpleNamespace(cdiv=lambda a, b: -(-a // b)),
        "envs": SimpleNamespace(VLLM_BATCH_INVARIANT=False),
        "current_platform": SimpleNamespace(is_rocm=lambda: False),
        "get_platform": lambda: SimpleNamespace(is_sm90=True),
        "get_device_name": lambda: "NVIDIA H200",
        "get_device_name_as_file_name": lambda: "NVIDIA_H200",
        "log_info_on_rank0": lambda *_: None,
        "_is_cuda": True,
        "_is_gfx1250": False,
    }
    names = [product, "get_w8a8_block_fp8_configs", "prepare_block_fp8_matmul_inputs"]
    names += ["select_w8a8_block_fp8_matmul_kernel"]
    scope = functions(wheel_of(request.param), path, names, stand_ins, tmp_path, kernels)

    def launched(tokens):
        a, b = (torch.empty((rows, 512), dtype=torch.float8_e4m3fn, device="meta") for rows in (tokens, 256))
        scales = (torch.empty(shape, device="meta") for shape in ((tokens, 4), (2, 4)))
        for name in kernels:
            scope[name].clear()
        scope[product](a, b, *scales, [128, 128], torch.bfloat16)
        return [(name, given) for name in kernels for given in scope[name]]

    return tmp_path / "configs", launched


@pytest.mark.parametrize(("linear", "engine"), [(each, each) for each in LINEARS], indirect=["linear"])
def test_an_engines_own_linear_layer_launches_our_configs_for_every_token_count(linear, engine):
    (_, launched), table = linear, linear_table(engine)
    for tokens in EVERY:
        ours = NOT_SPLIT | expected(table, tokens)
        (name, given), *sums = launched(tokens)
        assert {key: given[key] for key in TUNED_BY} == {key: ours[key] for key in TUNED_BY}
        assert {key: given.get(key, NOT_SPLIT[key]) for key in NOT_SPLIT} == {key: ours[key] for key in NOT_SPLIT}
        assert name.endswith("_hopper") == (ours["SWAP_AB"] or ours["SPLIT_K"] > 1)
        assert [each for each, _ in sums] == ["_reduce_block_fp8_split_k"] * (ours["SPLIT_K"] > 1)


@pytest.mark.parametrize("linear", LINEARS, indirect=True)
@pytest.mark.parametrize(("key", "refused"), [("triton_version", ValueError), ("gain_over_deployed", TypeError)])
def test_a_key_beyond_ours_would_stop_an_engines_linear_layer(linear, key, refused):
    folder, launched = linear
    (file,) = folder.iterdir()
    content = json.loads(file.read_text())
    (content if key == "triton_version" else content["1"])[key] = "3.8.0"
    file.write_text(json.dumps(content))
    with pytest.raises(refused):
        launched(1)
