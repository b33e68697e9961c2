"""Load a user's built kernel for the launches of one case. Imports torch and cuda.bindings."""

import struct
from collections.abc import Mapping
from typing import cast

import torch

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Value
from gemmtune.engine.records.task import Task
from gemmtune.spaces.triton.definition import Definition
from gemmtune.spaces.triton_source.kernels import TritonKernels
from gemmtune.spaces.triton_source.launches import Argument, KernelLaunch, Pointer


def load(artifact: Artifact, task: Task, values: Mapping[str, Value], definition: Definition) -> TritonKernels:
    """Load the binary for the task's sizes.

    Raises:
        RuntimeError: the driver refuses the binary.
        ProblemError: the user's class fails.
    """
    arguments = definition.tensors(task.problem.sizes)
    position = {name: number for number, name in enumerate(arguments)}
    given = definition.values(arguments, values)
    passed = str(dict(artifact.launch)["passed"]).split()
    launch = KernelLaunch(
        function=definition.name,
        arguments={name: _argument(name, given[name], position) for name in passed},
        constants={},
        grid=definition.grid(task.problem.sizes, given),
        num_warps=int(dict(artifact.launch)["threads_0"]) // task.device.warp_size,
        num_stages=1,
        unaligned=frozenset(passed),  # the binary says what is compiled in: pass all the others
    )
    return TritonKernels(artifact, [launch])


def _argument(name: str, value: object, position: Mapping[str, int]) -> Argument:
    """Return what a launch passes: a tensor by its position, a number as the bits of its slot."""
    if isinstance(value, torch.Tensor):
        return Pointer("", (position[name],))
    if isinstance(value, float):
        return cast("int", struct.unpack("<I", struct.pack("<f", value))[0])  # Triton passes floats as fp32
    assert isinstance(value, int)
    return int(value)
