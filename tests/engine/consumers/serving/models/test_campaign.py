"""A model's config.json becomes the layers and file names that the engines have on one rank."""

from __future__ import annotations

import json
import runpy
import zipfile
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest

from gemmtune.engine.api.plans import read_plan
from gemmtune.engine.consumers.serving.contract.file_name import TUNED_TOKENS, parse_name
from gemmtune.engine.consumers.serving.models.campaign import engine_problems
from gemmtune.engine.records.errors import UsageError

PUBLISHED = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("published.py"))))
BLOCK = "device_name=*,dtype=fp8_w8a8,block_shape=[128,128].json"
SPACED = "device_name=*,dtype=fp8_w8a8,block_shape=[128, 128].json"
INT4 = "device_name=*,dtype=int4_w4a16.json"
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
EXPERTS = [
    # as the engines' own tuners shard these models; both ship files of all but two of the names
    ("MIXTRAL", "vllm", 8, 1, "vllm_moe:m1:e8:k2:h4096:n1792:bf16", "E=8,N=1792,device_name=*.json"),
    ("MIXTRAL", "vllm", 1, 1, "vllm_moe:m1:e8:k2:h4096:n14336:bf16", "E=8,N=14336,device_name=*.json"),
    ("QWEN3_30B", "vllm", 4, 1, "vllm_moe:m1:e128:k8:h2048:n192:bf16", "E=128,N=192,device_name=*.json"),
    ("QWEN3_30B", "sglang", 4, 2, "sglang_moe:m1:e64:k8:h2048:n384:bf16", "E=64,N=384,device_name=*.json"),
    ("QWEN3_30B_FP8", "vllm", 1, 1, "vllm_moe:m1:e128:k8:h2048:n768:fp8_block", f"E=128,N=768,{BLOCK}"),
    ("QWEN3_NEXT", "sglang", 1, 1, "sglang_moe:m1:e513:k11:h2048:n512:fp8_block", f"E=513,N=512,{SPACED}"),
    ("DEEPSEEK_V3", "vllm", 8, 1, "vllm_moe:m1:e256:k8:h7168:n256:fp8_block", f"E=256,N=256,{BLOCK}"),
    ("DEEPSEEK_V3", "vllm", 8, 8, "vllm_moe:m1:e32:k8:h7168:n2048:fp8_block", f"E=32,N=2048,{BLOCK}"),
    ("DEEPSEEK_V3", "sglang", 8, 1, "sglang_moe:m1:e257:k9:h7168:n256:fp8_block", f"E=257,N=256,{SPACED}"),
    ("DEEPSEEK_V3", "sglang", 8, 8, "sglang_moe:m1:e32:k8:h7168:n2048:fp8_block", f"E=32,N=2048,{SPACED}"),
    ("DEEPSEEK_V32", "sglang", 8, 1, "sglang_moe:m1:e256:k8:h7168:n256:fp8_block", f"E=256,N=256,{SPACED}"),
    ("KIMI_K2", "sglang", 8, 1, "sglang_moe:m1:e384:k8:h7168:n256:fp8_block", f"E=384,N=256,{SPACED}"),
    ("KIMI_K25", "vllm", 8, 1, "vllm_moe_wna16:m1:e384:k8:h7168:n256:g32:int4_w4a16", f"E=384,N=256,{INT4}"),
    ("KIMI_K25", "sglang", 8, 1, "sglang_moe_wna16:m1:e384:k8:h7168:n256:g32:int4_w4a16", f"E=384,N=128,{INT4}"),
    ("GLM_45", "vllm", 8, 1, "vllm_moe:m1:e160:k8:h5120:n192:bf16", "E=160,N=192,device_name=*.json"),
    ("GLM_45", "sglang", 8, 1, "sglang_moe:m1:e161:k9:h5120:n192:bf16", "E=161,N=192,device_name=*.json"),
    ("SCOUT", "vllm", 8, 1, "vllm_moe:m1:e16:k1:h5120:n1024:bf16", "E=16,N=1024,device_name=*.json"),
    ("DBRX", "vllm", 8, 1, "vllm_moe:m1:e16:k4:h6144:n1344:bf16", "E=16,N=1344,device_name=*.json"),
    ("JAMBA", "vllm", 8, 1, "vllm_moe:m1:e16:k2:h4096:n1792:bf16", "E=16,N=1792,device_name=*.json"),
    ("QWEN3_OMNI", "vllm", 4, 1, "vllm_moe:m1:e128:k8:h2048:n192:bf16", "E=128,N=192,device_name=*.json"),
    ("GPT_OSS", "vllm", 1, 1, "vllm_moe:m1:e32:k4:h2880:n2880:bf16", "E=32,N=2880,device_name=*.json"),
]  # fmt: skip
UNSHIPPED = {"vllm": "E=32,N=2880,device_name=*.json", "sglang": f"E=32,N=2048,{SPACED}"}


