"""Load a user's built kernel for the launches of one case. Imports torch and cuda.bindings."""

from collections.abc import Callable, Mapping
from typing import cast

import torch

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Value
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import Launchable
from gemmtune.spaces.triton.definition import Definition
from gemmtune.spaces.triton_source.kernels import TritonKernels
from gemmtune.spaces.triton_source.launches import Argument, KernelLaunch, Pointer

_FLOATS = {
    "fp64": (torch.float64, torch.int64),
    "fp32": (torch.float32, torch.int32),
    "fp16": (torch.float16, torch.int16),
    "bf16": (torch.bfloat16, torch.int16),
}
"""Types of floating-point scalars by Triton's names, with integers of their sizes."""


def load(artifact: Artifact, task: Task, values: Mapping[str, Value], definition: Definition) -> Launchable:
    """Load the binary for the task's sizes.

    Raises:
        RuntimeError: the driver refuses the binary.
        ProblemError: the user's class fails.
    """
    arguments = definition.tensors(task.problem.sizes)
    position = {name: number for number, name in enumerate(arguments)}
    given = definition.values(arguments, values)
    facts = {name: str(fact) for name, fact in artifact.launch}
    passed, types = facts["passed"].split(), facts["types"].split()
    launch = KernelLaunch(
        function=definition.name,
        arguments={n: _argument(n, given[n], type_, position) for n, type_ in zip(passed, types, strict=True)},
        constants={},
        grid=definition.grid(task.problem.sizes, given),
        num_warps=int(facts["threads_0"]) // task.device.warp_size,
        num_stages=1,
        unaligned=frozenset(passed),  # the binary says what is compiled in: pass all the others
    )
    kernels = TritonKernels(artifact, [launch])
    hook = definition.decorators.hook_of(values)
    return kernels if hook is None else HookedKernels(kernels, hook, tuple(arguments), given)


class HookedKernels:
    """Kernel whose config has a `pre_hook`, which Triton runs before every launch, and which is timed with it."""

    def __init__(
        self, kernels: TritonKernels, hook: Callable[..., object], names: tuple[str, ...], given: Mapping[str, object]
    ) -> None:
        """Take the names of a call's arguments, and everything that the launch passes by name."""
        self._kernels, self._hook, self._names, self._given = kernels, hook, names, given

    def __call__(self, *arguments: object) -> None:
        """Run the hook, and enqueue the launch on torch's current stream."""
        self._hook({**self._given, **dict(zip(self._names, arguments, strict=True))})
        self._kernels(*arguments)

    def close(self) -> None:
        """Unload the module from the GPU."""
        self._kernels.close()


def _argument(name: str, value: object, kind: str, position: Mapping[str, int]) -> Argument:
    """Return what a launch passes: a tensor by its position, a number as the bits that a slot of its type holds."""
    if isinstance(value, torch.Tensor):
        return Pointer("", (position[name],))
    if kind in _FLOATS:
        dtype, bits = _FLOATS[kind]
        return int(torch.tensor(float(cast("float", value)), dtype=torch.float64).to(dtype).view(bits).item())
    return int(cast("int", value))
