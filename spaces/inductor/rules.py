"""Constraints and seeds of Inductor's Triton templates, each stated once."""

from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.config import Config, Value
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import DType, Layout, Op
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.toolchain.vendor_gemm import is_of_dense_types
from gemmtune.spaces.common.tile_limits import fits_in_registers, padded

Numbers = TypeVar("Numbers", int, NDArray[np.int64])
"""The number of one config, or an array with the numbers of many configs."""

DEFAULT_GROUP_M = 8
"""Inductor's own GROUP_M: rows of tiles that are computed together."""

_FIRST_WITH_FP8 = (8, 9)
_FP8_MULTIPLE = 16  # divisor of n and k
_LEAST_BLOCK_K_OF_8_BITS = 32
_ELEMENTS_PER_WARP = 256  # each warp computes at least a 16×16 tile


def serves(task: Task) -> Verdict:
    """Return whether a template multiplies such operands."""
    problem = gemm(task.problem)
    if problem.a_dtype.itemsize == 1:
        verdict = _serves_8_bits(task, problem)
        if not verdict:
            return verdict
    elif not is_of_dense_types(problem) or problem.acc_dtype is not DType.FP32:
        given = f"{problem.a_dtype}, {problem.b_dtype}, {problem.out_dtype} accumulated in {problem.acc_dtype}"
        allowed = "A, B and out of one dtype, or out of fp32 in mm and bmm"
        return Verdict.no("dtypes", f"{task.space} needs {allowed}, accumulated in fp32, not {given}")
    if problem.dynamic_m and problem.m == 1:
        # `specialize_zero_one` of torch.fx.experimental.symbolic_shapes.ShapeEnv
        return Verdict.no("dynamic m of 1", "torch.compile takes m of 1 for a static size: leave out dynamic_m")
    return Verdict.yes()


def _serves_8_bits(task: Task, problem: Problem) -> Verdict:
    """Return whether Inductor renders its template for such operands of 8 bits: with scales, or of whole numbers."""
    a, b, space = problem.a_dtype, problem.b_dtype, task.space
    if problem.op is not Op.MM or problem.is_strided or (problem.a_layout, problem.b_layout) != (Layout.N, Layout.T):
        return Verdict.no("layout", f"{space} multiplies {a} in a dense mm of layout nt, not {problem.name}")
    if a.is_integer:
        sums = problem.acc_dtype is DType.INT32 and (bool(problem.epilogue) is not problem.out_dtype.is_integer)
        return (
            Verdict.yes() if b is a and sums else Verdict.no("dtypes", f"{space} stores the int32 sums of int8 alone")
        )
    if task.device.capability < _FIRST_WITH_FP8:
        return Verdict.no("architecture", f"{a} needs sm_89 or later, not {task.device.arch}")
    if not b.is_float8 or a is b is DType.E5M2 or problem.acc_dtype is not DType.FP32:
        return Verdict.no("dtypes", f"{space} multiplies e4m3 by e4m3 or e5m2 in fp32, not {a} by {b}")
    if problem.scaling is None:
        return Verdict.no("scales", f"{space} wants both scales: epilogue=mul(column[fp32]).mul(row[fp32]) or scalars")
    for name, size in (("n", problem.n), ("k", problem.k)):
        if size % _FP8_MULTIPLE:
            return Verdict.no("alignment", f"torch's _scaled_mm wants {name} a multiple of {_FP8_MULTIPLE}, not {size}")
    return Verdict.yes()


def tile_fits(task: Task, config: Config) -> Verdict:
    """Return whether a tile is no larger than the problem, keeps its warps busy and fits in their registers."""
    problem = gemm(task.problem)
    block_m, block_n, num_warps = (config.integer(name) for name in ("BLOCK_M", "BLOCK_N", "num_warps"))
    for name, size in (("M", problem.m), ("N", problem.n), ("K", problem.k)):
        block = config.integer(f"BLOCK_{name}")
        serves_larger = name == "M" and problem.dynamic_m  # one kernel for every m
        if block > padded(size) and not serves_larger:
            # Inductor scales such a tile down before it renders (`_scale_mm_configs`).
            return Verdict.no(
                f"BLOCK_{name} beyond the problem",
                f"BLOCK_{name} {block} > {padded(size)}, the padded {name.lower()} of {size}",
            )
    if problem.a_dtype.itemsize == 1 and config.integer("BLOCK_K") < _LEAST_BLOCK_K_OF_8_BITS:
        return Verdict.no("BLOCK_K of 8 bits", f"an instruction multiplies {_LEAST_BLOCK_K_OF_8_BITS} terms of 8 bits")
    busy_warps = block_m * block_n // _ELEMENTS_PER_WARP
    if num_warps > busy_warps:
        # Inductor lowers num_warps to this bound (`_finalize_mm_configs`).
        return Verdict.no(
            "idle warps", f"num_warps {num_warps} > {busy_warps}, one for each 16x16 of a {block_m}x{block_n} tile"
        )
    if num_warps == 1 and busy_warps > 1:
        return Verdict.no(
            "lone warp", f"num_warps 1 is for a 16x16 tile; {block_m}x{block_n} has work for {min(busy_warps, 8)}"
        )
    return fits_in_registers(task, block_m, block_n, num_warps)  # the bound of `_prune_reg_spill_configs`


