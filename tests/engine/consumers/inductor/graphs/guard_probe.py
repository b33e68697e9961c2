"""Report which m of a linear layer torch.compile compiles anew. Imports torch alone, so that any torch can run it.

    python guard_probe.py '[{"inputs": 36, "outputs": 20, "dtype": "bfloat16", "bias": false, "weight_grad": true,
                             "input_grad": false, "device": {...}, "sizes": [2, 20, 21]}]'

writes, for each layer, the sizes that compiled a graph of their own, and those that could not be compiled with a
dynamic m because a graph would serve that m alone. It runs on the CPU. Inductor's padding pass sees the GPU of `device`
(name, sm_count, boost_clock_mhz, memory_bandwidth_gb_s, capability), and finds no padding worth its time. Where
`device` is null, it runs on the GPU that is there, and nothing is stubbed.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from unittest.mock import patch

warnings.simplefilter("ignore")

import torch  # noqa: E402
import torch._dynamo  # noqa: E402
import triton  # noqa: E402
from torch._inductor import utils  # noqa: E402
from torch._inductor.compile_fx import compile_fx  # noqa: E402
from torch._inductor.fx_passes import pad_mm  # noqa: E402
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError  # noqa: E402


class Gpu:
    """Answers of a GPU to the padding pass."""

    def __init__(self, device: dict) -> None:
        self.device = device
        facts = {
            "multiprocessor_count": device["sm_count"],
            "mem_clock_rate": device["memory_bandwidth_gb_s"] * 500_000,  # kHz, of an 8-bit bus at double data rate
            "mem_bus_width": 8,
        }
        interface = SimpleNamespace(current_device=lambda: 0)
        asked = SimpleNamespace(get_device_properties=lambda _index: facts)
        for function in (utils.get_device_tflops, utils.get_gpu_dram_gbps):
            if hasattr(function, "cache_clear"):
                function.cache_clear()
        triton.runtime.driver.set_active(SimpleNamespace(utils=asked, get_device_interface=lambda: interface))

    def tflops(self, dtype: torch.dtype, inductors=utils.get_device_tflops) -> float:
        with (
            patch.object(torch.cuda, "is_available", lambda: True),
            patch.object(torch.cuda, "current_device", lambda: 0),
            patch.object(torch.cuda, "get_device_name", lambda: self.device["name"]),
            patch("torch._utils_internal.max_clock_rate", lambda: self.device["boost_clock_mhz"]),
        ):
            return inductors(dtype)

    def capability(self, *_index: int) -> tuple[int, ...]:
        return tuple(self.device["capability"])


def answer(question: dict) -> dict[str, list[int]]:
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = len(question["sizes"]) + 1
    where, dtype = "cuda" if question["device"] is None else "cpu", getattr(torch, question["dtype"])
    # The gradient of a bias sums over m, and Inductor's C++ backend guards whether m exceeds 4096.
    layer = torch.nn.Linear(question["inputs"], question["outputs"], bias=question["bias"], dtype=dtype, device=where)
    layer.requires_grad_(question["weight_grad"])
    graphs = 0

    def backend(module: torch.fx.GraphModule, inputs: list) -> object:
        nonlocal graphs
        graphs += 1
        return compile_fx(module, inputs)

    compiled = torch.compile(layer, backend=backend)
    found: dict[str, list[int]] = {"compiled": [], "specialised": []}
    with (
        stubbed(question["device"]) if question["device"] else nullcontext(),
        torch.set_grad_enabled(question["weight_grad"] or question["input_grad"]),
    ):
        for m in question["sizes"]:
            before = graphs
            x = torch.randn(m, question["inputs"], dtype=dtype, device=where, requires_grad=question["input_grad"])
            torch._dynamo.mark_dynamic(x, 0)
            try:
                compiled(x)
            except ConstraintViolationError:
                found["specialised"].append(m)
            else:
                found["compiled"] += [m] * (graphs > before)
    return found


@contextmanager
def stubbed(device: dict) -> Iterator[None]:
    """Run the padding pass as with that GPU."""
    gpu = Gpu(device)
    with (
        patch.object(pad_mm, "check_device", lambda *_: True),
        patch.object(pad_mm, "has_triton", lambda: True),
        patch.object(pad_mm, "get_do_bench", lambda: lambda _function: 1.0),
        patch.object(utils, "get_device_tflops", gpu.tflops),
        patch.object(torch.cuda, "get_device_capability", gpu.capability),
    ):
        yield


if __name__ == "__main__":
    torch._inductor.config.fx_graph_cache = False
    torch._inductor.config.max_autotune_gemm = True
    torch._functorch.config.enable_autograd_cache = False
    sys.stdout.write(json.dumps([answer(question) for question in json.loads(sys.argv[1])]))
