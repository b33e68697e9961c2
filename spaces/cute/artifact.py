"""Save a compiled CuTe kernel as a file and load it again. Imports cutlass (nvidia-cutlass-dsl) and tvm_ffi.

    saved = save(cute.compile(...), path, task.device)    # In a builder process.
    kernel = load(path)                                   # In another process, which compiles nothing.
    kernel(a, b, out, stream)                             # Torch tensors, and the address of a stream.

The file is the relocatable object that the DSL exports for TVM-FFI: the host function that launches, and the cubin. So
NVIDIA's own code makes tensor maps, grid and cluster attributes. The kernel must be compiled with TVM-FFI
(`--enable-tvm-ffi`, or `cutlass.operators`, where it is the default).
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cutlass import cute

from gemmtune.engine.records.artifact import Artifact, Resources
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.spaces.cute.cubin import CubinError, kernels

__all__ = ["Compiled", "Saved", "artifact_of", "load", "save"]

_FUNCTION = "kernel"  # one name in all files, so that equal kernels are equal files

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


@dataclass(frozen=True, slots=True)
class Saved:
    """Digest, resources and size of a saved kernel."""

    digest: str
    """SHA-256 of the file, in hexadecimal digits."""
    resources: Resources
    """Resources of a block, from the cubin; the dynamic shared memory is from the launch."""
    code_bytes: int
    """Bytes of machine code of the kernel."""


def save(compiled: Compiled, path: Path, device: Device) -> Saved:
    """Write the kernel to `path`, whole or not at all.

    Raises:
        BuildError: the kernel needs more shared memory than a block of `device` may have, or the object does not hold
            exactly one kernel whose resources can be read.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        exported = Path(scratch) / "kernel.o"  # the suffix chooses the format
        compiled.export_to_c(str(exported), function_name=_FUNCTION)
        data = exported.read_bytes()
        try:
            found = kernels(data)
        except CubinError as error:
            raise BuildError(f"the compiled object cannot be read: {error}") from None
        if len(found) != 1:
            raise BuildError(f"the compiled object holds {len(found)} kernels, not one")
        (kernel,) = found
        shared_bytes = kernel.static_shared_bytes + _dynamic_shared_bytes(str(compiled.ir_module))
        if shared_bytes > device.shared_memory_per_block_bytes:
            limit = device.shared_memory_per_block_bytes
            raise BuildError(f"the binary needs {shared_bytes} B of shared memory > {limit} B per block")
        exported.replace(path)
    return Saved(
        digest=hashlib.sha256(data).hexdigest(),
        resources=Resources(
            registers=kernel.registers,
            shared_bytes=shared_bytes,
            spill_bytes=kernel.frame_bytes,
            threads=kernel.threads,
        ),
        code_bytes=kernel.code_bytes,
    )


def artifact_of(
    space: Space,
    task: Task,
    config: Config,
    folder: Path,
    compiled: Compiled,
    launch: tuple[tuple[str, int | str], ...],
    started: float,
) -> Artifact:
    """Save a compiled kernel in `folder`, and return its artifact.

    Args:
        space: the space that built the kernel.
        task: the task that it was built for.
        config: the config that it was built from.
        folder: the folder of the object file. Each task has its own file, even if tasks share a key: a campaign deletes
            a file once its task has measured it.
        compiled: the result of `cute.compile`.
        launch: values that launching needs; the size of the code is added.
        started: time when the build began, by `time.perf_counter`.

    Raises:
        BuildError: `save` refuses the kernel.
    """
    path = folder / f"{hashlib.sha256(f'{task.key}/{config.digest}'.encode()).hexdigest()}.o"
    saved = save(compiled, path, task.device)
    return Artifact(
        key=space.artifact_key(task, config),
        space=task.space,
        path=str(path),
        digest=saved.digest,
        launch=(*launch, ("code_bytes", saved.code_bytes)),
        resources=saved.resources,
        build_seconds=time.perf_counter() - started,
        toolchain=space.toolchain(),
    )


def load(path: str | Path) -> Callable[..., None]:
    """Return the function of a saved kernel; it takes tensors on a GPU, and a stream as its address.

    The file may be deleted once this returns. The first call on a GPU loads the cubin, so it must not be captured in a
    graph. Later calls neither allocate nor wait. Dropping the function unloads the cubin.

    Raises:
        Exception: the file is no kernel of `save`, or this machine cannot link it.
    """
    module: Any = cute.runtime.load_module(str(path), enable_tvm_ffi=True)
    function: Callable[..., None] = module[_FUNCTION]
    return function


def _dynamic_shared_bytes(module: str) -> int:
    """Return the bytes of dynamic shared memory of the launch, from the text of the lowered module."""
    stored = list(_SHARED_BYTES_STORED.finditer(module))
    if len(stored) != 1:
        raise BuildError(f"the compiled module states the shared memory of {len(stored)} launches, not of one")
    constants = re.findall(rf"{stored[0][2]} = llvm\.mlir\.constant\((\d+) : i64\)", module[: stored[0].start()])
    if not constants:
        raise BuildError("the launch computes its shared memory at run time, so it cannot be known")
    return int(constants[-1])
