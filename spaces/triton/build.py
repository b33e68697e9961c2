"""Compile a user's Triton kernel for a GPU that need not be present. Imports torch and Triton."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import triton
from triton.runtime.jit import type_canonicalisation_dict

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config, Value
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.engine.toolchain.absent_gpu import driver_of
from gemmtune.spaces.common.build_result import artifact_of, refusals
from gemmtune.spaces.triton.definition import Definition
from gemmtune.spaces.triton_source.compiler import compiler_settings, write_cubin


def build(
    space: Space, task: Task, config: Config, values: Mapping[str, Value], definition: Definition, folder: Path
) -> Artifact:
    """Compile the kernel as a call of it would, and leave the cubin in `folder`.

    `values` are the parameters and options of the compiler that the config stands for.

    Raises:
        BuildError: Triton refuses the config, or it needs more than a block may have.
    """
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        binary = _compiled(task, values, definition, scratch)
        facts = binary.metadata
        file = Path(scratch) / "kernels.cubins"
        resources = write_cubin(binary, file, task.device)
        passed = {name: kind for name, kind in binary.src.signature.items() if kind != "constexpr"}
        launch: tuple[tuple[str, int | str], ...] = (
            ("config", Config(values).json),
            ("passed", " ".join(passed)),
            ("types", " ".join(passed.values())),
            ("ctas_0", getattr(facts, "num_ctas", 1)),
            ("entry_0", facts.name),
            ("bytes_0", len(binary.asm["cubin"])),
            ("shared_0", resources.shared_bytes),
            ("threads_0", resources.threads),
            ("scratch_0", facts.global_scratch_size),
        )
        return artifact_of(space, task, config, file, folder, launch, resources, started)


def _compiled(task: Task, values: Mapping[str, Value], definition: Definition, scratch: str) -> Any:  # noqa: ANN401 (Triton has no types)
    kernel = definition.jit
    given = definition.values(definition.tensors(task.problem.sizes), values)
    for name, value in given.items():
        kind = str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else "bool"
        if kind not in type_canonicalisation_dict:
            way_out = "torch.view_as_real of it" if "complex" in kind else "a view of it, such as x.view(torch.uint8)"
            raise BuildError(f"arguments gives {name!r} {kind}, which Triton has no type for: give {way_out}")
    arguments = {name: _placed(value) for name, value in given.items()}
    kernel.device_caches.clear()  # they hold the target of an earlier build
    try:
        active = patch.object(triton.runtime.driver, "_active", driver_of(task.device))
        with refusals(), compiler_settings(scratch), active:
            return kernel.run(grid=(1, 1, 1), warmup=True, **arguments)
    finally:
        kernel.device_caches.clear()


def _placed(value: object) -> object:
    """Return an argument for Triton; a slice stands at its distance from a tensor's start, which is aligned."""
    if not isinstance(value, torch.Tensor) or not value.storage_offset():
        return value
    start = value.storage_offset() * value.itemsize
    return SimpleNamespace(dtype=value.dtype, data_ptr=lambda: start)
