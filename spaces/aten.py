"""Space of the vendor library, called through ATen (cuBLAS on NVIDIA): the baseline of every problem."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.epilogue.terms import OperandShape
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.engine.toolchain import vendor_gemm as vendor
from gemmtune.engine.toolchain.versions import toolchain_of

if TYPE_CHECKING:
    import torch

_FIRST_WITH_FP8 = (8, 9)


class AtenSpace(Space):
    """One config: the kernel that eager mode runs, and that Inductor calls `aten::mm`, `aten::addmm` and so on.

    It calls `torch.mm`, `torch.addmm`, `torch.bmm` or `torch.baddbmm`, and for operands of 8 bits `_scaled_mm` or
    `_int_mm`. All take m and strides at run time. An epilogue runs in the pointwise kernels that Inductor generates,
    behind the product.
    """

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return no parameters: the vendor library chooses for itself."""
        return ()

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject operands that the vendor library does not multiply, or whose type the GPU lacks."""
        problem = gemm(task.problem)
        eight_bit_float = problem.a_dtype.itemsize == 1 and not problem.a_dtype.is_integer
        if eight_bit_float and task.device.capability < _FIRST_WITH_FP8:
            return Verdict.no("architecture", f"{problem.a_dtype} needs sm_89 or later, not {task.device.arch}")
        return vendor.supports(problem)

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return the one config, if it serves the task."""
        config = Config({})
        return (config,) if self.check(task, config) else ()

    def toolchain(self) -> Toolchain:
        """Return the version of torch, which contains the vendor library."""
        return toolchain_of("torch")

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return the entry point of the vendor library, which serves all tasks of an operation and operand type.

        Pointwise kernels of an epilogue serve one problem.
        """
        problem = gemm(task.problem)
        return super().artifact_key(task, config) if problem.epilogue else vendor.operator_name(problem)

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Return an artifact that names the vendor library's entry point; only an epilogue's kernels are built."""
        if gemm(task.problem).epilogue:
            from gemmtune.spaces.inductor.pointwise import build_pointwise
            from gemmtune.spaces.inductor.render import render_pointwise

            return build_pointwise(self, task, config, folder, render_pointwise)
        key = self.artifact_key(task, config)
        return Artifact(
            key=key,
            space=task.space,
            path="",
            digest=hashlib.sha256(key.encode()).hexdigest(),
            launch=(),
            resources=None,
            build_seconds=0.0,
            toolchain=self.toolchain(),
        )

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Return the vendor library's entry point, in the problem's tf32 mode, and the kernels of an epilogue."""
        problem = gemm(task.problem)
        return _VendorSequence(artifact, problem) if problem.epilogue else _VendorKernel(problem)


class _VendorKernel:
    def __init__(self, problem: Problem) -> None:
        self._allow_tf32, self._alpha, self._beta = problem.allow_tf32, problem.alpha, problem.beta

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        vendor.multiply(a, b, out, bias, allow_tf32=self._allow_tf32, alpha=self._alpha, beta=self._beta)

    def close(self) -> None:
        """Do nothing: the kernel holds no memory."""


class _VendorSequence:
    """Vendor library's product, and Inductor's pointwise kernels for the epilogue behind it."""

    def __init__(self, artifact: Artifact, problem: Problem) -> None:
        import torch

        from gemmtune.spaces.inductor.pointwise import PointwiseKernels

        self._multiply = _VendorKernel(problem)
        self._pointwise = PointwiseKernels(artifact, problem)
        names = problem.argument_names
        self._bias = names.index("bias") if "bias" in names else None
        # the epilogue's own output of the product, which is the last one, or memory of the kernel's own
        self._stored = len(problem.stored_dtypes) + 1 if problem.epilogue.stores_product else None
        self._product: torch.Tensor | None = None
        if self._stored is None:
            shape, dtype = problem.shape_of(OperandShape.MATRIX), getattr(torch, problem.out_dtype.torch_name)
            self._product = torch.empty(shape, dtype=dtype, device="cuda")

    def __call__(self, *tensors: torch.Tensor) -> None:
        product = tensors[self._stored] if self._product is None and self._stored is not None else self._product
        assert product is not None
        bias = None if self._bias is None else tensors[self._bias]
        self._multiply(tensors[0], tensors[1], product, bias)
        self._pointwise(*tensors, product)

    def close(self) -> None:
        """Unload the pointwise kernels and free the product's memory."""
        self._pointwise.close()
        self._product = None
