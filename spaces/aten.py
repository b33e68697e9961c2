"""Space of the vendor library, called through ATen (cuBLAS on NVIDIA): the baseline of every problem."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.epilogue.chain import Output
from gemmtune.engine.records.epilogue.terms import OperandShape, Product
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import Accumulation
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable
from gemmtune.engine.toolchain import vendor_gemm as vendor
from gemmtune.spaces.common.one_config import TorchFunctionSpace

if TYPE_CHECKING:
    import torch

_FIRST_WITH_FP8 = (8, 9)


class AtenSpace(TorchFunctionSpace):
    """One config: the kernel that eager mode runs, and that Inductor calls `aten::mm`, `aten::addmm` and so on.

    It calls `torch.mm`, `torch.addmm`, `torch.bmm` or `torch.baddbmm`, and for operands of 8 bits `_scaled_mm`, with
    scales and bias, or `_int_mm`. All take m and strides at run time. Any other epilogue runs in the pointwise kernels
    that Inductor generates, behind the product.
    """

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject operands that the vendor library does not multiply, or whose type the GPU lacks."""
        problem = gemm(task.problem)
        eight_bit_float = problem.a_dtype.itemsize == 1 and not problem.a_dtype.is_integer
        if eight_bit_float and task.device.capability < _FIRST_WITH_FP8:
            return Verdict.no("architecture", f"{problem.a_dtype} needs sm_89 or later, not {task.device.arch}")
        return vendor.supports(problem)

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return the entry point of the vendor library, which serves all tasks of an operation and operand type.

        Pointwise kernels of an epilogue serve one problem.
        """
        problem = gemm(task.problem)
        behind = problem.unscaled_epilogue
        return super().artifact_key(task, config) if behind else vendor.operator_name(problem)

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Return an artifact that names the vendor library's entry point; only an epilogue's kernels are built."""
        if gemm(task.problem).unscaled_epilogue:
            from gemmtune.spaces.inductor.pointwise import build_pointwise
            from gemmtune.spaces.inductor.render import render_pointwise

            return build_pointwise(self, task, config, folder, render_pointwise)
        return super().build(task, config, folder)

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Return the vendor library's entry point, in the problem's tf32 mode, and the kernels of an epilogue."""
        problem = gemm(task.problem)
        return _VendorSequence(artifact, problem) if problem.unscaled_epilogue else _VendorKernel(problem)


class _VendorKernel:
    """Vendor library's product, with its scales and its bias."""

    def __init__(self, problem: Problem) -> None:
        self._allow_tf32, self._alpha, self._beta = problem.allow_tf32, problem.alpha, problem.beta
        self._fast = problem.accumulation is Accumulation.FAST
        names, scaling = problem.argument_names, problem.scaling
        self._scales = None if scaling is None else (names.index(scaling.a.name), names.index(scaling.b.name))
        bias = "bias" if scaling is None else "" if scaling.bias is None else scaling.bias.name
        self._bias = names.index(bias) if bias in names else None

    def __call__(self, *tensors: torch.Tensor) -> None:
        self.store(tensors[2], tensors)

    def store(self, product: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
        """Enqueue the product of a call's tensors, to be stored in another one."""
        bias = None if self._bias is None else tensors[self._bias]
        scales = None if self._scales is None else (tensors[self._scales[0]], tensors[self._scales[1]])
        vendor.multiply(
            *(tensors[0], tensors[1], product, bias),
            allow_tf32=self._allow_tf32,
            alpha=self._alpha,
            beta=self._beta,
            scales=scales,
            fast=self._fast,
        )

    def close(self) -> None:
        """Do nothing: the kernel holds no memory."""


class _VendorSequence:
    """Vendor library's product, and Inductor's pointwise kernels for the epilogue behind it."""

    def __init__(self, artifact: Artifact, problem: Problem) -> None:
        import torch

        from gemmtune.spaces.inductor.pointwise import PointwiseKernels

        self._multiply = _VendorKernel(problem)
        self._pointwise = PointwiseKernels(artifact, problem)
        # the epilogue's own output of the product, or memory of the kernel's own
        stored, dtype = problem.unscaled_epilogue.outputs, vendor.product_dtype(problem)
        own = Output(Product())
        self._stored = 2 + stored.index(own) if own in stored and dtype is problem.out_dtype else None
        self._product: torch.Tensor | None = None
        if self._stored is None:
            shape = problem.shape_of(OperandShape.MATRIX)
            self._product = torch.empty(shape, dtype=getattr(torch, dtype.torch_name), device="cuda")

    def __call__(self, *tensors: torch.Tensor) -> None:
        product = tensors[self._stored] if self._product is None and self._stored is not None else self._product
        assert product is not None
        self._multiply.store(product, tensors)
        self._pointwise(*tensors, product)

    def close(self) -> None:
        """Unload the pointwise kernels and free the product's memory."""
        self._pointwise.close()
        self._product = None
