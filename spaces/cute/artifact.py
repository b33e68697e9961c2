"""Save a compiled CuTe kernel as a file, load it again and launch it. Imports torch.

The file is the relocatable object that the DSL exports for TVM-FFI: the host function that launches, and the cubin. So
NVIDIA's own code makes tensor maps, grid and cluster attributes. The kernel must be compiled with TVM-FFI
(`--enable-tvm-ffi`, or `cutlass.operators`, where it is the default).
"""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.kernel_call import Argument, binder
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.engine.toolchain.launching.cute_object import FUNCTION, load
from gemmtune.engine.toolchain.occupancy import clusters_at_once
from gemmtune.spaces.common.build_result import artifact_of
from gemmtune.spaces.cute.cubin import kernel_of

# cudaLaunchConfig_t as the DSL lowers it: grid, block, dynamicSmemBytes, stream, attributes and their number. Only the
# third is missing in the cubin.
_SHARED_BYTES_STORED = re.compile(
    r"(%\w+) = llvm\.getelementptr %\w+\[0, 2\] : \(!llvm\.ptr\) -> !llvm\.ptr, "
    r"!llvm\.struct<\(array<3 x i32>, array<3 x i32>, i64, ptr, ptr, i32\)>\s+llvm\.store (%\w+), \1 : i64"
)


class Compiled(Protocol):
    """The part of the DSL's compiled function that is used here."""

    ir_module: object

    def export_to_c(self, object_file_path: str, function_name: str) -> None:
        """Write the object file."""


def save(
    space: Space,
    task: Task,
    config: Config,
    compiled: Compiled,
    folder: Path,
    launch: tuple[tuple[str, int | str], ...],
    started: float,
) -> Artifact:
    """Write a compiled kernel to `folder`, whole or not at all, and return its artifact as `artifact_of` does.

    Raises:
        BuildError: a block of the task's device has less shared memory than the kernel needs, or the object does not
            hold exactly one kernel whose resources can be read.
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        file = Path(scratch) / "kernel.o"  # the suffix chooses the format
        compiled.export_to_c(str(file), function_name=FUNCTION)
        static, code_bytes = kernel_of(file.read_bytes())
        resources = replace(static, shared_bytes=static.shared_bytes + _dynamic_shared_bytes(str(compiled.ir_module)))
        launch = (*launch, ("code_bytes", code_bytes))
        return artifact_of(space, task, config, file, folder, launch, resources, started)


class CuteKernel:
    """Host function of one kernel: it makes the tensor maps and launches, and compiles nothing."""

    def __init__(self, artifact: Artifact, call: Sequence[Argument], names: Sequence[str]) -> None:
        """Link the object; the first launch loads the cubin, and therefore must not be captured.

        Args:
            artifact: kernel of `save`.
            call: arguments of its function, see `Space.deployed_call`.
            names: names of the tensors of a launch, see `Problem.argument_names`.

        Raises:
            Exception: the object cannot be linked, or the GPU runs no clusters of the kernel's size.
        """
        self._function = load(Path(artifact.path).read_bytes)
        self._arguments, self._names = binder(call, _clusters_here), names
        self._takes_stream = "stream" in call  # else TVM-FFI hands torch's to the kernel

    def __call__(self, *tensors: torch.Tensor) -> None:
        """Enqueue one launch on torch's current stream; where the kernel adds no bias, the output stands for it."""
        named: dict[str, object] = dict(zip(self._names, tensors, strict=True))
        named.setdefault("bias", named["out"])
        if self._takes_stream:  # as Inductor's own code asks for it
            named["stream"] = torch._C._cuda_getCurrentRawStream(tensors[0].get_device())
        self._function(*self._arguments(named))

    def close(self) -> None:
        """Drop the function, which unloads the cubin."""
        del self._function


def _clusters_here(blocks: int) -> int:
    """Return the number of clusters that torch's current GPU runs at once."""
    return clusters_at_once(torch.cuda.current_device(), blocks)


def _dynamic_shared_bytes(module: str) -> int:
    """Return the bytes of dynamic shared memory of the launch, from the text of the lowered module."""
    stored = list(_SHARED_BYTES_STORED.finditer(module))
    if len(stored) != 1:
        raise BuildError(f"the compiled module states the shared memory of {len(stored)} launches, not of one")
    constants = re.findall(rf"{stored[0][2]} = llvm\.mlir\.constant\((\d+) : i64\)", module[: stored[0].start()])
    if not constants:
        raise BuildError("the launch computes its shared memory at run time, so it cannot be known")
    return int(constants[-1])
