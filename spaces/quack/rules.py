"""Constraints of QuACK's kernels, each with its source in quack-kernels 0.6.5."""

from functools import lru_cache

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.epilogue.terms import ELEMENT_BYTES, OperandShape
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import Accumulation, DType, Op
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.spaces.common.operand_rows import aligned, usual
from gemmtune.spaces.quack.operands import epilogue_tensors, further_outputs, product_of

ARCHES = ("sm_90a", "sm_100a")
"""Architectures that QuACK's kernels are compiled for here."""
_TMA_BYTES = 16

# The widest tile_n of each tile_m on sm_90: the bound of `GemmSm90.__init__` in quack/gemm_sm90.py, or a lower one:
# - 256 columns, the most of a wgmma instruction;
# - 208 columns in a tile of 256 rows: a thread holds tile_n accumulators, and more spill (1,440 and 1,904 B per thread
#   in the binaries of 256x224 and 256x256);
# - 128 columns in a tile of 192 rows: two warp groups split a wider one, and with an n-major second operand
#   nvidia-cutlass-dsl 4.8.1 aborts the process (std::bad_variant_access). QuACK leaves it out too ("core dumped",
#   `_get_sm90_configs`).
_WIDEST = {
    "pingpong": {64: 256, 128: 208, 192: 128},
    "cooperative": {64: 256, 128: 256, 192: 128, 256: 208},
    # Exact sums of 8-bit floats have two accumulators per element: from 105 elements per thread on, they spill.
    "exact pingpong": {64: 208, 128: 96, 192: 64},
    "exact cooperative": {64: 208, 128: 208, 192: 128, 256: 96},
}


@lru_cache(maxsize=64)  # thousands of configs of a task are checked in a row
def serves(task: Task) -> Verdict:
    """Return whether any config of QuACK's GEMM can serve the task."""
    problem = gemm(task.problem)
    if problem.op not in (Op.MM, Op.ADDMM):
        return Verdict.no("operation", f"quack_gemm runs mm and addmm, not {problem.op}")
    if not (verdict := usual(problem, task.space, takes_views=False)):
        return verdict
    # `is_valid_dtypes` of GemmSm90 and GemmSm100.
    a, b = problem.a_dtype, problem.b_dtype
    known = (a.is_float8 and b.is_float8) or (a is b and a in (DType.BF16, DType.FP16))
    if not known or problem.acc_dtype is not DType.FP32:
        return Verdict.no(
            "dtypes",
            "quack_gemm needs A and B both bf16, both fp16 or both of 8-bit floats, accumulated in fp32,"
            f" not {a} and {b} accumulated in {problem.acc_dtype}",
        )
    if a.is_float8 and (layout := f"{problem.a_layout}{problem.b_layout}") != "nt":
        return Verdict.no("layout", f"quack_gemm reads operands of 8 bits along k, layout nt, not {layout}")
    if task.device.arch not in ARCHES:
        return Verdict.no("architecture", f"quack_gemm is for {' and '.join(ARCHES)}, not for {task.device.arch}")
    # `GemmSm100.is_valid_tensor_alignment`; on both architectures the strides that `make_fake_gemm_tensors` in
    # quack/gemm_tvm_ffi_utils.py compiles in (`div_for_dtype`).
    return aligned(product_of(problem), _TMA_BYTES, "TMA") and _takes_epilogue(problem)


def _takes_epilogue(problem: Problem) -> Verdict:
    """Return whether a kernel can load the epilogue's tensors, and store its outputs."""
    for tensor in (*epilogue_tensors(problem), *further_outputs(problem).values()):
        if tensor.shape in (OperandShape.GATE, OperandShape.ROWS) or tensor.dtype == "bool" or tensor.transposed:
            kind = f"{'transposed ' if tensor.transposed else ''}{tensor.shape} of {tensor.dtype}"
            return Verdict.no(
                "epilogue",
                "quack_gemm loads row-major matrices, rows, columns and scalars of floats in its epilogue, not"
                f" {tensor.name}, a {kind}",
            )
        # TMA copies tiles of a matrix; its strides are compiled in like those of the first output.
        nbytes = problem.n * ELEMENT_BYTES[tensor.dtype]
        if tensor.shape is OperandShape.MATRIX and nbytes % _TMA_BYTES:
            reason = f"rows of {tensor.name} of {nbytes} B are no multiple of the {_TMA_BYTES} B that TMA needs"
            return Verdict.no("alignment", reason)
    return Verdict.yes()


