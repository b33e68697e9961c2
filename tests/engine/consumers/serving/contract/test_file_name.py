from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from gemmtune.engine.consumers.serving.contract.file_name import Engine, FileName, Kernel, parse_name

VLLM_MOE = FileName(Engine.VLLM, Kernel.MOE, (128, 768), "NVIDIA_H200", "fp8_w8a8", (128, 128))
SGLANG_DOWN = FileName(
    Engine.SGLANG, Kernel.MOE, (256, 512), "NVIDIA_H20", "fp8_w8a8", (128, 128), down=True, triton="3.5.1"
)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("E=128,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json", VLLM_MOE),
        (
            "configs/triton_3_5_1/E=256,N=512,device_name=NVIDIA_H20,dtype=fp8_w8a8,block_shape=[128, 128]_down.json",
            SGLANG_DOWN,
        ),
        ("E=8,N=14336,device_name=NVIDIA_H200.json", FileName(Engine.VLLM, Kernel.MOE, (8, 14336), "NVIDIA_H200")),
        (
            "triton_3_8_0/E=8,N=64,device_name=NVIDIA_H200,dtype=int4_w4a16_down.json",
            FileName(Engine.SGLANG, Kernel.MOE, (8, 64), "NVIDIA_H200", "int4_w4a16", down=True, triton="3.8.0"),
        ),
        (
            "N=512,K=7168,device_name=NVIDIA_L20,dtype=fp8_w8a8,block_shape=[128, 128].json",
            FileName(Engine.SGLANG, Kernel.LINEAR, (512, 7168), "NVIDIA_L20", "fp8_w8a8", (128, 128)),
        ),
    ],
)
def test_a_name_is_read_and_written_as_the_engine_writes_it(path, name):
    assert parse_name(PurePosixPath(path)) == name
    assert name.text == PurePosixPath(path).name
    assert name.is_read


@pytest.mark.parametrize("name", ["config.json", "E=8,N=64,device_name=X,dtype=int4_w4a16,backend=flydsl.json"])
def test_a_file_of_another_kind_has_no_name(name):
    assert parse_name(PurePosixPath(name)) is None


@pytest.mark.parametrize(
    "name",
    [
        "E=128,N=8960,device_name=NVIDIA_H100_80GB_HBM3,dtype=bf16.json",
        "E=128,N=8960,device_name=NVIDIA_H200,block_shape=[128,128].json",
    ],
)
def test_a_name_that_no_look_up_builds_is_known(name):
    found = parse_name(PurePosixPath(name))
    assert found is not None
    assert not found.is_read
