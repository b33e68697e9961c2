"""Inductor's template rendered and compiled for a GPU that need not be there. Imports torch and triton."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

import triton
from torch._inductor.codecache import PyCodeCache
from torch._inductor.runtime import triton_heuristics

from gemmtune.engine.records.artifact import Artifact, Resources
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.spaces.inductor.render import Rendering, render
from gemmtune.spaces.inductor.target import environment, target

__all__ = ["build"]

_CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
# Inductor's names of a kernel's arguments, as `inductor.kernel` knows them.
_ARGUMENTS = {
    "in_ptr0": "bias",
    "arg_A": "a",
    "arg_B": "b",
    "out_ptr0": "out",
    "ws_ptr": "workspace",
    "ks0": "m",
}


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


def build(space: Space, template: str, task: Task, config: Config, folder: Path) -> Artifact:
    """Render and compile `config` for the task's device; the cubin is left in `folder`.

    Args:
        space: whose artifact it is.
        template: Inductor's id of the template, as `render` takes it.
        task: the problem and the device.
        config: values of the template's params.
        folder: where the binary goes.

    Raises:
        BuildError: Inductor or Triton refuse it, or it needs more than a block may have.
    """
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=folder) as scratch, environment(scratch), target(task.device):
        rendering = render(template, task.problem, config)
        binary, arguments = _compile(rendering)
    cubin, facts = binary.asm["cubin"], binary.metadata
    limit = task.device.shared_memory_per_block_bytes
    if facts.shared > limit:
        raise BuildError(f"the binary needs {facts.shared} B of shared memory > {limit} B a block")
    if facts.profile_scratch_size:
        raise BuildError(f"the binary wants {facts.profile_scratch_size} B to profile itself, which nothing asked for")
    # One for every task, whatever tasks share: a campaign deletes a file once one task has measured it. And written
    # whole or not at all.
    path = folder / f"{hashlib.sha256(f'{task.key}/{config.digest}'.encode()).hexdigest()}.cubin"
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(cubin)
    Path(file.name).replace(path)
    registers, spill_bytes = _registers_and_spills(path)
    threads = facts.num_warps * task.device.warp_size
    return Artifact(
        key=space.artifact_key(task, config),
        space=task.space,
        path=str(path),
        digest=hashlib.sha256(cubin).hexdigest(),
        launch=(
            ("entry", facts.name),
            ("arguments", " ".join(arguments)),
            *_grid(task, config, rendering),
            ("threads", threads),
            ("shared_bytes", facts.shared),
            ("scratch_bytes", facts.global_scratch_size),
            ("workspace_bytes", rendering.workspace_bytes),
        ),
        resources=Resources(registers=registers, shared_bytes=facts.shared, spill_bytes=spill_bytes, threads=threads),
        build_seconds=time.perf_counter() - started,
        toolchain=space.toolchain(),
    )


def _grid(task: Task, config: Config, rendering: Rendering) -> tuple[tuple[str, int], ...]:
    """Blocks to launch; along x for each `block_m` rows, where the binary serves every m."""
    x, y, z = rendering.grid
    if not task.problem.dynamic_m:
        return ("grid_x", x), ("grid_y", y), ("grid_z", z)
    block_m = config.integer("BLOCK_M")
    return ("grid_x", x // -(-task.problem.m // block_m)), ("block_m", block_m), ("grid_y", y), ("grid_z", z)


def _compile(rendering: Rendering) -> tuple[_CompiledKernel, list[str]]:
    """Compile through Inductor's own autotuner object, so that signature, constants and options are Inductor's.

    Returns the kernel and its arguments.
    """
    kernel = getattr(PyCodeCache.load_by_key_path(rendering.module_key, rendering.module_path), rendering.kernel_name)
    compiled: list[_CompiledKernel] = []
    compiler = triton.compile

    def keep(*args: object, **kwargs: object) -> _CompiledKernel:
        compiled.append(compiler(*args, **kwargs))
        return compiled[-1]

    try:
        with (
            patch.object(triton, "compile", keep),
            # The code is the same, in a third of the bytes; and the source's path, which is in the line information,
            # would make different binaries of equal kernels.
            patch.object(triton.knobs.compilation, "disable_line_info", True),
            # Inductor logs the whole source of a kernel that does not compile; here that is one config among thousands.
            patch.object(triton_heuristics.log, "disabled", True),
        ):
            kernel.precompile(warm_cache_only=True)
    except Exception as error:
        raise BuildError(_reason(error)) from error
    finally:
        PyCodeCache.cache_clear()
    if len(compiled) != 1:
        raise BuildError(f"Inductor compiled {len(compiled)} kernels for one config")
    names = [name for name, kind in kernel.triton_meta["signature"].items() if kind != "constexpr"]
    if unknown := sorted(set(names) - set(_ARGUMENTS)):
        raise BuildError(f"Inductor's kernel takes {unknown[0]}; known: {', '.join(_ARGUMENTS)}")
    return compiled[0], [_ARGUMENTS[name] for name in names]


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
