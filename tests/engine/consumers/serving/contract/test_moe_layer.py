from __future__ import annotations

import pickle

import pytest

from gemmtune.engine.consumers.serving.contract.moe_layer import MoeType, SglangMoe, VllmMoe
from gemmtune.engine.records.errors import ProblemError

NAME = "vllm_moe:m16:e128:k8:h2048:n768:fp8_block:zipf=1.2"


@pytest.mark.parametrize(
    "text",
    [
        *(NAME, "vllm_moe:m1:e8:k2:h64:n32:bf16", "vllm_moe:m3:e4:k2:h64:n32:fp8_tensor:counts=9.0.3.1"),
        *("vllm_moe:m1:e8:k2:h64:n32:fp16", "vllm_moe:m1:e8:k2:h64:n32:int8_w8a16:zipf=1.2"),
        "vllm_moe:m1:e8:k2:h64:n32:fp8_block:block=64x32:zipf=1.2",
    ],
)
def test_a_name_reads_back_and_so_do_fields_and_pickles(text):
    layer = VllmMoe.parse(text)
    assert layer.name == text
    assert VllmMoe.parse(layer.name) == layer
    assert VllmMoe.from_fields(layer.to_fields()) == layer
    assert pickle.loads(pickle.dumps(layer)) == layer


def test_a_block_of_scales_is_written_as_an_engine_writes_it_too_and_left_out_where_it_is_the_usual_one():
    texts = ["block_shape=[64,32]", "block_shape=[64, 32]", "block=64x32"]
    layers = {VllmMoe.parse(f"vllm_moe:m1:e8:k2:h64:n32:fp8_block:{text}") for text in texts}
    assert [(each.scale_block, each.deepest_tile) for each in layers] == [((64, 32), 32)]
    narrow = "m1:e8:k2:h128:n128:fp8_block:block=32x128"
    assert VllmMoe.parse(f"vllm_moe:{narrow}").deepest_tile == 32  # vLLM clamps to the smaller side
    assert SglangMoe.parse(f"sglang_moe:{narrow}").deepest_tile == 128
    usual = VllmMoe.parse("vllm_moe:m1:e8:k2:h128:n128:fp8_block:block=128x128")
    assert usual == VllmMoe.parse("vllm_moe:m1:e8:k2:h128:n128:fp8_block")
    assert usual.name == "vllm_moe:m1:e8:k2:h128:n128:fp8_block"
    assert "block" not in usual.to_fields()


def test_sizes_count_both_products():
    layer = VllmMoe.parse("vllm_moe:m2:e4:k2:h64:n32:bf16")
    assert layer.rows == 4
    assert layer.products == ((64, 64), (64, 32))
    assert layer.flops == 2 * 4 * (64 * 64 + 64 * 32)
    weights, activations, outputs = 2 * (64 * 64 + 64 * 32) * 2, (2 * 64 + 4 * 32) * 2, 4 * (64 + 64) * 2
    assert layer.min_bytes == weights + activations + outputs


def test_skew_lowers_the_number_of_working_experts():
    even, skewed = (VllmMoe.parse(f"vllm_moe:m16:e64:k4:h64:n32:bf16{end}") for end in ("", ":zipf=1.5"))
    assert 4 <= skewed.active_experts < even.active_experts < 64
    assert sum(skewed.popularity) == pytest.approx(1.0)


def test_layers_of_one_series_differ_in_tokens_and_weight_alone():
    layer = VllmMoe.parse(NAME)
    assert layer.range_size == "tokens"
    assert layer.resized(64, 3.0).series == layer.series
    assert layer.family.dtype is MoeType.FP8_BLOCK


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vllm_moe:m16:e128:k8:h2048", "inter is missing"),
        ("vllm_moe:m16:e4:k8:h64:n32", "top_k=8 > experts=4"),
        ("vllm_moe:m0:e4:k1:h64:n32", "tokens=0 is not"),
        ("vllm_moe:m1:e4:k1:h100:n128:fp8_block", "hidden=100 is no multiple of 128"),
        ("vllm_moe:m1:e4:k1:h96:n128:fp8_block:block=128x64", "hidden=96 is no multiple of 64"),
        ("vllm_moe:m1:e4:k1:h128:n128:bf16:block=64x64", "'block=64x64' is no block of scales"),
        ("vllm_moe:m1:e4:k1:h128:n128:fp8_block:block=64x0", "'block=64x0' is no block of scales"),
        ("vllm_moe:m1:e4:k1:h128:n128:fp8_block:block=64", "'block=64' is no block of scales"),
        ("vllm_moe:m1:e4:k1:h64:n32:int3", "no dtype 'int3'"),
        ("vllm_moe:m1:m2:e4:k1:h64:n32", "tokens twice"),
        ("vllm_moe:m1:e4:k1:h64:n32:zipf=0", "exponent"),
        ("vllm_moe:m1:e4:k1:h64:n32:zipf=0.00001", "of zipf is not a number from 0.0001"),
        ("vllm_moe:m1:e4:k1:h64:n32:counts=1.2", "2 counts for 4 experts"),
        ("vllm_moe:m1:e4:k1:h64:n32:counts=1.2.x.4", "count 'x' is not an integer from 0"),
        ("vllm_moe:m1:e4:k2:h64:n32:counts=1.0.0.0", "1 experts with a count above 0"),
    ],
)
def test_a_malformed_layer_is_refused_with_value_and_bound(text, said):
    with pytest.raises(ProblemError, match=said):
        VllmMoe.parse(text)