@pytest.fixture
def model(tmp_path):
    """Write a config.json into a folder of its own; return the folder."""

    def write(content: dict, **changed: object) -> str:
        (tmp_path / "config.json").write_text(json.dumps({**content, **changed}), encoding="utf-8")
        return str(tmp_path)

    return write


def listed(found) -> list[tuple[str, float]]:
    return [(each["layer"], each["runs"]) for each in found.report("").record["layers"]]


@pytest.mark.parametrize(("name", "engine", "tp", "ep", "layer", "file"), EXPERTS)
def test_experts_are_cut_and_named_as_the_engine_does(model, name, engine, tp, ep, layer, file):
    found = engine_problems(engine, model(getattr(PUBLISHED, name)), tp=tp, ep=ep)
    assert found.layers[0].name == layer
    assert found.report("").record["layers"][0]["file"] == file


@pytest.mark.parametrize(("name", "runs"), [("DBRX", 40), ("JAMBA", 16), ("SCOUT", 48), ("GLM_45", 89)])
def test_experts_run_in_the_layers_that_the_model_gives_them(model, name, runs):
    (layer,) = engine_problems("vllm", model(getattr(PUBLISHED, name))).layers
    assert layer.weight == runs


@pytest.mark.parametrize("name", ["T5ForConditionalGeneration", "WhisperForConditionalGeneration", "CLIPModel"])
def test_an_attention_that_is_not_known_is_named_whatever_else_the_file_states(model, name):
    with pytest.raises(UsageError, match=f"does not know the attention of {name}"):
        engine_problems("vllm", model({"architectures": [name], "quantization_config": PUBLISHED.BLOCKS}))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_engines_ship_files_of_these_names(wheel_of, engine):
    with zipfile.ZipFile(wheel_of(engine)) as wheel:
        parsed = map(parse_name, map(PurePosixPath, wheel.namelist()))
        shipped = {replace(each, device="*", triton="").text for each in parsed if each is not None}
    names = {file for _, of, _, _, _, file in EXPERTS if of == engine}
    assert names - shipped == {UNSHIPPED[engine]}


def test_every_block_fp8_product_of_latent_attention_is_listed_with_its_runs(model):
    found = engine_problems("vllm", model(PUBLISHED.DEEPSEEK_V32), tp=8)
    # benchmark_w8a8_block_fp8.py has these of DeepSeek-V3 at tp=8, but for the fused first product and the indexer's
    expected = {
        (2112, 7168): 61, (3072, 1536): 61, (4096, 512): 61, (7168, 2048): 61, (8192, 1536): 61,
        (4608, 7168): 3, (7168, 2304): 3, (512, 7168): 58, (7168, 256): 58,
    }  # fmt: skip
    assert dict(listed(found)[1:]) == {f"vllm_block_fp8:m:n{n}:k{k}": runs for (n, k), runs in expected.items()}


def test_a_dense_model_in_block_fp8_has_its_four_products(model):
    found = engine_problems("sglang", model(PUBLISHED.QWEN3_32B_FP8), tp=8)
    sizes = ((1280, 5120), (5120, 1024), (6400, 5120), (5120, 3200))
    assert listed(found) == [(f"sglang_block_fp8:m:n{n}:k{k}", 64.0) for n, k in sizes]


def test_keys_and_values_stay_whole_on_more_ranks_than_there_are_heads(model):
    found = engine_problems("vllm", model(PUBLISHED.QWEN3_30B_FP8), tp=8, ep=8)
    assert listed(found)[1] == ("vllm_block_fp8:m:n768:k2048", 48.0)  # 4 heads of queries, 1 of keys, 1 of values


def test_modules_that_are_not_quantised_are_left_out(model):
    skipped = ["model.layers.0.self_attn.q_proj", "model.language_model.layers.1.self_attn", "o_proj"]
    quantised = {**PUBLISHED.BLOCKS, "modules_to_not_convert": skipped}
    found = engine_problems("vllm", model(PUBLISHED.QWEN3_30B, quantization_config=quantised))
    assert dict(listed(found)) == {
        "vllm_moe:m:e128:k8:h2048:n768:fp8_block": 48.0,
        "vllm_block_fp8:m:n5120:k2048": 46.0,
    }
    quantised["modules_to_not_convert"] = ["mlp.experts"]
    found = engine_problems("vllm", model(PUBLISHED.QWEN3_30B, quantization_config=quantised))
    assert listed(found)[0] == ("vllm_moe:m:e128:k8:h2048:n768:bf16", 48.0)


