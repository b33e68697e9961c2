"""Space of a GEMV on CUDA cores, for products of at most 16 rows."""

from typing import ClassVar

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.spaces.cute.decode.space import DecodeSpace
from gemmtune.spaces.cute.decode.tiling import LOAD_BYTES, WARP, Tiling

_PARAMS = (
    Param("outputs_per_warp", (1, 2, 4, 8)),
    Param("warps_n", (1, 2, 4, 8)),
    Param("warps_k", (1, 2, 4, 8)),
    Param("split_k", (1, 2, 4, 8)),
    Param("k_unroll", (1, 2, 4)),
    Param("num_stages", (2, 4, 8)),
    Param("use_pdl", (False, True)),
)


class CuteGemvSpace(DecodeSpace):
    """CuTe kernel for few rows, without tensor cores: outputs per warp, warps, blocks of a cluster, depth of the loads.

    A further parameter is programmatic dependent launch. A warp multiplies whole lines of its columns of B with all
    rows of A in fp32. Its work grows with m, so that beyond 8 rows tensor cores mostly win.
    """

    most_rows: ClassVar[int] = 16

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters, equal for every task."""
        return _PARAMS

    def tiling(self, problem: Problem, config: Config) -> Tiling:
        """Return the work of each thread; a block computes all rows."""
        return Tiling(
            rows=min(problem.m, self.most_rows),
            columns=config.integer("outputs_per_warp"),
            lanes_k=WARP,
            warps_n=config.integer("warps_n"),
            warps_k=config.integer("warps_k"),
            split_k=config.integer("split_k"),
            unroll=config.integer("k_unroll"),
            stages=config.integer("num_stages"),
            elements=LOAD_BYTES // problem.a_dtype.itemsize,
        )