def test_the_engines_pad_their_sorted_rows_as_their_code_says():
    few, many = (f"m{m}:e128:k8:h64:n32:bf16" for m in (8, 512))
    assert VllmMoe.parse(f"vllm_moe:{few}").sorted_rows(16) == 64 * 16
    assert VllmMoe.parse(f"vllm_moe:{many}").sorted_rows(64) == 4096 + 128 * 63
    assert SglangMoe.parse(f"sglang_moe:{many}").sorted_rows(64) == -(-(4096 + 129 * 63) // 4) * 4
    assert VllmMoe.parse("vllm_moe:m4:e128:k8:h64:n32:bf16").takes_rows_unsorted
    assert not VllmMoe.parse("vllm_moe:m5:e128:k8:h64:n32:bf16").takes_rows_unsorted


@pytest.mark.parametrize("sizes", ["e4:k1:h64:n32:bf16", "e4:k1:h64:n32:bf16:zipf=2"])
def test_a_layer_is_searched_in_the_space_of_its_kernel_and_its_series_names_no_tokens(sizes):
    layer = VllmMoe.parse(f"vllm_moe:m7:{sizes}")
    assert layer.searched_space == "vllm_moe"
    assert layer.series_name == f"vllm_moe:m:{sizes}"


@pytest.mark.parametrize(
    ("end", "shares"),
    [("", (1 / 4,) * 4), (":zipf=1", (12 / 25, 6 / 25, 4 / 25, 3 / 25)), (":counts=3.0.1.0", (0.75, 0, 0.25, 0))],
)
def test_experts_are_drawn_by_their_popularity(end, shares):
    layer = VllmMoe.parse(f"vllm_moe:m2:e4:k1:h64:n32:bf16{end}")
    assert layer.popularity == pytest.approx(shares)
    assert layer.active_experts == pytest.approx(sum(1 - (1 - share) ** 2 for share in shares))


@pytest.mark.parametrize(
    ("dtype", "itemsize", "per_block"),
    [("bf16", 2, 0), ("fp16", 2, 0), ("fp8_tensor", 1, 0), ("fp8_block", 1, 1), ("int8_w8a16", 1, 0)],
)
def test_traits_are_the_type_and_the_share_of_experts_that_work(dtype, itemsize, per_block):
    layer = VllmMoe.parse(f"vllm_moe:m1:e4:k2:h128:n128:{dtype}")
    assert layer.traits == {
        "bytes per element": itemsize,
        "scales per block": per_block,
        "active experts": pytest.approx(0.5),
    }
    assert layer.bytes_with(3) - layer.bytes_with(1) == 2 * (256 * 128 + 128 * 128) * itemsize
    assert set(layer.family.sizes.values()) == {1} or dtype == "fp8_block"


@pytest.mark.parametrize(
    ("text", "name"),
    [("zipf=10", "zipf=10"), ("zipf=1.50", "zipf=1.5"), ("zipf=.1", "zipf=0.1"), ("zipf=1.2345678", "zipf=1.2345678")],
)
def test_an_exponent_is_above_zero_and_up_to_ten(text, name):
    assert VllmMoe.parse(f"vllm_moe:m1:e4:k2:h64:n32:bf16:{text}").routing == name
    with pytest.raises(ProblemError, match="exponent"):
        VllmMoe.parse("vllm_moe:m1:e4:k2:h64:n32:bf16:zipf=10.1")


def test_as_many_experts_as_a_token_takes_suffice():
    assert VllmMoe.parse("vllm_moe:m1:e2:k2:h64:n32:bf16:counts=1.1").top_k == 2
