"""Kernels of a table on a GPU. Needs torch, cuda-bindings for Triton's, and the CuTe packages for CuTe's."""

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Protocol

import torch

from gemmtune.engine.consumers.serving.linear.table import Cubin
from gemmtune.engine.tables.kernels.binary import KernelBinary, unpacked
from gemmtune.engine.toolchain.launching.cubin import CubinKernel
from gemmtune.engine.toolchain.launching.cute_object import CuteObject

_ROWS = "m"  # the one argument that is no tensor
_ALIGNED_BYTES = 16  # of every address that a kernel was compiled for


class TableKernel(Protocol):
    """Kernel that computes one product's rows."""

    def __call__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Enqueue one launch on torch's current stream, with the tensors by their names in the epilogue.

        The first launch on a GPU loads the kernel, so it must not be captured in a graph.

        Raises:
            Exception: the kernel cannot be loaded or launched here.
        """


class CuteKernel:
    """CuTe kernel of a table."""

    def __init__(self, kernel: KernelBinary) -> None:
        """Link no binary until the first launch."""
        self._object = CuteObject(lambda: unpacked(kernel.packed), kernel.call)

    def __call__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Enqueue one launch; the output stands for the bias of an addmm, which these kernels do not add."""
        self._object.launch(tensors["a"].get_device(), {"bias": tensors["out"], **tensors})


class TritonKernel:
    """Triton kernel of a table."""

    def __init__(self, cubin: Cubin) -> None:
        """Load no kernel until the first launch."""
        self._cubin, self._lock = cubin, Lock()
        self._operands = [name for name in cubin.arguments.split() if name != _ROWS]
        self._kernels: dict[int, CubinKernel] = {}

    def __call__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Enqueue one launch; threads launch one after the other, for a loaded kernel has one list of arguments."""
        a = tensors["a"]
        with self._lock:
            kernel = self._kernels.get(a.get_device()) or self._load(a)
            if self._cubin.launch["block_m"]:
                rows = {_ROWS: a.shape[0]} if _ROWS in self._cubin.arguments.split() else {}
                kernel.resize(self._grid(a.shape[0]), rows)
            kernel(*(tensors[name] for name in self._operands))

    def _grid(self, m: int) -> tuple[int, int, int]:
        launch = self._cubin.launch
        per = launch["block_m"]
        return launch["grid_x"] * (-(-m // per) if per else 1), launch["grid_y"], launch["grid_z"]

    def _load(self, a: torch.Tensor) -> CubinKernel:
        cubin, launch = self._cubin, self._cubin.launch
        with torch.cuda.device(a.get_device()):
            self._kernels[a.get_device()] = CubinKernel(
                unpacked(cubin.packed),
                cubin.entry,
                self._grid(a.shape[0]),
                launch["threads"],
                launch["shared_bytes"],
                cubin.arguments.split(),
                {_ROWS: a.shape[0]},
                self._operands,
            )
        return self._kernels[a.get_device()]


def operands_of(
    a: torch.Tensor, b: torch.Tensor, scales: Sequence[torch.Tensor], bias: torch.Tensor | None, *, row_wise: bool
) -> dict[str, torch.Tensor] | None:
    """Return the tensors of a product by their names in its epilogue; None for such as no kernel reads.

    A is row-major of shape (m, k), B is (k, n) with contiguous columns, and all begin at multiples of 16 bytes. Scales
    have m and n elements, or one each.
    """
    m, k = a.shape
    sizes = ((m, 1), (1, b.shape[1])) if row_wise else ((1, 1), (1, 1))
    found = {"a": a, "b": b}
    for name, scale, size in zip(("column", "row") if row_wise else ("scalar", "scalar2"), scales, sizes, strict=True):
        if scale.numel() != size[0] * size[1] or not scale.is_contiguous() or scale.dtype is not torch.float32:
            return None
        found[name] = scale.view(size)
    if bias is not None:
        found["row2" if row_wise else "row"] = bias.reshape(1, -1)
    is_dense = a.stride() == (k, 1) and b.stride() == (1, k) and (bias is None or bias.is_contiguous())
    return found if is_dense and not any(each.data_ptr() % _ALIGNED_BYTES for each in found.values()) else None
