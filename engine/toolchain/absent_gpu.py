"""Show Inductor and Triton a GPU that need not be present. Imports torch and triton."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget

from gemmtune.engine.records.device import Device


@contextlib.contextmanager
def target(device: Device) -> Iterator[None]:
    """Answer from the Device record the questions that Inductor and Triton ask a GPU."""
    from torch._inductor import scheduler, utils
    from torch._inductor.runtime import triton_helpers
    from torch._inductor.runtime.hints import DeviceProperties

    major, minor = device.capability
    facts: dict[str, Any] = {
        "type": "cuda",
        "index": 0,
        "multi_processor_count": device.sm_count,
        "cc": major * 10 + minor,
        "major": major,
        "regs_per_multiprocessor": device.registers_per_sm,
        "max_threads_per_multi_processor": device.max_threads_per_sm,
        "max_threads_per_block": device.max_threads_per_block,
        "warp_size": device.warp_size,
    }
    # max_threads_per_block is not among the fields of torch 2.11
    properties = DeviceProperties(**{name: value for name, value in facts.items() if name in DeviceProperties._fields})
    with (
        patch.object(triton.runtime.driver, "_active", driver_of(device)),
        patch.object(DeviceProperties, "create", staticmethod(lambda _: properties)),
        patch.object(torch.cuda, "get_device_name", lambda *_: device.name),
        patch.object(torch.cuda, "get_device_capability", lambda *_: device.capability),
        patch.object(torch.cuda, "get_device_properties", lambda *_: _properties_of(device)),
        patch.object(torch.cuda, "current_device", lambda: 0),
        patch.object(triton_helpers, "set_driver_to_gpu", lambda: None),
        patch.object(scheduler, "has_triton", lambda: True),
        # both cache their first answer, which may be about another GPU or none
        patch.object(utils, "get_max_num_sms", lambda: device.sm_count),
    ):
        yield


def _properties_of(device: Device) -> SimpleNamespace:
    """Return torch's properties of an absent GPU; its architecture's name is the GPU's, as in torch's own for CUDA."""
    major, minor = device.capability
    return SimpleNamespace(
        name=device.name,
        gcnArchName=device.name,
        major=major,
        minor=minor,
        multi_processor_count=device.sm_count,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=device.shared_memory_per_block_bytes,
        shared_memory_per_multiprocessor=device.shared_memory_per_sm_bytes,
        regs_per_multiprocessor=device.registers_per_sm,
        max_threads_per_multi_processor=device.max_threads_per_sm,
        warp_size=device.warp_size,
        L2_cache_size=device.l2_bytes,
        total_memory=2**40,  # nothing is allocated, so no model may seem too large
    )


def driver_of(device: Device) -> SimpleNamespace:
    """Return a Triton driver of an absent GPU: it knows its target and its limits."""
    major, minor = device.capability
    known = {
        "max_shared_mem": device.shared_memory_per_block_bytes,
        "max_num_regs": device.registers_per_sm,
        "multiprocessor_count": device.sm_count,
        "warpSize": device.warp_size,
    }
    return SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", major * 10 + minor, device.warp_size),
        get_current_device=lambda: 0,
        get_current_stream=lambda _: 0,
        get_active_torch_device=lambda: torch.device("cuda", 0),
        utils=SimpleNamespace(get_device_properties=lambda _: known),
    )
