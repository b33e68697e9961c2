"""Link the object file of a CuTe kernel and launch it. Imports torch; linking needs the CuTe packages."""

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

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
                self._launches[device] = _linked(self._read), bind
            return self._launches[device]


def load(path: str | Path) -> Callable[..., None]:
    """Return the function of an object file; it takes tensors on a GPU, and a stream as its address.

    The file may be deleted once this returns. The first call on a GPU loads the cubin, so it must not be captured in a
    graph. Later calls neither allocate nor wait. Dropping the function unloads the cubin. The C compiler that Triton
    needs links it; the DSL, which takes a second to import, does where there is none.

    Raises:
        Exception: the file is no kernel that the DSL exported, or this machine cannot link it.
    """
    import nvidia_cutlass_dsl
    import tvm_ffi

    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    runtime = _runtime(nvidia_cutlass_dsl.__path__)
    with tempfile.TemporaryDirectory() as folder:
        command = [compiler, "-shared", "-Wl,-Bsymbolic", "-o", library := f"{folder}/kernel.so", str(path)]
        linked = compiler and runtime and not subprocess.run(command, capture_output=True, check=False).returncode  # noqa: S603 (the user's own compiler)
        if linked:
            ctypes.CDLL(runtime, ctypes.RTLD_GLOBAL)
            module: Any = tvm_ffi.load_module(library)
        else:
            from cutlass import cute

            module = cute.runtime.load_module(str(path), enable_tvm_ffi=True)
    function: Callable[..., None] = module[FUNCTION]
    return function


def _runtime(packages: Sequence[str]) -> str:
    """Return the library that kernels call: that of the DSL's start-up, else the newest toolkit's; empty if none is."""
    shipped = sorted((str(each) for root in packages for each in Path(root).glob("*/lib/*.so")), reverse=True)
    known = [*os.environ.get("CUTE_DSL_LIBS", "").split(":"), *shipped]
    return next((each for each in known if each.endswith("/libcute_dsl_runtime.so")), "")


def _linked(read: Callable[[], bytes]) -> Callable[..., None]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.o"
        file.write_bytes(read())
        return load(file)