def is_wgmma(task: Task, block_m: Numbers, num_warps: Numbers) -> Numbers:
    """Return 1 if Triton uses Hopper's warp-group instructions, which read both tiles in shared memory, else 0."""
    problem = gemm(task.problem)
    # Inductor 2.13 computes a tf32 problem in full fp32 below these sizes, and where m is dynamic
    # (`MMTemplateConfigMixin.get_extra_kwargs`).
    large = problem.m >= 16 and not problem.dynamic_m and min(problem.n, problem.k) >= 512
    tensor_cores = problem.a_dtype is not DType.FP32 or (problem.allow_tf32 and large)
    hopper = task.device.capability[0] == 9
    found: Numbers = int(hopper and tensor_cores) * _fills_warp_groups(block_m, num_warps)
    return found


def _fills_warp_groups(block_m: Numbers, num_warps: Numbers) -> Numbers:
    """Return 1 if warp groups can multiply a tile, else 0."""
    found: Numbers = (block_m >= 64) * (num_warps % 4 == 0)
    return found


def order_of_sums(task: Task, config: Config) -> str:
    """Return the order in which tensor cores add products of 16-bit operands, block of k after block of k.

    Hopper adds alike with every BLOCK_K and with both of its instructions: experiments/batch-invariant found one digest
    of bits per product, for 113 pairs of the two in 12 products of bf16 on an H100, and a test finds one in fp16.
    Elsewhere nobody compared them.
    """
    major = task.device.capability[0]
    if major == 9:
        return "k in turn"
    warp_groups = major == 10 and _fills_warp_groups(config.integer("BLOCK_M"), config.integer("num_warps"))
    return f"BLOCK_K {config.integer('BLOCK_K')}, {'tcgen05' if warp_groups else 'mma'}"


def groups_differ(task: Task, config: Config) -> Verdict:
    """Return whether GROUP_M orders the tiles in another way than Inductor's own GROUP_M."""
    group_m, rows = config.integer("GROUP_M"), -(-gemm(task.problem).m // config.integer("BLOCK_M"))
    if group_m != DEFAULT_GROUP_M and min(group_m, rows) == min(DEFAULT_GROUP_M, rows):
        return Verdict.no(
            "GROUP_M without effect", f"GROUP_M {group_m} orders {rows} rows of tiles as GROUP_M {DEFAULT_GROUP_M} does"
        )
    return Verdict.yes()


def scaled_config(
    problem: Problem, block_m: int, block_n: int, block_k: int, num_stages: int, num_warps: int
) -> Config:
    """Return a config of Inductor's list, scaled to the problem as Inductor scales it; 8 bits take twice the depth."""
    block_k *= 2 if problem.a_dtype.itemsize == 1 else 1
    m, n = min(block_m, padded(problem.m)), min(block_n, padded(problem.n))
    busy_warps = min(num_warps, m * n // _ELEMENTS_PER_WARP)
    return template_config(m, n, min(block_k, padded(problem.k)), num_stages, busy_warps)


@lru_cache(2**12)
def template_config(*values: Value) -> Config:
    """Return the config with these BLOCK_M, BLOCK_N, BLOCK_K, num_stages, num_warps, and Inductor's GROUP_M."""
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages", "num_warps")
    return Config({**dict(zip(names, values, strict=True)), "GROUP_M": DEFAULT_GROUP_M})


def busiest_sm_traffic(task: Task, config: Config) -> int:
    """Return the operand elements that the busiest SM loads per step of k: waves × (BLOCK_M + BLOCK_N)."""
    problem, block_m, block_n = gemm(task.problem), config.integer("BLOCK_M"), config.integer("BLOCK_N")
    tiles = problem.batch * -(-problem.m // block_m) * -(-problem.n // block_n)
    return -(-tiles // task.device.sm_count) * (block_m + block_n)
