"""Compile a decode kernel for a GPU that need not be present. Imports torch and cutlass."""

import time
from pathlib import Path

import cutlass
from cutlass import cute

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.epilogue.terms import Operand, OperandShape
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import Bias, DType
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import Space
from gemmtune.spaces.common.build_result import refusals
from gemmtune.spaces.cute.artifact import Compiled, save
from gemmtune.spaces.cute.decode.kernels import DecodeKernel, GemvKernel, SplitKKernel
from gemmtune.spaces.cute.decode.tiling import LOAD_BYTES, WARP, Tiling
from gemmtune.spaces.cute.target import driver_of

_TYPES = {
    DType.BF16: cutlass.BFloat16,
    DType.FP16: cutlass.Float16,
    DType.FP32: cutlass.Float32,
    DType.E4M3: cutlass.Float8E4M3FN,
    DType.E5M2: cutlass.Float8E5M2,
}


def build(space: Space, task: Task, config: Config, tiling: Tiling, folder: Path) -> Artifact:
    """Compile a tiling for the task's device, and leave the object file in `folder`.

    Raises:
        BuildError: the compiler refuses the kernel, or it needs more than a block may have.
    """
    started = time.perf_counter()
    kernel = GemvKernel if tiling.lanes_k == WARP else SplitKKernel
    problem = gemm(task.problem)
    multiplied = _TYPES[problem.a_dtype if problem.a_dtype.itemsize > 1 else DType.FP16]
    made = kernel(tiling, multiplied, problem.bias.value, problem.epilogue, bool(config["use_pdl"]))
    with refusals(), driver_of(task.device):
        compiled = _compile(made, problem, task.device.arch)
    return save(space, task, config, compiled, folder, (), started)


def _compile(kernel: DecodeKernel, problem: Problem, arch: str) -> Compiled:
    """Compile for matrices of any size, whose rows of A and B start at multiples of a load."""
    vector = LOAD_BYTES // problem.a_dtype.itemsize
    m, n, k = cute.sym_int(), cute.sym_int(), cute.sym_int(divisibility=vector)
    types = (problem.a_dtype, problem.b_dtype, problem.out_dtype, *problem.stored_dtypes)
    of_a, of_b, product, output = (_TYPES[dtype] for dtype in types)
    a, b, out = _matrix(of_a, m, k, vector), _matrix(of_b, n, k, vector), _matrix(output, m, n, 1)
    bias = out
    if problem.bias is Bias.VECTOR:
        bias = cute.runtime.make_fake_tensor(product, (n,), stride=(1,), assumed_align=product.width // 8)
    elif problem.bias is Bias.MATRIX:
        bias = _matrix(product, m, n, 1)
    further = tuple(_further(each, problem, m, n) for each in problem.epilogue.operands)
    stream = cute.runtime.make_fake_stream()
    options = f"--enable-tvm-ffi --gpu-arch {arch}"
    compiled: Compiled = cute.compile(kernel, a, b, out, [bias, *further], stream, options=options)
    return compiled


def _further(operand: Operand, problem: Problem, m: cute.SymInt, n: cute.SymInt) -> cute.Tensor:
    """Return an operand of the epilogue without memory, of the shape that `Problem.shape_of` gives it."""
    dtype = _TYPES[DType(operand.dtype or problem.out_dtype)]
    if operand.shape is OperandShape.MATRIX and not operand.transposed:
        return _matrix(dtype, m, n, 1)
    rows, columns = m if operand.shape.has_rows else 1, n if operand.shape.has_columns else 1
    stride = (cute.sym_int64() if columns == 1 else 1, cute.sym_int64()) if rows is m else (cute.sym_int64(), 1)
    return cute.runtime.make_fake_tensor(dtype, (rows, columns), stride=stride, assumed_align=dtype.width // 8)


def _matrix(dtype: type[cutlass.Numeric], rows: cute.SymInt, columns: cute.SymInt, step: int) -> cute.Tensor:
    """Return a row-major matrix without memory; rows start at multiples of `step` elements."""
    stride = (cute.sym_int64(divisibility=step), 1)
    return cute.runtime.make_fake_tensor(dtype, (rows, columns), stride=stride, assumed_align=step * dtype.width // 8)
