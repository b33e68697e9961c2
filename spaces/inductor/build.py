"""Render and compile Inductor's templates for a GPU that need not be present. Imports torch and triton."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import triton
from torch._inductor.codecache import PyCodeCache
from torch._inductor.runtime import triton_heuristics

from gemmtune.engine.records.artifact import Artifact, Resources
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.gemm.problem import gemm
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.spaces.common.build_result import artifact_of, refusals
from gemmtune.spaces.inductor.epilogue import GeneratedKernel
from gemmtune.spaces.inductor.render import Rendering, render
from gemmtune.spaces.inductor.target import environment, target
from gemmtune.spaces.triton_source.compiler import write_cubin

_FIXED_GRID = "FixedGrid"  # Inductor's rule for the blocks of a template: they come as arguments


def build(space: Space, task: Task, config: Config, folder: Path) -> Artifact:
    """Render and compile `config` with Inductor's template, and leave the cubin in `folder`.

    Raises:
        BuildError: Inductor or Triton refuse the config, or it needs more than a block may have.
    """
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=folder) as scratch, environment(scratch), target(task.device):
        rendering = render(gemm(task.problem), config)
        found = compiled(rendering.kernel)
        if len(found) != 1:
            raise BuildError(f"Inductor compiled {len(found)} kernels for one config")
        return artifact(space, task, config, found[0], _grid(task, config, rendering), scratch, folder, started)


def _grid(task: Task, config: Config, rendering: Rendering) -> tuple[tuple[str, int], ...]:
    """Return the blocks to launch; with a dynamic m, `grid_x` is the number per `block_m` rows."""
    x, y, z = rendering.grid
    if not gemm(task.problem).dynamic_m:
        return ("grid_x", x), ("grid_y", y), ("grid_z", z)
    block_m = config.integer("BLOCK_M")
    return ("grid_x", x // -(-gemm(task.problem).m // block_m)), ("block_m", block_m), ("grid_y", y), ("grid_z", z)


@dataclass(frozen=True, slots=True)
class Compiled:
    """Triton kernel that was compiled for a GPU, with the names of its arguments and its blocks."""

    binary: Any
    """Kernel as Triton returns it."""
    arguments: tuple[str, ...]
    """Names of what the kernel's parameters receive, without constants."""
    grid: tuple[int, int, int] | None
    """Blocks along x, y and z, if the kernel knows them from its sizes, as a pointwise kernel does."""

    def write(self, file: Path, device: Device, *, gives_scratch: bool = False) -> Resources:
        """Write the cubin and return what it needs.

        Raises:
            BuildError: the kernel wants device memory of its own, which only a launch that `gives_scratch` gives.
        """
        if (wanted := self.binary.metadata.global_scratch_size) and not gives_scratch:
            raise BuildError(f"the binary wants {wanted} B of device memory per block, and its launch gives none")
        return write_cubin(self.binary, file, device)


def artifact(
    space: Space,
    task: Task,
    config: Config,
    kernel: Compiled,
    grid: Sequence[tuple[str, int]],
    scratch: str,
    folder: Path,
    started: float,
    *,
    gives_scratch: bool = False,
) -> Artifact:
    """Write a template's cubin, and return its artifact; `grid` are the facts of its launch that only a space knows.

    Raises:
        BuildError: the kernel needs more than a block may have, or device memory that its launch does not give.
    """
    facts, file = kernel.binary.metadata, Path(scratch) / "kernel.cubin"
    resources = kernel.write(file, task.device, gives_scratch=gives_scratch)
    launch: tuple[tuple[str, int | str], ...] = (
        ("entry", facts.name),
        ("arguments", " ".join(kernel.arguments)),
        *grid,
        ("threads", resources.threads),
        ("shared_bytes", resources.shared_bytes),
        *([("scratch_bytes", facts.global_scratch_size)] if gives_scratch else []),
    )
    return artifact_of(space, task, config, file, folder, launch, resources, started)


def compiled(made: GeneratedKernel) -> list[Compiled]:
    """Compile a kernel through Inductor's own autotuner object, which may hold several configs of block sizes.

    So signature, constants and options are Inductor's.

    Raises:
        BuildError: Triton refuses the kernel.
    """
    kernel = getattr(PyCodeCache.load_by_key_path(made.module_key, made.module_path), made.name)
    configs = list(kernel.configs)
    binaries = []
    compiler = triton.compile

    def keep(*args: object, **kwargs: object) -> object:
        binaries.append(compiler(*args, **kwargs))
        return binaries[-1]

    try:
        with (
            refusals(),
            patch.object(triton, "compile", keep),
            # Inductor logs the whole source of a kernel that does not compile.
            patch.object(triton_heuristics.log, "disabled", True),
        ):
            kernel.precompile(warm_cache_only=True)
    finally:
        PyCodeCache.cache_clear()
    names = [name for name, kind in kernel.triton_meta["signature"].items() if kind != "constexpr"]
    known = {**made.arguments, **{name: name for name in made.sizes}}
    if unknown := sorted(set(names) - set(known)):
        raise BuildError(f"Inductor's kernel takes {unknown[0]}; known: {', '.join(known)}")
    arguments = tuple(known[name] for name in names)
    return [
        Compiled(binary, arguments, _own_grid(kernel.inductor_meta, config, made.sizes))
        for binary, config in zip(binaries, configs, strict=True)
    ]


def _own_grid(facts: dict[str, Any], config: object, sizes: Mapping[str, int]) -> tuple[int, int, int] | None:
    """Return the blocks that Inductor launches for a config; None for a template, which has no rule for them."""
    if facts.get("grid_type", _FIXED_GRID) == _FIXED_GRID:
        return None
    x, y, z = triton_heuristics.GridExpr.from_meta(facts, config).eval_slow(dict(sizes))
    return int(x), int(y), int(z)