def runs(task: Task, config: Config) -> Verdict:
    """Return whether the config has a kernel for the task's architecture, which `serves` has accepted."""
    return kernel_exists(task.device.arch, config, exact=gemm(task.problem).accumulation is Accumulation.EXACT)


def kernel_exists(arch: str, config: Config, *, exact: bool = False) -> Verdict:
    """Return whether a config has a kernel for `sm_90a` or `sm_100a`, with `exact` sums of 8-bit floats or without."""
    return _sm90(config, exact=exact) if arch == "sm_90a" else _sm100(config)


def _sm90(config: Config, *, exact: bool) -> Verdict:
    """Apply `GemmSm90.__init__` in quack/gemm_sm90.py ("CTA tile shape ..."), with the bounds above."""
    tile_m, tile_n, pingpong = config.integer("tile_m"), config.integer("tile_n"), config["pingpong"]
    kind = "exact " * exact + ("pingpong" if pingpong else "cooperative")
    widest, article = _WIDEST[kind], "an" if exact else "a"
    if tile_m not in widest:
        return Verdict.no(
            "tile_m", f"tile_m {tile_m} is not one of {', '.join(map(str, widest))} of {article} {kind} kernel"
        )
    if tile_n > widest[tile_m]:
        return Verdict.no("tile_n", f"tile_n {tile_n} > {widest[tile_m]} at tile_m {tile_m} of {article} {kind} kernel")
    step = 32 if tile_m == 192 and not pingpong else 16
    if tile_n % step:
        return Verdict.no(
            "tile_n", f"tile_n {tile_n} is no multiple of {step} at tile_m {tile_m} of {article} {kind} kernel"
        )
    if config["is_dynamic_persistent"]:
        # `_build_gemm_plan` in quack/gemm.py asserts the semaphore; `_gemm_execute` allocates it per call.
        return Verdict.no(
            "is_dynamic_persistent",
            "is_dynamic_persistent on sm_90 wants a new semaphore for each launch, and a launch here allocates nothing",
        )
    return Verdict.yes()


def _sm100(config: Config) -> Verdict:
    """Apply `is_valid_mma_tiler_and_cluster_shape` in quack/gemm_sm100.py, but accept tile_n 16, which QuACK lists."""
    tile_m, tile_n, cluster_m = config.integer("tile_m"), config.integer("tile_n"), config.integer("cluster_m")
    if config["pingpong"]:
        # `_get_sm100_configs` in quack/gemm_config.py; `compile_gemm_kernel` would ignore it.
        return Verdict.no("pingpong", "pingpong is for sm_90: on sm_100 one warp issues every MMA")
    if tile_m not in (64, 128, 256):
        return Verdict.no("tile_m", f"tile_m {tile_m} is not one of 64, 128, 256")
    instruction_n = tile_n if tile_n <= 256 else tile_n // 2
    if instruction_n != 16 and instruction_n not in range(32, 257, 32):
        return Verdict.no("tile_n", f"tile_n {tile_n} is neither 16, nor 32 to 256 in steps of 32, nor twice such")
    if tile_m == 256 and cluster_m % 2:
        return Verdict.no("cluster_m", f"tile_m 256 takes pairs of CTAs along m, and cluster_m {cluster_m} is odd")
    if (tile_m, tile_n) == (128, 512) and cluster_m % 2 == 0:
        # nvidia-cutlass-dsl 4.8.1 ends with SIGFPE, for all layouts and types; QuACK lists 512 only as 256x512.
        return Verdict.no("tile_n", "the compiler dies of tile_n 512 where tile_m 128 is split between a pair of CTAs")
    return Verdict.yes()
