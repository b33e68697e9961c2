"""Space of a split-K kernel on tensor cores, for products of at most 64 rows."""

from typing import ClassVar

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.spaces.cute.decode.space import DecodeSpace
from gemmtune.spaces.cute.decode.tiling import LOAD_BYTES, Tiling

_PARAMS = (
    Param("warp_n", (16, 32, 64)),
    Param("warps_n", (1, 2, 4)),
    Param("warps_k", (1, 2, 4, 8)),
    Param("split_k", (1, 2, 4, 8)),
    Param("k_unroll", (1, 2, 4)),
    Param("num_stages", (2, 4, 8)),
    Param("share_a", (False, True)),  # loads A once per block and part of k; costs a barrier per chunk
    Param("use_pdl", (False, True)),
)
_LANES_K = 4  # of m16n8k16 that hold one row of an operand
_ROWS_OF_INSTRUCTION = 8


class CuteSplitKSpace(DecodeSpace):
    """CuTe kernel on tensor cores that splits k: columns per warp, warps, blocks of a cluster, depth of the loads.

    A further parameter is programmatic dependent launch. Columns of the output fill the 16 rows of an instruction, rows
    of A its 8 columns. The warps of a block and the blocks of a cluster split k; their sums meet in distributed shared
    memory.
    """

    most_rows: ClassVar[int] = 64

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters, equal for every task."""
        return _PARAMS

    def tiling(self, problem: Problem, config: Config) -> Tiling:
        """Return the work of each thread; a block computes m rounded up to a power of two, from 8 to 64."""
        rows = max(_ROWS_OF_INSTRUCTION, 1 << (min(problem.m, self.most_rows) - 1).bit_length())
        return Tiling(
            rows=rows,
            columns=config.integer("warp_n"),
            lanes_k=_LANES_K,
            warps_n=config.integer("warps_n"),
            warps_k=config.integer("warps_k"),
            split_k=config.integer("split_k"),
            unroll=config.integer("k_unroll"),
            stages=config.integer("num_stages"),
            shares_a=bool(config["share_a"]),
            elements=LOAD_BYTES // problem.a_dtype.itemsize,
        )
