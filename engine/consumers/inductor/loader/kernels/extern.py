"""Binaries of a table as choices of Inductor. Needs torch, and the CuTe packages to run them.

A kernel's name is made of its binary. So code that torch takes from its caches finds the kernel it was compiled with,
and a table that is installed again finds it registered. Nothing is compiled. A kernel is linked when it is first chosen
or called, once per GPU.
"""

import warnings
from collections.abc import Sequence
from threading import Lock

import torch
from torch._inductor.select_algorithm import ExternKernelChoice, extern_kernels

from gemmtune.engine.consumers.inductor.loader.boundary import first_line
from gemmtune.engine.consumers.inductor.loader.kernels.grouped_call import grouped_call
from gemmtune.engine.records.epilogue.chain import computed_by_torch
from gemmtune.engine.records.epilogue.terms import OperandShape
from gemmtune.engine.tables.kernels.binary import KernelBinary, unpacked
from gemmtune.engine.toolchain.launching.cute_object import ALIGNMENT, CuteObject


def registered(kernel: KernelBinary) -> ExternKernelChoice:
    """Return Inductor's choice of a kernel; it is registered once per process, whatever loader asks first."""
    with _kernels_lock:
        if not hasattr(extern_kernels, kernel.name):
            launcher = _Launcher(kernel)
            launcher.choice = ExternKernelChoice(launcher, name=kernel.name, has_out_variant=True)
        choice: ExternKernelChoice = getattr(extern_kernels, kernel.name).choice
        return choice


def link(kernel: KernelBinary, device: int) -> str:
    """Link a registered kernel for a GPU; return why that is impossible, or an empty text."""
    try:
        registered(kernel)
        getattr(extern_kernels, kernel.name).link(device)
    except Exception as error:  # missing libraries fail in any way
        return f"cannot be linked: {type(error).__name__}: {first_line(error)}"[:200]
    return ""


_kernels_lock = Lock()


class _Launcher:
    """Function of one kernel, which generated code calls with the operands and `out`."""

    choice: ExternKernelChoice
    """Inductor's choice of this kernel, which torch 2.11 cannot look up by name."""

    def __init__(self, kernel: KernelBinary) -> None:
        self.__name__ = kernel.name
        self._kernel = kernel
        self._object = CuteObject(lambda: unpacked(kernel.packed), kernel.call)
        self.link = self._object.link
        self._grouped_call = grouped_call(kernel)
        self._a, self._b = (1 if layout == "n" else 0 for layout in kernel.layouts)
        self._epilogue = kernel.epilogue
        self._names = [operand.name for operand in self._epilogue.operands]
        self._outputs = ["out", *(f"out{number + 1}" for number in range(1, len(self._epilogue.outputs)))]

    def __call__(self, *inputs: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Enqueue a @ b with bias and epilogue on torch's current stream.

        Inputs are the bias if there is one, a, b, and the epilogue's operands in the order of its text. Several outputs
        lie one behind the other in `out`. ATen runs where an operand's address or row is no multiple of 16 bytes, which
        only the launch can tell; a warning says so.
        """
        if self._grouped_call:
            return self._grouped_call(self._object.launch, *inputs, out=out)
        first = len(inputs) - len(self._names)
        (*bias, a, b), further = inputs[:first], inputs[first:]
        outputs = out.unbind() if len(self._epilogue.outputs) > 1 else (out,)
        added = bias[0] if bias else outputs[0]
        added = added[0] if bias and added.dim() == 2 and added.stride(0) == 0 else added  # a vector that was expanded
        if not (_reads(a, self._a) and _reads(b, self._b) and self._reads_further(added, further, out)):
            needs = f"{self._kernel.name} reads rows at multiples of 16 bytes, {self._kernel.layouts} in memory"
            found = f"one of the operands, whose strides are {a.stride()} and {b.stride()}, has others"
            way = "align the operands, or capture and tune the model again"
            warnings.warn(f"gemmtune's kernel {needs}, but {found}, so ATen runs: {way}", stacklevel=2)
            wide = torch.float64 if a.dtype is torch.int8 else torch.float32  # it holds the sums of 8-bit operands
            if a.itemsize == 1:  # ATen has no kernel of theirs for such operands
                a, b = a.to(wide), b.to(wide)
            product = torch.addmm(bias[0], a, b) if bias else torch.mm(a, b)
            values = computed_by_torch(self._epilogue, product.to(wide), further)
            for output, value in zip(outputs, values, strict=True):
                output.copy_(value)
            return out
        named: dict[str, object] = {"a": a, "b": b, "bias": added}
        named.update(zip(self._outputs, outputs, strict=True))
        named.update(zip(self._names, further, strict=True))
        self._object.launch(a.device.index, named)
        return out

    def _reads_further(self, added: torch.Tensor, further: Sequence[torch.Tensor], out: torch.Tensor) -> bool:
        """Return whether the kernel can read the other matrices; where n allows, it may read 16 bytes at once."""
        shapes = zip(self._epilogue.operands, further, strict=True)
        matrices = [tensor for each, tensor in shapes if each.shape is OperandShape.MATRIX and not each.transposed]
        matrices += [added] if added.dim() == 2 else []
        return out.shape[-1] * out.itemsize & ALIGNMENT != 0 or all(_reads(each, 1) for each in matrices)


def _reads(matrix: torch.Tensor, along: int) -> bool:
    """Return whether a matrix has contiguous elements along a dimension, and rows at multiples of 16 bytes."""
    row = matrix.stride(1 - along) * matrix.itemsize
    return matrix.stride(along) == 1 and not (matrix.data_ptr() | row) & ALIGNMENT
