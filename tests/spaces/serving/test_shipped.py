"""Configs that an engine runs now: entries of its tuned files, its defaults, and what the kernel gets of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gemmtune.engine.consumers.serving.contract.file_name import Engine
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.errors import ToolchainMissing, UsageError
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.kinds import parse_workload
from gemmtune.spaces.serving import shipped

H200 = catalogue.device("H200")
MOE = "vllm_moe:m64:e8:k2:h4096:n1792:bf16"
LINEAR = "vllm_block_fp8:m64:n4096:k7168"
TILE = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 256, "GROUP_SIZE_M": 8}
WHOLE = {**TILE, "num_warps": 4, "num_stages": 3}


def work(text, engine=Engine.VLLM):
    return parse_workload(text.replace("vllm", engine.value))


class Package:
    """Package of an engine with one tuned file, or none."""

    def __init__(self, entries=()):
        self.entries = tuple(SimpleNamespace(tokens=tokens, config=config) for tokens, config in entries)
        self.asked = []

    def tuned_file(self, name, triton):
        return self

    path = "configs/tuned.json"

    def entry(self, tokens):
        return min(self.entries, key=lambda each: abs(each.tokens - tokens))

    def default_moe_config(self, *arguments, shared_bytes):
        self.asked.append((arguments, shared_bytes))
        return {**TILE, "num_warps": 8, "num_stages": 2}


@pytest.fixture
def engine_has(monkeypatch):
    def use(package):
        def source(engine):
            if isinstance(package, Exception):
                raise package
            return package

        monkeypatch.setattr(shipped, "engine_source", source)
        shipped._tuned.cache_clear()
        return package

    yield use
    shipped._tuned.cache_clear()


@pytest.mark.parametrize(
    ("layer", "engine", "entry", "effective"),
    [
        (MOE, Engine.VLLM, TILE, WHOLE),
        (MOE, Engine.VLLM, {**TILE, "num_warps": 8}, {**WHOLE, "num_warps": 8}),
        (MOE, Engine.VLLM, {**TILE, "SPLIT_K": 4}, WHOLE),  # the engine sets it itself
        (MOE, Engine.VLLM, {**TILE, "num_ctas": 1, "USE_TMA": False, "SWAP_AB": False}, WHOLE),
        (MOE, Engine.VLLM, {**TILE, "num_ctas": 2}, None),
        (MOE, Engine.VLLM, {**TILE, "USE_TMA": True}, None),
        (MOE, Engine.VLLM, {**TILE, "waves": 1}, None),
        (MOE, Engine.VLLM, {**TILE, "num_warps": "4"}, None),
        (MOE, Engine.VLLM, {"BLOCK_SIZE_M": 16}, None),
        (MOE.replace("bf16", "fp8_block"), Engine.VLLM, TILE, {**WHOLE, "BLOCK_SIZE_K": 128}),
        (MOE.replace("bf16", "fp8_tensor"), Engine.VLLM, TILE, WHOLE),
        (MOE.replace("bf16", "fp8_block"), Engine.SGLANG, TILE, WHOLE),
        (LINEAR, Engine.VLLM, TILE, WHOLE),
        (LINEAR, Engine.VLLM, {**TILE, "SPLIT_K": 1}, WHOLE),
        (LINEAR, Engine.VLLM, {**TILE, "SPLIT_K": 2}, None),
        (LINEAR, Engine.SGLANG, TILE, {**WHOLE, "SWAP_AB": False, "SPLIT_K": 1}),
        (LINEAR, Engine.SGLANG, {**TILE, "SWAP_AB": True, "SPLIT_K": 2}, {**WHOLE, "SWAP_AB": True, "SPLIT_K": 2}),
    ],
)
def test_a_kernel_gets_the_parameters_of_an_entry(engine_has, layer, engine, entry, effective):
    engine_has(Package([(64, entry)]))
    found = shipped.deployed(work(layer, engine), engine, H200)
    assert found == shipped.Deployed(effective and Config(effective), "configs/tuned.json")


def test_the_entry_of_the_nearest_token_count_runs(engine_has):
    engine_has(Package([(16, TILE), (70, {**TILE, "BLOCK_SIZE_M": 32}), (256, TILE)]))
    assert shipped.deployed(work(MOE), Engine.VLLM, H200).config["BLOCK_SIZE_M"] == 32
    engine_has(Package([(64, None)]))  # the engine fails on it
    assert shipped.deployed(work(MOE), Engine.VLLM, H200).config is None


@pytest.mark.parametrize(("engine", "stages"), [(Engine.VLLM, 2), (Engine.SGLANG, 3)])
def test_a_linear_layer_without_a_file_runs_the_engines_default(engine_has, engine, stages):
    engine_has(Package())
    found = shipped.deployed(work(LINEAR, engine), engine, H200)
    tile = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 32}
    more = {"SWAP_AB": False, "SPLIT_K": 1} if engine is Engine.SGLANG else {}
    assert found == shipped.Deployed(Config({**tile, "num_warps": 4, "num_stages": stages, **more}), "default")


@pytest.mark.parametrize(
    ("dtype", "engine", "arguments"),
    [
        ("bf16", Engine.VLLM, (64, 8, 1792, 4096, 2, None, None)),
        ("fp8_tensor", Engine.VLLM, (64, 8, 1792, 4096, 2, "fp8_w8a8", None)),
        ("fp8_block", Engine.VLLM, (64, 8, 1792, 4096, 2, "fp8_w8a8", [128, 128])),
        ("fp8_block", Engine.SGLANG, (64, 8, 1792, 4096, 2, "fp8_w8a8", False, [128, 128])),
        ("g64:int4_w4a16", Engine.SGLANG, (64, 8, 1792, 4096, 2, "int4_w4a16", False, [0, 64])),
    ],
)
def test_an_engine_is_asked_for_the_default_of_a_layer_of_experts(engine_has, dtype, engine, arguments):
    package = engine_has(Package())
    name = MOE.replace("bf16", dtype).replace("_moe", "_moe_wna16" if "int4" in dtype else "_moe")
    found = shipped.deployed(work(name, engine), engine, H200)
    assert package.asked == [(arguments, H200.shared_memory_per_block_bytes)]
    assert (found.file, found.config["num_warps"], found.config["num_stages"]) == ("default", 8, 2)


WNA16 = "vllm_moe_wna16:m64:e8:k2:h4096:n1792:g64:int4_w4a16"
LEFT_OUT = {"BLOCK_SIZE_M": 16, "GROUP_SIZE_M": 1, "SPLIT_K": 1}


@pytest.mark.parametrize(
    ("tokens", "entry", "effective"),
    [
        (64, TILE, None),  # the launch fails without SPLIT_K
        (64, {**TILE, "SPLIT_K": 1}, WHOLE),
        (64, LEFT_OUT, {**WHOLE, "GROUP_SIZE_M": 1, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}),
        (64, {**LEFT_OUT, "BLOCK_SIZE_N": 256}, {**WHOLE, "GROUP_SIZE_M": 1, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}),
        (1, LEFT_OUT, {"BLOCK_SIZE_M": 16, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}),  # a tile per product
    ],
)
def test_vllm_fills_in_tiles_of_integer_weights(engine_has, tokens, entry, effective):
    engine_has(Package([(tokens, entry)]))
    found = shipped.deployed(work(WNA16.replace("m64", f"m{tokens}")), Engine.VLLM, H200)
    assert found.config == (effective and Config(effective))


def space(*blocks, refused=()):
    params = [Param("BLOCK_SIZE_M", blocks), Param("num_warps", (4, 8))]
    return SimpleNamespace(params=lambda task: params, check=lambda task, config: config["BLOCK_SIZE_M"] not in refused)


def test_the_deployed_config_and_its_nearest_neighbours_are_tried_first(engine_has):
    sizes = {1: 16, 32: 32, 64: 64, 80: 64, 90: 128, 128: 256, 256: 512, 4096: 1024}
    engine_has(Package([(tokens, {**TILE, "BLOCK_SIZE_M": size}) for tokens, size in sizes.items()]))
    task = Task(work(MOE), H200, "vllm_moe")

    def tried(of):
        return [config["BLOCK_SIZE_M"] for config in shipped.known_configs(of, task, task.problem, Engine.VLLM)]

    every = (16, 32, 64, 128, 256, 512, 1024)
    assert tried(space(*every)) == [64, 128, 32, 16, 256]  # five, each once, nearest first
    assert tried(space(*every, refused=(128,))) == [64, 32, 16, 256, 512]
    assert tried(space(32, 1024)) == [32, 1024]


@pytest.mark.parametrize("error", [ToolchainMissing("no vllm here"), UsageError("another layout")])
def test_without_the_package_nothing_is_known_to_run(engine_has, error):
    engine_has(error)
    task = Task(work(MOE), H200, "vllm_moe")
    assert shipped.known_configs(space(16), task, task.problem, Engine.VLLM) == []
    assert shipped.deployed_params(task.problem, Engine.VLLM, H200) == ()
    assert shipped.is_deployed(task.problem, Engine.VLLM, H200, Config(WHOLE)) == Verdict.no("engine", str(error))


def test_a_config_is_deployed_if_the_engine_runs_it(engine_has):
    engine_has(Package([(64, TILE)]))
    layer = work(MOE)
    assert shipped.is_deployed(layer, Engine.VLLM, H200, Config(WHOLE)) == Verdict.yes()
    other = shipped.is_deployed(layer, Engine.VLLM, H200, Config({**WHOLE, "num_warps": 8}))
    assert other == Verdict.no("not deployed", f"vllm runs {Config(WHOLE)} here, from configs/tuned.json")
    assert {param.name: param.values for param in shipped.deployed_params(layer, Engine.VLLM, H200)} == {
        name: (value,) for name, value in WHOLE.items()
    }
    engine_has(Package([(64, {**TILE, "waves": 1})]))
    assert shipped.deployed_params(layer, Engine.VLLM, H200) == ()
