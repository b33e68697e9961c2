"""Call the vendor library's GEMM (cuBLAS on NVIDIA): the baseline and the reference kernel.

Sources of the operators' limits: `addmm_out_cuda_impl`, `_int_mm_out_cuda` and `_scaled_mm_out_cuda` in
aten/src/ATen/native/cuda (torch 2.11 to 2.13), and `test__int_mm` in test/test_linalg.py for the layouts of int8.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType, Layout, Op
from gemmtune.engine.records.verdict import Verdict

if TYPE_CHECKING:
    import torch

_LEAST_ROWS_OF_INT8 = 17
_MULTIPLE = {DType.INT8: 8, DType.E4M3: 16, DType.E5M2: 16}  # divisor of n and k, in elements


def operator_name(problem: Problem) -> str:
    """Return the name of torch's operator for the problem, as in `aten::mm`."""
    if problem.a_dtype.itemsize > 1:
        return f"aten::{problem.op}"
    return "aten::_int_mm" if problem.a_dtype.is_integer else "aten::_scaled_mm"


def supports(problem: Problem) -> Verdict:
    """Return whether the vendor library has a kernel for the problem, with the reason if not."""
    name = operator_name(problem)
    if (problem.op is not Op.MM or problem.is_strided) and problem.a_dtype.itemsize == 1:
        strided = " of views" * problem.is_strided
        return Verdict.no("operation", f"aten runs mm of {problem.a_dtype}, not {problem.op}{strided}")
    if not _knows_types(problem):
        types = f"{problem.a_dtype} by {problem.b_dtype} to {problem.out_dtype}"
        return Verdict.no("types", f"{name} does not multiply {types}")
    if problem.a_dtype.itemsize > 1:
        return Verdict.yes()
    scaling = problem.scaling
    if scaling is not None and scaling.is_row_wise and problem.out_dtype is not DType.BF16:
        return Verdict.no("types", f"{name} with a scale per row stores bf16, not {problem.out_dtype}")
    if (problem.a_layout, problem.b_layout) != (Layout.N, Layout.T):
        return Verdict.no("layout", f"{name} reads operands as nt, not {problem.a_layout}{problem.b_layout}")
    multiple = _MULTIPLE[problem.a_dtype]
    for size, extent in (("n", problem.n), ("k", problem.k)):
        if extent % multiple:
            return Verdict.no("alignment", f"{name} wants {size} a multiple of {multiple}, not {extent}")
    if problem.a_dtype.is_integer and problem.m < _LEAST_ROWS_OF_INT8:
        return Verdict.no("rows", f"{name} wants m of at least {_LEAST_ROWS_OF_INT8}, not {problem.m}")
    return Verdict.yes()


def product_dtype(problem: Problem) -> DType:
    """Return the type in which the vendor library stores the product that an epilogue reads."""
    return DType.INT32 if problem.a_dtype.is_integer else problem.out_dtype


def is_of_dense_types(problem: Problem) -> bool:
    """Return whether torch's dense operations take such types: one of 16 or 32 bits, or 16 to fp32 in mm and bmm."""
    a, out = problem.a_dtype, problem.out_dtype
    widens = out is DType.FP32 and a.itemsize == 2 and problem.op in (Op.MM, Op.BMM)
    return a is problem.b_dtype and a.itemsize > 1 and (out is a or widens)


def multiply(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    allow_tf32: bool = False,
    alpha: float = 1.0,
    beta: float = 1.0,
    scales: tuple[torch.Tensor, torch.Tensor] | None = None,
    fast: bool = True,
) -> None:
    """Enqueue out = a @ b, or out = beta * bias + alpha * a @ b, for a problem that `supports` accepts.

    Operands of three dimensions are batches. After the first call on a GPU nothing is allocated. For 8-bit floats,
    `scales` has those of A and B in torch's layouts, by default 1, and a bias is added to the scaled product. With
    `fast` their sums are accumulated in the fastest way: on Hopper with 14 bits, like kernels that keep sums in the
    tensor cores' registers.

    Raises:
        RuntimeError: the vendor library does not run the problem on this GPU.
    """
    import torch

    if a.dtype == torch.int8:
        torch._int_mm(a, b, out=out)
    elif a.itemsize == 1:
        row = None if bias is None else bias.view(-1)
        of_a, of_b = scales or (_one(a.device),) * 2
        torch._scaled_mm(a, b, of_a, of_b, bias=row, out_dtype=out.dtype, use_fast_accum=fast, out=out)
    else:
        torch.backends.cuda.matmul.fp32_precision = "tf32" if allow_tf32 else "ieee"
        if bias is not None:
            add = torch.baddbmm if a.dim() == 3 else torch.addmm
            add(bias, a, b, alpha=alpha, beta=beta, out=out)
        else:
            product = torch.bmm if a.dim() == 3 else torch.mm
            product(a, b, out=out) if out.dtype == a.dtype else product(a, b, out_dtype=out.dtype, out=out)


def _knows_types(problem: Problem) -> bool:
    a, b, out = problem.a_dtype, problem.b_dtype, problem.out_dtype
    if a.itemsize > 1:
        return is_of_dense_types(problem)
    if a.is_integer:
        return b is a and (out is DType.INT32 or bool(problem.epilogue))  # of int32 sums, which it reads
    return {a, b} in ({DType.E4M3}, {DType.E4M3, DType.E5M2})  # e5m2 by e5m2 is refused


@cache
def _one(device: torch.device) -> torch.Tensor:
    import torch

    return torch.ones((), dtype=torch.float32, device=device)
