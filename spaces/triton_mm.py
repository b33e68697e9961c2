"""Space of Inductor's `triton::mm` and `triton::bmm` templates: the kernels that torch.compile deploys."""

from collections.abc import Mapping
from dataclasses import replace

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.problem import Layout, Op, gemm
from gemmtune.engine.records.task import Task
from gemmtune.spaces.inductor.rules import TILE_PARAMS, Numbers, is_wgmma
from gemmtune.spaces.inductor.space import InductorSpace
from gemmtune.spaces.operand_rows import operand_rows

__all__ = ["TritonMmSpace"]

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

_TEMPLATES = {Op.MM: "triton::mm", Op.ADDMM: "triton::mm", Op.BMM: "triton::bmm"}
_LARGEST_INT32 = 2**31 - 1


class TritonMmSpace(InductorSpace):
    """Tile, pipeline and swizzle of Inductor's `triton::mm` (also with the bias of an addmm) and `triton::bmm`.

    All sizes are compiled into a kernel. For a problem with `dynamic_m`, m is not, and one binary serves every m.

    The values cover Inductor's EXHAUSTIVE list (tiles 16 to 256, 1 to 5 stages, 2 to 8 warps, GROUP_M 8: 1,875 points).
    They exceed it where a kernel of the recorded landscapes wins: up to 8 stages, for shapes that need more bytes in
    flight, and two more values of GROUP_M, for the L2 reuse of large grids. BLOCK_K 512 never won there.
    """

    values = (*TILE_PARAMS, Param("num_warps", (1, 2, 4, 8)))
    inductors_list = _DEFAULT_LIST
    templates = _TEMPLATES

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return a key that only values of a dynamic m share: those whose indices have one width."""
        problem = gemm(task.problem)
        if not problem.dynamic_m:
            return super().artifact_key(task, config)
        largest = problem.batch * max(problem.m * problem.n, problem.m * problem.k, problem.k * problem.n)
        index = "int32" if largest <= _LARGEST_INT32 else "int64"
        return f"{replace(task, problem=replace(problem, m=2)).key}/{index}/{config.digest}"

    def shared_bytes(self, task: Task, values: Mapping[str, Numbers]) -> Numbers:
        """Return the bytes of shared memory of the operand tiles in the pipeline.

        Source: binaries of Triton 3.6 and 3.7 for sm_90a. With wgmma a tile has `num_stages` buffers, otherwise one
        less. A tile that cannot be copied asynchronously, in 4 bytes or more per thread, has one buffer. Of the 25,851
        recorded binaries, 25,452 need exactly this much and 336 more. The other 63 have one stage, and need at most 9
        KiB less.
        """
        problem = gemm(task.problem)
        num_stages, num_warps = values["num_stages"], values["num_warps"]
        pipelined = num_stages - (1 - is_wgmma(task, values["BLOCK_M"], num_warps)) * (num_stages > 1)
        rows = operand_rows(problem)
        row_a = 1 if problem.dynamic_m and problem.a_layout is Layout.T else rows["A"].length
        threads = num_warps * task.device.warp_size
        needed = 0 * threads
        for row, block in ((row_a, values["BLOCK_M"]), (rows["B"].length, values["BLOCK_N"])):
            tile_bytes = block * values["BLOCK_K"] * problem.a_dtype.itemsize
            asynchronous = int(row * problem.a_dtype.itemsize % 4 == 0) * (tile_bytes >= 4 * threads)
            needed = needed + tile_bytes * (1 + asynchronous * (pipelined - 1))
        return needed
