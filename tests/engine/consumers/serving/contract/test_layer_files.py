"""Files that engines look for, by layer and device, and the content that they take from them."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256

import pytest

from gemmtune.engine.consumers.serving.contract.devices import device_text
from gemmtune.engine.consumers.serving.contract.engine_source import find_engine
from gemmtune.engine.consumers.serving.contract.file_name import Engine, FileName, Kernel
from gemmtune.engine.consumers.serving.contract.layer_files import engine_of, file_name_of
from gemmtune.engine.consumers.serving.contract.tuned_file import moe_swaps, parse_file
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.seams.kinds import parse_workload

H200 = catalogue.device("H200")
NVL = replace(H200, name="NVIDIA H200 NVL/141 GB")
MOE = FileName(Engine.VLLM, Kernel.MOE, (8, 256), "NVIDIA_H200")


@pytest.mark.parametrize(
    ("layer", "device", "text"),
    [
        ("vllm_moe:m16:e8:k2:h512:n256:bf16", H200, "E=8,N=256,device_name=NVIDIA_H200.json"),
        ("vllm_moe:m16:e8:k2:h512:n256:fp16", H200, "E=8,N=256,device_name=NVIDIA_H200.json"),
        ("vllm_moe:m1:e8:k2:h512:n256:int8_w8a16", H200, "E=8,N=256,device_name=NVIDIA_H200,dtype=int8_w8a16.json"),
        ("sglang_moe:m1:e8:k2:h512:n256:int8_w8a16", H200, "E=8,N=256,device_name=NVIDIA_H200,dtype=int8_w8a16.json"),
        (
            "vllm_moe_wna16:m1:e8:k2:h512:n256:g128:int4_w4a16:zeros",
            NVL,
            "E=8,N=256,device_name=NVIDIA_H200,dtype=int4_w4a16.json",
        ),
        (
            "sglang_moe_wna16:m1:e8:k2:h512:n256:g128:int4_w4a16",  # SGLang states the bytes of a row
            H200,
            "E=8,N=128,device_name=NVIDIA_H200,dtype=int4_w4a16.json",
        ),
        (
            "sglang_moe_wna16:m1:e8:k2:h512:n256:g64:int8_w8a16",
            H200,
            "E=8,N=256,device_name=NVIDIA_H200,dtype=int8_w8a16.json",
        ),
        (
            "vllm_moe:m1:e8:k2:h512:n256:fp8_block:block=64x128",
            H200,
            "E=8,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[64,128].json",
        ),
        ("vllm_moe:m1:e8:k2:h512:n256:fp8_tensor", NVL, "E=8,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8.json"),
        (
            "vllm_moe:m1:e8:k2:h512:n256:fp8_block",
            H200,
            "E=8,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json",
        ),
        (
            "sglang_moe:m1:e8:k2:h512:n256:fp8_block",
            NVL,
            "E=8,N=256,device_name=NVIDIA_H200_NVL_141_GB,dtype=fp8_w8a8,block_shape=[128, 128].json",
        ),
        (
            "vllm_block_fp8:m1:n512:k256",
            NVL,
            "N=512,K=256,device_name=NVIDIA_H200_NVL_141_GB,dtype=fp8_w8a8,block_shape=[128,128].json",
        ),
        (
            "sglang_block_fp8:m1:n512:k256",
            H200,
            "N=512,K=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json",
        ),
    ],
)
def test_a_layers_file_has_the_name_that_its_engine_builds(layer, device, text):
    found = file_name_of(parse_workload(layer), device)
    assert found.text == text
    assert found.is_read
    assert (found.folder, found.down, found.per_channel) == ("", False, False)
    assert found.engine is engine_of(parse_workload(layer)) is Engine(layer.partition("_")[0])


def test_a_product_is_no_engines():
    problem = parse_workload("16x64x32")
    assert engine_of(problem) is file_name_of(problem, H200) is None


def test_a_folder_of_sglang_names_the_version_of_triton():
    assert replace(MOE, triton="3.8.0").folder == "triton_3_8_0"
    assert replace(MOE, down=True).up() == MOE
    assert replace(MOE, engine=Engine.SGLANG, per_channel=True, down=True).text == (
        "E=8,N=256,device_name=NVIDIA_H200,per_channel_quant=True_down.json"
    )


def test_only_vllms_moe_layers_have_one_name_for_all_variants_of_the_h200():
    names = {(engine, kernel): device_text(NVL.name, engine, kernel) for engine in Engine for kernel in Kernel}
    assert names.pop((Engine.VLLM, Kernel.MOE)) == "NVIDIA_H200"
    assert set(names.values()) == {"NVIDIA_H200_NVL_141_GB"}
    h100 = catalogue.device("H100")
    assert device_text(h100.name, Engine.VLLM, Kernel.MOE) == h100.name.replace(" ", "_")


CHANNEL = "fp8_w8a8_channelwise"
READ = {
    (Engine.VLLM, Kernel.MOE, None): {"", "fp8_w8a8", "fp8_w8a16", "int8_w8a16", "int4_w4a16", "float32"},
    (Engine.VLLM, Kernel.MOE, (128, 128)): {"fp8_w8a8", "fp8_w8a16", "int8_w8a16", "int4_w4a16"},
    (Engine.SGLANG, Kernel.MOE, None): {"", "fp8_w8a8", "int8_w8a8", "int8_w8a16", "int4_w4a16", "float32"},
    (Engine.SGLANG, Kernel.MOE, (128, 128)): {"fp8_w8a8", "int8_w8a8", "int8_w8a16", "int4_w4a16"},
    (Engine.VLLM, Kernel.LINEAR, None): set(),
    (Engine.VLLM, Kernel.LINEAR, (128, 128)): {"fp8_w8a8", "int8_w8a8"},
    (Engine.SGLANG, Kernel.LINEAR, None): {CHANNEL},
    (Engine.SGLANG, Kernel.LINEAR, (128, 128)): {"fp8_w8a8", "int8_w8a8", CHANNEL},
}
"""Types that the look-ups of vLLM 0.33 and SGLang 0.5.23 put into names, by engine, kernel and block of scales."""


@pytest.mark.parametrize(("of", "dtypes"), READ.items(), ids=range(len(READ)))
def test_look_ups_build_names_of_their_types_alone(of, dtypes):
    engine, kernel, block = of
    known = {"", "fp8_w8a8", "fp8_w8a16", "int8_w8a8", "int8_w8a16", "int4_w4a16", "float32", CHANNEL, "bf16"}
    name = FileName(engine, kernel, (8, 256), "NVIDIA_H200", block=block)
    assert {dtype for dtype in known if replace(name, dtype=dtype).is_read} == dtypes


def test_a_tuned_file_has_its_entries_in_order_and_the_nearest_is_the_earlier_of_two():
    content = json.dumps(
        {"16": {"BLOCK_SIZE_M": 16}, "8": {"BLOCK_SIZE_M": 8}, "x": {}, "1.5": {}, "32": None}
    ).encode()
    file = parse_file("a/b.json", MOE, content)
    assert [(each.tokens, each.config) for each in file.entries] == [
        (16, {"BLOCK_SIZE_M": 16}),
        (8, {"BLOCK_SIZE_M": 8}),
        (32, None),
    ]
    assert (file.odd_keys, file.triton, file.path) == (("x", "1.5"), "", "a/b.json")
    assert file.sha256 == sha256(content).hexdigest()
    assert [file.entry(tokens).tokens for tokens in (1, 11, 12, 13, 24, 25, 10**6)] == [8, 8, 16, 16, 16, 32, 32]


@pytest.mark.parametrize(
    ("name", "triton", "odd"),
    [
        (MOE, "3.6.0", ()),
        (replace(MOE, triton="3.8.0"), "3.8.0", ()),
        (replace(MOE, engine=Engine.SGLANG), "", ("triton_version",)),
        (replace(MOE, kernel=Kernel.LINEAR), "", ("triton_version",)),
    ],
)
def test_only_vllms_moe_look_up_takes_a_version_for_no_token_count(name, triton, odd):
    file = parse_file("a.json", name, json.dumps({"triton_version": "3.6.0", "1": {}}).encode())
    assert (file.triton, file.odd_keys, len(file.entries)) == (triton, odd, 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff", r"a\.json is not text in UTF-8"),
        (b"[]", r"a\.json holds no object of configs by token count, but a list"),
        (b'{"1": 3}', r"a\.json: token count 1 has no config, but a int"),
        (b"{", r"a\.json is truncated"),
    ],
)
def test_a_file_of_something_else_is_refused(content, said):
    with pytest.raises(TableError, match=said):
        parse_file("a.json", MOE, content)


@pytest.mark.parametrize(
    ("capability", "rows", "columns", "swaps"),
    [
        ((9, 0), 63, 64, True),
        ((9, 0), 64, 64, False),
        ((9, 0), 16, 63, False),
        ((10, 0), 16, 64, False),
        ((9, 1), 16, 64, False),
    ],
)
def test_both_engines_swap_flat_wide_tiles_on_hopper(capability, rows, columns, swaps):
    assert moe_swaps(capability, rows, columns) is swaps


def test_sglang_has_defaults_of_its_own_for_little_shared_memory(tmp_path):
    folder = tmp_path / "sglang/srt/layers/moe/moe_runner/triton_utils"
    folder.mkdir(parents=True)
    modes = "envs.VLLM_BATCH_INVARIANT or get_exec().deterministic.enable_deterministic_inference"
    (folder / "fused_moe_triton_config.py").write_text(
        "def get_default_config(M):\n"
        f"    if {modes} or current_platform.is_rocm() or _is_hip:\n        return {{}}\n"
        "    return {'low': _use_low_smem_fp8_default(), 'M': M}\n"
    )
    found = find_engine(Engine.SGLANG, {"GEMMTUNE_SGLANG": str(tmp_path)})
    kilobytes = 1024
    for shared, low in ((128 * kilobytes - 1, True), (128 * kilobytes, False)):
        assert found.default_moe_config(3, shared_bytes=shared) == {"low": low, "M": 3}
