from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from gemmtune.engine.consumers.serving.contract.devices import device_named, device_of, device_text, misspelled
from gemmtune.engine.consumers.serving.contract.file_name import Engine, Kernel, parse_name
from gemmtune.engine.records.errors import DeviceError


@pytest.mark.parametrize(
    ("text", "sku", "shared_bytes"),
    [
        ("NVIDIA_H200_NVL_MIG_1g.18gb", "H200-NVL", 232_448),
        ("NVIDIA_H200_141GB_HBM3e", "H200", 232_448),
        ("NVIDIA_H20", "H20", 232_448),
        ("NVIDIA_A800-SXM4-80GB", "A800-SXM", 166_912),
        ("NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition", "RTX-PRO-6000", 101_376),
        ("NVIDIA_GB10", "GB10", 101_376),
        ("AMD_Instinct_MI300X", "MI300X", 65_536),
    ],
)
def test_a_file_s_device_is_known_with_the_shared_memory_of_a_block(text, sku, shared_bytes):
    found = device_of(text)
    assert (found.sku, found.shared_bytes) == (sku, shared_bytes)


@pytest.mark.parametrize("text", ["NVIDIA_L20Y", "", "AMD_Radeon_Graphics"])
def test_a_device_of_another_name_is_unknown(text):
    assert device_of(text) is None


def test_a_device_is_named_by_its_sku_or_by_its_driver_s_name():
    assert device_named("h20").name == "NVIDIA H20"
    assert device_named("H100").name == "NVIDIA H100 80GB HBM3"
    assert device_named("NVIDIA RTX 6000 Ada Generation").sku == "RTX-6000-Ada"
    with pytest.raises(DeviceError, match=r"no device 'H21'.*H20"):
        device_named("H21")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("E=8,N=512,device_name=NVIDIA_H200_NVL.json", "asks for NVIDIA_H200,"),
        ("E=8,N=512,device_name=NVIDIA_H100.json", "no driver reports NVIDIA_H100 alone; NVIDIA_H100_80GB_HBM3"),
        ("E=8,N=512,device_name=NVIDIA H20 3e.json", "asks for NVIDIA_H20-3e,"),
        ("E=8,N=512,device_name=nvidia_h20.json", "asks for NVIDIA_H20,"),
        ("E=8,N=512,device_name=H20.json", "asks for NVIDIA_H20,"),
        ("E=8,N=512,device_name=Some GPU.json", "asks for Some_GPU,"),
        ("E=8,N=512,device_name=.json", "names no device"),
    ],
)
def test_a_device_that_no_look_up_spells_so_is_named_with_what_is_asked_for(name, said):
    assert said in misspelled(parse_name(PurePosixPath(name)))


@pytest.mark.parametrize(
    "name",
    [
        "E=8,N=512,device_name=NVIDIA_H200.json",
        "triton_3_8_0/E=8,N=512,device_name=NVIDIA_H200_NVL.json",  # SGLang has no name for all variants
        "N=512,K=7168,device_name=NVIDIA_H200_NVL,dtype=fp8_w8a8,block_shape=[128,128].json",
        "E=8,N=512,device_name=NVIDIA_H100_80GB_HBM3_MIG_3g.40gb.json",
        "E=8,N=512,device_name=A_GPU_of_tomorrow.json",
    ],
)
def test_a_device_that_a_look_up_may_spell_so_passes(name):
    assert misspelled(parse_name(PurePosixPath(name))) is None


def test_a_device_s_name_is_written_with_underscores():
    assert device_text("NVIDIA H100/x NVL", Engine.VLLM, Kernel.MOE) == "NVIDIA_H100_x_NVL"
