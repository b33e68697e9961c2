"""Inductor's own `triton::mm` template, rendered with static sizes: the kernel torch.compile deploys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.problem import DType, Layout, Op
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.spaces._tiling import Tile
from gemmtune.spaces._versions import toolchain_of

__all__ = ["TritonMmSpace"]

_PARAMS = (
    Param("BLOCK_M", (16, 32, 64, 128, 256)),
    Param("BLOCK_N", (16, 32, 64, 128, 256)),
    Param("BLOCK_K", (16, 32, 64, 128, 256)),
    Param("GROUP_M", (4, 8, 16)),
    Param("num_stages", (1, 2, 3, 4, 5, 6, 7, 8)),
    Param("num_warps", (1, 2, 4, 8)),
)

# (BLOCK_M, BLOCK_N, BLOCK_K, num_stages, num_warps) of `mm_configs` in torch 2.13's
# torch/_inductor/template_heuristics/triton.py; 2.11's list lacks the last one.
_DEFAULT_LIST = (
    (32, 32, 16, 1, 2),
    (32, 32, 128, 2, 4),
    (32, 64, 32, 5, 8),
    (64, 32, 32, 5, 8),
    (64, 32, 128, 5, 4),
    (64, 64, 16, 2, 4),
    (64, 64, 32, 2, 4),
    (64, 64, 64, 3, 8),
    (64, 64, 128, 5, 4),
    (64, 128, 32, 3, 4),
    (64, 128, 32, 4, 8),
    (64, 128, 64, 3, 4),
    (64, 128, 128, 4, 4),
    (128, 64, 32, 3, 4),
    (128, 64, 32, 4, 8),
    (128, 128, 32, 2, 8),
    (128, 128, 32, 3, 4),
    (128, 128, 64, 3, 4),
    (128, 128, 64, 5, 8),
    (128, 128, 128, 4, 8),
    (128, 256, 64, 4, 8),
)

_DEFAULT_GROUP_M = 8
_MIN_BLOCK = 16
_ELEMENTS_PER_WARP = 256  # each warp computes at least a 16×16 tile
_MAX_REGISTERS_PER_THREAD = 255


class TritonMmSpace(Space):
    """Tile, pipeline and swizzle of Inductor's static `triton::mm`.

    The values cover Inductor's EXHAUSTIVE list (tiles 16–256, 1–5 stages, 2–8 warps, GROUP_M 8: 1,875 points) and
    go beyond it where a kernel can win (best of EXHAUSTIVE's points over best of all, recorded on an H200, 2026-11-21):
    up to 8 stages, for shapes that need more bytes in flight (0.87 to 0.97 on five of ten problems), and two more
    GROUP_M, for the L2 reuse of large grids (0.98 to 0.998 on three). BLOCK_K 512 was tried on them, and never won.
    """

    preload = ("gemmtune.spaces._inductor_build",)

    def params(self, task: Task) -> tuple[Param, ...]:
        """The same for every task; `check` cuts what a task cannot use."""
        return _PARAMS

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject what the template cannot serve, what cannot fit, and what is another config under a second name."""
        problem = task.problem
        if problem.op is not Op.MM or problem.epilogue != "none":
            return Verdict.no(
                "operation", f"triton_mm renders a plain mm, not {problem.op} with epilogue {problem.epilogue}"
            )
        if not problem.a_dtype == problem.b_dtype == problem.out_dtype or problem.acc_dtype is not DType.FP32:
            given = f"{problem.a_dtype}, {problem.b_dtype}, {problem.out_dtype} accumulated in {problem.acc_dtype}"
            return Verdict.no("dtypes", f"triton_mm needs A, B and out of one dtype accumulated in fp32, not {given}")
        block_m, block_n, block_k = config.integer("BLOCK_M"), config.integer("BLOCK_N"), config.integer("BLOCK_K")
        num_stages, num_warps = config.integer("num_stages"), config.integer("num_warps")
        for name, block, size in (("M", block_m, problem.m), ("N", block_n, problem.n), ("K", block_k, problem.k)):
            if block > _padded(size):
                # Inductor scales such a tile down before it renders (`_scale_mm_configs`).
                return Verdict.no(
                    f"BLOCK_{name} beyond the problem",
                    f"BLOCK_{name} {block} > {_padded(size)}, the padded {name.lower()} of {size}",
                )
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
        accumulators = block_m * block_n // (num_warps * task.device.warp_size)
        if accumulators > _MAX_REGISTERS_PER_THREAD:
            # The bound of `_prune_reg_spill_configs`: the accumulator alone would spill.
            return Verdict.no(
                "registers",
                f"{accumulators} accumulators a thread > {_MAX_REGISTERS_PER_THREAD} registers at {num_warps} warps",
            )
        needed = _least_shared_bytes(task, block_m, block_n, block_k, num_stages, num_warps)
        limit = task.device.shared_memory_per_block_bytes
        if needed > limit:
            return Verdict.no(
                "shared memory", f"at least {needed} B of shared memory > {limit} B a block at {num_stages} stages"
            )
        group_m, rows = config.integer("GROUP_M"), -(-problem.m // block_m)
        if group_m != _DEFAULT_GROUP_M and min(group_m, rows) == min(_DEFAULT_GROUP_M, rows):
            return Verdict.no(
                "GROUP_M without effect",
                f"GROUP_M {group_m} orders {rows} rows of tiles as GROUP_M {_DEFAULT_GROUP_M} does",
            )
        return Verdict.yes()

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Inductor's DEFAULT list, scaled to the problem as Inductor scales it, the least operand traffic first."""
        sizes = task.problem
        seeds: dict[Config, None] = {}
        for block_m, block_n, block_k, num_stages, num_warps in _DEFAULT_LIST:
            m, n = min(block_m, _padded(sizes.m)), min(block_n, _padded(sizes.n))
            config = Config(
                {
                    "BLOCK_M": m,
                    "BLOCK_N": n,
                    "BLOCK_K": min(block_k, _padded(sizes.k)),
                    "GROUP_M": _DEFAULT_GROUP_M,
                    "num_stages": num_stages,
                    "num_warps": min(num_warps, m * n // _ELEMENTS_PER_WARP),
                }
            )
            if self.check(task, config):
                seeds[config] = None
        return tuple(sorted(seeds, key=partial(_busiest_sm_traffic, task)))

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """What the tile means on the problem, and the rows of tiles that GROUP_M keeps together."""
        block_m, block_n, block_k = config.integer("BLOCK_M"), config.integer("BLOCK_N"), config.integer("BLOCK_K")
        num_stages, num_warps = config.integer("num_stages"), config.integer("num_warps")
        shared = _least_shared_bytes(task, block_m, block_n, block_k, num_stages, num_warps)
        group = min(config.integer("GROUP_M"), -(-task.problem.m // block_m))
        return {**Tile(block_m, block_n, block_k, num_warps, shared).features(task), "group": math.log2(group)}

    def toolchain(self) -> Toolchain:
        """Inductor renders, Triton compiles."""
        return toolchain_of("torch", "triton")

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Render through Inductor and cross-compile for the task's device."""
        from gemmtune.spaces._inductor_build import build

        return build(self, task, config, folder)

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load the cubin through the CUDA driver."""
        from gemmtune.spaces._cuda_kernel import CudaKernel

        return CudaKernel(artifact)


def _padded(size: int) -> int:
    """The next power of two, at least the smallest block."""
    return max(1 << (size - 1).bit_length(), _MIN_BLOCK)


def _busiest_sm_traffic(task: Task, config: Config) -> int:
    """Operand elements, for each step of k, that the SM with the most tiles loads: waves × (BLOCK_M + BLOCK_N)."""
    block_m, block_n = config.integer("BLOCK_M"), config.integer("BLOCK_N")
    tiles = -(-task.problem.m // block_m) * -(-task.problem.n // block_n)
    return -(-tiles // task.device.sm_count) * (block_m + block_n)


def _least_shared_bytes(task: Task, block_m: int, block_n: int, block_k: int, num_stages: int, num_warps: int) -> int:
    """Shared memory of the operand tiles in the pipeline.

    Read from binaries of Triton 3.6 and 3.7 for sm_90a: wgmma keeps `num_stages` buffers of a tile, every other path
    one less; a tile that cannot be copied asynchronously, 4 bytes or more a thread, has one buffer. Of the 25,851
    binaries recorded for an H200, 25,452 need just this, 336 more, and 63 less: all of one stage, at most 9 KiB.
    """
    problem = task.problem
    # Below these sizes Inductor 2.13 computes a tf32 problem in full fp32 (`MMTemplateConfigMixin.get_extra_kwargs`).
    tf32 = problem.allow_tf32 and problem.m >= 16 and min(problem.n, problem.k) >= 512
    tensor_cores = problem.a_dtype is not DType.FP32 or tf32
    wgmma = task.device.capability[0] == 9 and tensor_cores and block_m >= 64 and num_warps % 4 == 0
    pipelined = num_stages if wgmma else max(num_stages - 1, 1)
    row_a = problem.k if problem.a_layout is Layout.N else problem.m
    row_b = problem.n if problem.b_layout is Layout.N else problem.k
    threads = num_warps * task.device.warp_size
    needed = 0
    for row, block in ((row_a, block_m), (row_b, block_n)):
        tile_bytes = block * block_k * problem.a_dtype.itemsize
        asynchronous = row * problem.a_dtype.itemsize % 4 == 0 and tile_bytes >= 4 * threads
        needed += tile_bytes * (pipelined if asynchronous else 1)
    return needed
