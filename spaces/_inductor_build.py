"""Inductor's template rendered and compiled for a GPU that need not be there. Imports torch and triton."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import torch
import triton
from torch._inductor import ir
from torch._inductor.codecache import PyCodeCache
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel.mm import mm_template
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.template_heuristics.registry import get_template_heuristic
from torch._inductor.virtualized import V
from triton.backends.compiler import GPUTarget

from gemmtune.engine.records.artifact import Artifact, Resources
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.problem import Layout, Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError, Space

__all__ = ["Rendering", "build", "render"]

_CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


@dataclass(frozen=True, slots=True)
class Rendering:
    """One template filled in."""

    source: str
    """Python source of the module that holds the Triton kernel."""
    module_path: str
    """Where Inductor wrote it."""
    module_key: str
    """Inductor's key of the module."""
    kernel_name: str
    """The kernel's name in the module."""
    grid: tuple[int, int, int]
    """Blocks to launch."""


class _CompiledKernel(Protocol):
    """What is used of triton.compiler.CompiledKernel."""

    asm: dict[str, bytes]
    metadata: _KernelMetadata


class _KernelMetadata(Protocol):
    name: str
    shared: int
    num_warps: int
    global_scratch_size: int
    profile_scratch_size: int


def build(space: Space, task: Task, config: Config, folder: Path) -> Artifact:
    """Render and compile `config` for the task's device; the cubin is left in `folder`.

    Raises:
        BuildError: Inductor or Triton refuse it, or it needs more than a block may have.
    """
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=folder) as scratch, _caches_in(scratch), _target(task.device):
        rendering = render(task.problem, config)
        binary = _compile(rendering)
    cubin, facts = binary.asm["cubin"], binary.metadata
    limit = task.device.shared_memory_per_block_bytes
    if facts.shared > limit:
        raise BuildError(f"the binary needs {facts.shared} B of shared memory > {limit} B a block")
    scratch_bytes = facts.global_scratch_size + facts.profile_scratch_size
    if scratch_bytes:
        raise BuildError(f"the binary wants {scratch_bytes} B of scratch memory, which the loader does not give")
    key = space.artifact_key(task, config)
    # Named by its key, for two configs may give one binary and each artifact's file is its own to delete; written
    # whole or not at all.
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.cubin"
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(cubin)
    Path(file.name).replace(path)
    registers, spill_bytes = _registers_and_spills(path)
    threads = facts.num_warps * task.device.warp_size
    return Artifact(
        key=key,
        space=task.space,
        path=str(path),
        digest=hashlib.sha256(cubin).hexdigest(),
        launch=(
            ("entry", facts.name),
            ("grid_x", rendering.grid[0]),
            ("grid_y", rendering.grid[1]),
            ("grid_z", rendering.grid[2]),
            ("threads", threads),
            ("shared_bytes", facts.shared),
        ),
        resources=Resources(registers=registers, shared_bytes=facts.shared, spill_bytes=spill_bytes, threads=threads),
        build_seconds=time.perf_counter() - started,
        toolchain=space.toolchain(),
    )


def render(problem: Problem, config: Config) -> Rendering:
    """Fill Inductor's mm template in, sizes and strides static, as torch.compile does for a table row.

    Must run where the target device is stubbed or present.
    """
    device = torch.device("cuda", 0)
    dtype = getattr(torch, problem.a_dtype.torch_name)
    operands = [
        _buffer("a", device, dtype, (problem.m, problem.k), problem.a_layout),
        _buffer("b", device, dtype, (problem.k, problem.n), problem.b_layout),
    ]
    graph = GraphLowering(torch.fx.symbolic_trace(torch.nn.Identity()))
    with V.set_graph_handler(graph), _fp32_precision("tf32" if problem.allow_tf32 else "ieee"):
        for operand in operands:
            graph.graph_inputs[operand.get_name()] = operand
            graph.name_to_buffer[operand.get_name()] = operand
        inputs = MMKernelInputs([ir.StorageBox(operand) for operand in operands])
        heuristic = get_template_heuristic(mm_template.uid, "cuda", "mm")
        options: dict[str, Any] = {
            **config,
            "EVEN_K": problem.k % config.integer("BLOCK_K") == 0,
            "ACC_TYPE": "tl.float32",
            "USE_FAST_ACCUM": False,
            **heuristic.get_extra_kwargs(inputs, "mm"),
        }
        layout = inputs.output_layout(flexible=False)
        choice = mm_template.generate(input_nodes=tuple(inputs.nodes()), layout=layout, **options)
    if choice is None:
        raise BuildError("Inductor renders nothing for this config")
    request = choice.bmreq
    x, y, z = request.extra_args
    return Rendering(
        source=Path(request.module_path).read_text(),
        module_path=request.module_path,
        module_key=request.module_cache_key,
        kernel_name=request.kernel_name,
        grid=(int(x), int(y), int(z)),
    )