@pytest.mark.parametrize(
    ("quantised", "layer"),
    [
        ({"quant_method": "fp8"}, "vllm_moe:m1:e8:k2:h4096:n14336:fp8_tensor"),
        (AWQ, "vllm_moe_wna16:m1:e8:k2:h4096:n14336:g128:int4_w4a16:zeros"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 64, "sym": True},
         "vllm_moe_wna16:m1:e8:k2:h4096:n14336:g64:int8_w8a16"),
        ({"quant_method": "experts_int8"}, "vllm_moe:m1:e8:k2:h4096:n14336:int8_w8a16"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "vllm_moe:m1:e8:k2:h4096:n14336:fp8_tensor"),
    ],
)  # fmt: skip
def test_each_type_of_weights_that_a_space_builds_is_told(model, quantised, layer):
    assert engine_problems("vllm", model(PUBLISHED.MIXTRAL, quantization_config=quantised)).layers[0].name == layer


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"quantization_config": {"quant_method": "mxfp4"}}, "its experts are in mxfp4"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1}}, "a scale per -1"),
        ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {}}}, "with 0 groups"),
        ({"hidden_act": "relu2"}, "have no gate"),
        ({"num_local_experts": None}, "neither experts nor"),
        ({"hidden_size": "4096"}, "states no routed_expert_hidden_size or moe_latent_size or hidden_size"),
        ({"intermediate_size": 10**9}, "states no moe_intermediate_size"),
    ],
)
def test_a_model_that_no_space_serves_is_refused_with_the_reason(model, changed, reason):
    with pytest.raises(UsageError, match=reason):
        engine_problems("vllm", model(PUBLISHED.MIXTRAL, **changed))


@pytest.mark.parametrize(
    ("engine", "tp", "ep", "reason"),
    [
        ("vllm", 4, 2, "ep is 1, or with --enable-expert-parallel 4"),
        ("sglang", 4, 3, "a divisor of its 4 ranks"),
        ("sglang", 16, 16, "16 ranks do not divide the number of experts, 8"),
        ("vllm", 3, 1, "3 ranks do not divide the intermediate size of an expert, 14336"),
        ("tgi", 1, 1, "no engine 'tgi'; known: vllm, sglang"),
    ],
)
def test_ranks_that_the_engine_refuses_are_refused(model, engine, tp, ep, reason):
    with pytest.raises(UsageError, match=reason):
        engine_problems(engine, model(PUBLISHED.MIXTRAL), tp=tp, ep=ep)


def test_a_rank_that_cuts_a_block_of_scales_is_named_and_other_layers_stay(model):
    found = engine_problems("vllm", model(PUBLISHED.QWEN3_30B_FP8), tp=8)
    assert "has 96 of an expert's inputs, which cuts a scale's 128" in found.left_out[0]
    assert [name for name, _ in listed(found)] == ["vllm_block_fp8:m:n768:k2048", "vllm_block_fp8:m:n2048:k512"]
    assert f"# {found.left_out[0]}" in found.to_toml()


def test_ranks_of_vllm_with_different_numbers_of_experts_have_a_layer_each(model):
    found = engine_problems("vllm", model(PUBLISHED.GLM_45), tp=1, ep=3)
    assert [name for name, _ in listed(found)] == [f"vllm_moe:m:e{e}:k8:h5120:n1536:bf16" for e in (54, 53)]
    found = engine_problems("vllm", model(PUBLISHED.GLM_45), tp=1, ep=200)  # 40 of which have no expert
    assert [name for name, _ in listed(found)] == ["vllm_moe:m:e1:k1:h5120:n1536:bf16"]


def test_a_rank_with_fewer_experts_than_a_token_takes_runs_each_once(model):
    found = engine_problems("vllm", model(PUBLISHED.DEEPSEEK_V3), tp=1, ep=64)
    assert found.layers[0].name == "vllm_moe:m1:e4:k4:h7168:n2048:fp8_block"


def test_a_layer_that_no_kernel_in_triton_runs_at_the_wanted_counts_is_refused(model):
    with pytest.raises(UsageError, match="Up to 288 tokens are left out: vLLM runs them by its kernel in CUDA"):
        engine_problems("vllm", model(PUBLISHED.KIMI_K25), tokens=(1, 64))


def test_a_type_of_experts_may_stand_in_for_the_model_s(model):
    found = engine_problems("vllm", model(PUBLISHED.GPT_OSS_MXFP4), dtype="bf16", tokens=(1, 64))
    assert [each.name for each in found.problems] == [f"vllm_moe:m{m}:e32:k4:h2880:n2880:bf16" for m in (1, 64)]


@pytest.mark.parametrize(("name", "engine"), [("DEEPSEEK_V3", "sglang"), ("KIMI_K25", "vllm"), ("MIXTRAL", "vllm")])
def test_tune_reads_the_written_campaign_as_the_same_problems(model, tmp_path, name, engine):
    found = engine_problems(engine, model(getattr(PUBLISHED, name)), tp=2)
    written = tmp_path / "problems.toml"
    written.write_text(found.to_toml(), encoding="utf-8")
    plan = read_plan(written)
    assert plan.problems == found.problems
    assert [each.weight for each in plan.problems] == [each.weight for each in found.problems]
    # vLLM runs 6 rows per expert of int4, here of 384 experts and 8 per token, by its kernel in CUDA
    least = 289 if (name, engine) == ("KIMI_K25", "vllm") else 1
    assert len(found.problems) == len(found.layers) * sum(tokens >= least for tokens in TUNED_TOKENS)
    assert [("288 tokens" in each) for each in found.left_out] == [True] * (least > 1)
