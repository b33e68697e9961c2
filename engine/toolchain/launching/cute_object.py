"""Link a CuTe kernel's object file and launch it. Imports torch; linking needs the CuTe packages and a C compiler."""

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TypeAlias

import torch

from gemmtune.engine.seams.kernel_call import Argument, binder
from gemmtune.engine.toolchain.occupancy import clusters_at_once

ALIGNMENT = 15
"""Bits that are 0 in an address that is a multiple of 16 bytes, as kernels read."""
FUNCTION = "kernel"
"""Name of the function in every object file, so that equal kernels are equal files."""

_Launch: TypeAlias = tuple[Callable[..., None], Callable[[Mapping[str, object]], tuple[object, ...]]]
"""Function of a kernel on one GPU, and what makes its arguments from named tensors."""
_current_stream: Callable[[int], int] = getattr(  # public ways take longer
    torch._C, "_cuda_getCurrentRawStream", lambda device: torch.cuda.current_stream(device).cuda_stream
)


class CuteObject:
    """Host function of one binary, linked once per GPU: it makes the tensor maps and launches, and compiles nothing."""

    def __init__(self, read: Callable[[], bytes], call: Sequence[Argument]) -> None:
        """Take a function that returns the object file, and the arguments of its function, see `binder`."""
        self._read, self._call = read, call
        self._lock, self._launches = Lock(), dict[int, _Launch]()

    def launch(self, device: int, named: dict[str, object]) -> None:
        """Enqueue one launch with the named tensors on torch's current stream of a GPU, which becomes one of them."""
        function, bind = self._launches.get(device) or self.link(device)
        named["stream"] = _current_stream(device)
        function(*bind(named))

    def link(self, device: int) -> _Launch:
        """Return the kernel's function on a GPU, and what makes its arguments; the first thread that asks links it.

        Raises:
            Exception: the packages are missing, or cannot link the object, or the GPU runs no such clusters.
        """
        with self._lock:
            if device not in self._launches:
                bind = binder(self._call, partial(clusters_at_once, device))
                self._launches[device] = load(self._read), bind
            return self._launches[device]


def load(read: Callable[[], bytes]) -> Callable[..., None]:
    """Return the function of the object file that `read` returns; it takes tensors on a GPU, and a stream's address.

    The first call on a GPU loads the cubin, so it must not be captured in a graph. Later calls neither allocate nor
    wait. Dropping the function unloads the cubin. The C compiler that Triton needs, too, links it: the DSL's own linker
    takes a second to import.

    Raises:
        Exception: the file is no kernel that the DSL exported, or this machine cannot link it.
    """
    import nvidia_cutlass_dsl as dsl
    import tvm_ffi

    name = "libcute_dsl_runtime.so"  # that of the DSL's start-up, else of its newest toolkit
    shipped = sorted(str(each) for root in dsl.__path__ for each in Path(root).glob(f"*/lib/{name}"))
    known = [*os.environ.get("CUTE_DSL_LIBS", "").split(":"), *reversed(shipped), name]
    ctypes.CDLL(next(each for each in known if each.endswith(name)), ctypes.RTLD_GLOBAL)
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or "cc"  # triton/runtime/build.py
    with tempfile.TemporaryDirectory() as folder:
        file, library = Path(folder) / "kernel.o", f"{folder}/kernel.so"
        file.write_bytes(read())
        subprocess.run([compiler, "-shared", "-Wl,-Bsymbolic", "-o", library, file], capture_output=True, check=True)  # noqa: S603
        function: Callable[..., None] = tvm_ffi.load_module(library, keep_module_alive=False)[FUNCTION]
    return function