def _buffer(
    name: str, device: torch.device, dtype: torch.dtype, size: tuple[int, int], layout: Layout
) -> ir.InputBuffer:
    stride = [size[1], 1] if layout is Layout.N else [1, size[0]]
    return ir.InputBuffer(name=name, layout=ir.FixedLayout(device, dtype, list(size), stride))


def _compile(rendering: Rendering) -> _CompiledKernel:
    """Compile through Inductor's own autotuner object, so that signature, constants and options are Inductor's."""
    kernel = getattr(PyCodeCache.load_by_key_path(rendering.module_key, rendering.module_path), rendering.kernel_name)
    # Line information holds the source's path; one name for all, so that equal kernels are equal binaries.
    function = kernel.fn.fn
    function.__code__ = function.__code__.replace(co_filename=f"{rendering.kernel_name}.py")
    compiled: list[_CompiledKernel] = []
    compiler = triton.compile

    def keep(*args: object, **kwargs: object) -> _CompiledKernel:
        compiled.append(compiler(*args, **kwargs))
        return compiled[-1]

    try:
        # Inductor logs the whole source of a kernel that does not compile; here that is one config among thousands.
        with patch.object(triton, "compile", keep), patch.object(triton_heuristics.log, "disabled", True):
            kernel.precompile(warm_cache_only=True)
    except Exception as error:
        raise BuildError(_reason(error)) from error
    finally:
        PyCodeCache.cache_clear()
    if len(compiled) != 1:
        raise BuildError(f"Inductor compiled {len(compiled)} kernels for one config")
    return compiled[0]


def _reason(error: Exception) -> str:
    """The kind of error with its first and last line: Triton names the place first and the trouble last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' … '.join(dict.fromkeys(lines[:1] + lines[-1:]))}"[:500]


def _registers_and_spills(cubin: Path) -> tuple[int, int]:
    """Registers and local-memory bytes a thread, as cuobjdump reads them from the binary."""
    usage = subprocess.run([_CUOBJDUMP, "-res-usage", cubin], capture_output=True, text=True, check=True).stdout  # noqa: S603 (our own paths)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise BuildError(f"cuobjdump reports no resources: {usage.strip()[:200]}")
    return int(found[1]), int(found[2])


@contextlib.contextmanager
def _caches_in(folder: str) -> Iterator[None]:
    """Inductor's and Triton's caches in a folder of this build, so that nothing piles up and nothing is shared."""
    with patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=folder, TRITON_CACHE_DIR=os.path.join(folder, "triton")):
        yield


class _TargetDriver:
    """The Triton driver of a GPU that is not there: it knows its target and nothing else."""

    def __init__(self, device: Device) -> None:
        major, minor = device.capability
        self._target = GPUTarget("cuda", major * 10 + minor, device.warp_size)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)


@contextlib.contextmanager
def _target(device: Device) -> Iterator[None]:
    """Answer what Inductor and Triton ask of a GPU from the Device record."""
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
        patch.object(triton.runtime.driver, "_active", _TargetDriver(device)),
        patch.object(DeviceProperties, "create", staticmethod(lambda _: properties)),
        patch.object(torch.cuda, "get_device_capability", lambda *_: device.capability),
        patch.object(triton_helpers, "set_driver_to_gpu", lambda: None),
    ):
        yield


@contextlib.contextmanager
def _fp32_precision(precision: str) -> Iterator[None]:
    """Set torch.backends.cuda.matmul.fp32_precision, which decides ALLOW_TF32 in the template."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = precision
    try:
        yield
    finally:
        matmul.fp32_precision = before
