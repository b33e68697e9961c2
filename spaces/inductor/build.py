"""Render and compile Inductor's templates for a GPU that need not be present. Imports torch and triton."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import triton
from torch._inductor.codecache import PyCodeCache
from torch._inductor.runtime import triton_heuristics

from gemmtune.engine.records.artifact import Artifact, Resources
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.problem import gemm
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.spaces.build_result import artifact_of, reason_of
from gemmtune.spaces.cubin_resources import registers_and_spills
from gemmtune.spaces.inductor.render import Rendering, render
from gemmtune.spaces.inductor.target import environment, target

__all__ = ["build"]

# Inductor's names of a kernel's arguments, and the names that `kernel.TritonKernel` uses.
_ARGUMENTS = {
    "in_ptr0": "bias",
    "arg_A": "a",
    "arg_B": "b",
    "out_ptr0": "out",
    "ws_ptr": "workspace",
    "ks0": "m",
}


def build(space: Space, template: str, task: Task, config: Config, folder: Path) -> Artifact:
    """Render and compile `config` with Inductor's `template`, and leave the cubin in `folder`.

    Raises:
        BuildError: Inductor or Triton refuse the config, or it needs more than a block may have.
    """
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=folder) as scratch, environment(scratch), target(task.device):
        rendering = render(template, gemm(task.problem), config)
        binary, arguments = _compile(rendering)
        facts = binary.metadata
        if facts.profile_scratch_size:
            reason = f"the binary wants {facts.profile_scratch_size} B to profile itself, which nothing asked for"
            raise BuildError(reason)
        file = Path(scratch) / "kernel.cubin"
        file.write_bytes(binary.asm["cubin"])
        registers, spill_bytes = registers_and_spills(file)
        threads = facts.num_warps * task.device.warp_size
        launch: tuple[tuple[str, int | str], ...] = (
            ("entry", facts.name),
            ("arguments", " ".join(arguments)),
            *_grid(task, config, rendering),
            ("threads", threads),
            ("shared_bytes", facts.shared),
            ("scratch_bytes", facts.global_scratch_size),
            ("workspace_bytes", rendering.workspace_bytes),
        )
        resources = Resources(registers, facts.shared, spill_bytes, threads)
        return artifact_of(space, task, config, file, folder, launch, resources, started)


def _grid(task: Task, config: Config, rendering: Rendering) -> tuple[tuple[str, int], ...]:
    """Return the blocks to launch; with a dynamic m, `grid_x` is the number per `block_m` rows."""
    x, y, z = rendering.grid
    if not gemm(task.problem).dynamic_m:
        return ("grid_x", x), ("grid_y", y), ("grid_z", z)
    block_m = config.integer("BLOCK_M")
    return ("grid_x", x // -(-gemm(task.problem).m // block_m)), ("block_m", block_m), ("grid_y", y), ("grid_z", z)


def _compile(rendering: Rendering) -> tuple[Any, list[str]]:
    """Compile through Inductor's own autotuner object, and return the kernel with the names of its arguments.

    So signature, constants and options are Inductor's.
    """
    kernel = getattr(PyCodeCache.load_by_key_path(rendering.module_key, rendering.module_path), rendering.kernel_name)
    compiled = []
    compiler = triton.compile

    def keep(*args: object, **kwargs: object) -> object:
        compiled.append(compiler(*args, **kwargs))
        return compiled[-1]

    try:
        with (
            patch.object(triton, "compile", keep),
            # Line information triples the size, and holds the path of the source, so that equal kernels would be
            # different binaries. The code is equal without it.
            patch.object(triton.knobs.compilation, "disable_line_info", True),
            # Inductor logs the whole source of a kernel that does not compile.
            patch.object(triton_heuristics.log, "disabled", True),
        ):
            kernel.precompile(warm_cache_only=True)
    except Exception as error:
        raise BuildError(reason_of(error)) from error
    finally:
        PyCodeCache.cache_clear()
    if len(compiled) != 1:
        raise BuildError(f"Inductor compiled {len(compiled)} kernels for one config")
    names = [name for name, kind in kernel.triton_meta["signature"].items() if kind != "constexpr"]
    if unknown := sorted(set(names) - set(_ARGUMENTS)):
        raise BuildError(f"Inductor's kernel takes {unknown[0]}; known: {', '.join(_ARGUMENTS)}")
    return compiled[0], [_ARGUMENTS[name] for name in names]
