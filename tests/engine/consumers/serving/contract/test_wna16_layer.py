"""Layers of GPTQ and AWQ models: names, bounds and sizes."""

from __future__ import annotations

import pickle

import pytest

from gemmtune.engine.consumers.serving.contract.moe_layer import VllmMoe
from gemmtune.engine.consumers.serving.contract.wna16_layer import SglangWna16, VllmWna16
from gemmtune.engine.records.errors import ProblemError

SIZES = "m2:e8:k2:h256:n128"


@pytest.mark.parametrize("end", ["g128:int4_w4a16", "g32:int8_w8a16:zeros", "g64:int4_w4a16:zeros:zipf=1.2"])
@pytest.mark.parametrize("kind", [VllmWna16, SglangWna16])
def test_a_name_reads_back_and_so_do_fields_and_pickles(kind, end):
    text = f"{kind.kind}:{SIZES}:{end}"
    layer = kind.parse(text)
    assert layer.name == text
    assert kind.from_fields(layer.to_fields()) == layer
    assert pickle.loads(pickle.dumps(layer)) == layer
    assert layer.series_name == text.replace(":m2:", ":m:")
    assert (layer.family.hidden, layer.family.group, layer.family.zeros) == (layer.group, layer.group, layer.zeros)
    assert not layer.takes_rows_unsorted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{SIZES}:int4_w4a16", "group is missing"),
        (f"{SIZES}:g48:int4_w4a16", "group=48 is no power of two from 32"),
        (f"{SIZES}:g16:int4_w4a16", "group=16 is no power of two from 32"),
        ("m2:e8:k2:h256:n96:g64:int4_w4a16", "inter=96 is no multiple of 64, the group"),
        (f"{SIZES}:g64:fp8_block", "fp8_block has no scale per group: write int4_w4a16 or int8_w8a16"),
        (f"{SIZES}:g64:int4_w4a16:block=64x64", "'block=64x64' is no mark of such a layer"),
    ],
)
def test_a_malformed_layer_is_refused_with_the_way_out(text, said):
    with pytest.raises(ProblemError, match=said):
        VllmWna16.parse(text)


def test_int4_without_a_group_names_the_kind_that_has_one():
    with pytest.raises(ProblemError, match="write vllm_moe_wna16:…:g128:int4_w4a16"):
        VllmMoe.parse(f"vllm_moe:{SIZES}:int4_w4a16")


@pytest.mark.parametrize(("dtype", "bytes_each"), [("int4_w4a16", 0.5), ("int8_w8a16", 1)])
def test_packed_weights_move_a_byte_per_two_elements(dtype, bytes_each):
    layer = VllmWna16.parse(f"vllm_moe_wna16:{SIZES}:g64:{dtype}")
    assert layer.bytes_with(3) - layer.bytes_with(1) == 2 * (256 * 256 + 256 * 128) * bytes_each
    assert layer.traits["bytes per element"] == bytes_each
    assert layer.traits["scales per block"] == 1.0
