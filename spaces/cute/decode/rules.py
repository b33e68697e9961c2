"""Constraints of the decode kernels and their tilings, each stated once."""

from functools import lru_cache

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import DType, Op
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.spaces.common.operand_rows import aligned, usual
from gemmtune.spaces.cute.decode.tiling import LOAD_BYTES, WARP, Tiling

_ARCHES = ("sm_90a", "sm_100a")
_MOST_THREADS = 512  # a block with more leaves half of an SM idle while it starts and ends
_MOST_ACCUMULATORS = 64  # per lane; from about 128 on, registers spill


@lru_cache(maxsize=64)  # thousands of configs of a task are checked in a row
def serves(task: Task, most_rows: int) -> Verdict:
    """Return whether the kernels compute the task's problem, with at most `most_rows` rows."""
    problem = gemm(task.problem)
    if problem.op not in (Op.MM, Op.ADDMM):
        return Verdict.no("operation", f"{task.space} runs mm and addmm, not {problem.op}")
    if not (verdict := usual(problem, task.space, takes_views=True)):
        return verdict
    if (count := len(problem.stored_dtypes)) > 1:
        return Verdict.no("outputs", f"{task.space} stores one output, not {count}: {problem.epilogue}")
    if conditions := [operand.name for operand in problem.epilogue.operands if operand.dtype == "bool"]:
        return Verdict.no("condition", f"{task.space} reads no operand of type bool: {conditions[0]}")
    if gates := [operand.name for operand in problem.epilogue.operands if operand.block]:
        return Verdict.no("gate", f"{task.space} reads no vector per block of rows: {gates[0]}")
    if problem.m > most_rows:
        return Verdict.no("rows", f"m {problem.m} > {most_rows}, the most rows that {task.space} is made for")
    if not _has_types(problem):
        return Verdict.no(
            "types",
            f"{task.space} needs A and B both bf16 or both fp16, with an output of their type or fp32, or both of 8-bit"
            " floats, accumulated in fp32,"
            f" not {problem.a_dtype} and {problem.b_dtype} accumulated in {problem.acc_dtype} to"
            f" {problem.out_dtype}",
        )
    if (layout := f"{problem.a_layout}{problem.b_layout}") != "nt":
        return Verdict.no("layout", f"{task.space} reads both operands along k, layout nt, not {layout}")
    if task.device.arch not in _ARCHES:
        return Verdict.no("architecture", f"{task.space} is for {' and '.join(_ARCHES)}, not for {task.device.arch}")
    return aligned(problem, LOAD_BYTES, "a load", ("A", "B"))


def fits(task: Task, config: Config, tiling: Tiling) -> Verdict:
    """Return whether a tiling fits the GPU, gives every warp work, and differs from a smaller one."""
    if tiling.threads > _MOST_THREADS:
        return Verdict.no("threads", f"{tiling.threads} threads > {_MOST_THREADS} per block")
    accumulators = tiling.rows * tiling.columns // (1 if tiling.lanes_k == WARP else WARP)
    if accumulators > _MOST_ACCUMULATORS:
        return Verdict.no(
            "registers", f"{accumulators} accumulators per lane > {_MOST_ACCUMULATORS}, which would spill"
        )
    if tiling.shares_a and (tiling.warps_n == 1 or tiling.rows_per_lane % tiling.warps_n):
        return Verdict.no(
            "shared A", f"{tiling.warps_n} warps along n cannot share the {tiling.rows_per_lane} loads of A evenly"
        )
    limit = task.device.shared_memory_per_block_bytes
    if tiling.shared_bytes > limit:
        return Verdict.no("shared memory", f"{tiling.shared_bytes} B of shared memory > {limit} B per block")
    vectors = gemm(task.problem).k // tiling.elements
    chunks = -(-vectors // tiling.chunk)
    if chunks < tiling.parts:
        extent = tiling.elements * tiling.chunk
        return Verdict.no("idle warps", f"k has {chunks} chunks of {extent}, for {tiling.parts} warps")
    return Verdict.yes()


def _has_types(problem: Problem) -> bool:
    a, b = problem.a_dtype, problem.b_dtype
    outputs = {problem.out_dtype, *problem.stored_dtypes}
    if {a, b} <= {DType.E4M3, DType.E5M2}:
        return problem.acc_dtype is DType.FP32
    known = a is b and a in (DType.BF16, DType.FP16) and problem.acc_dtype is DType.FP32
    return known and outputs <= {a, DType.FP32}
