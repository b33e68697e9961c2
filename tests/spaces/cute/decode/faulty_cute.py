"""Space of decode kernels that fail on the GPU in each way that a kernel can."""

from __future__ import annotations

import time

import cutlass
from cutlass import const_expr, cute

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.epilogue.chain import NO_EPILOGUE
from gemmtune.engine.records.gemm.problem import gemm
from gemmtune.engine.records.verdict import Verdict
from gemmtune.spaces.cute.artifact import save
from gemmtune.spaces.cute.decode import build as building
from gemmtune.spaces.cute.decode.kernels import GemvKernel
from gemmtune.spaces.cute.decode.tiling import Tiling
from gemmtune.spaces.cute_gemv import CuteGemvSpace

FAULTS = ("none", "endless", "illegal address", "wrong sum", "none again")


class FaultyKernel(GemvKernel):
    """GEMV that fails before its sums are shared."""

    def __init__(self, fault, *arguments):
        super().__init__(*arguments)
        self._fault = fault

    @cute.jit
    def _share(
        self,
        total: cute.Tensor,
        sums: cute.Tensor,
        part: cutlass.Int32,
        column_of_warp: cutlass.Int32,
        lane: cutlass.Int32,
    ) -> None:
        if const_expr(self._fault == "endless"):
            waiting = lane
            while waiting >= 0:
                cute.arch.inline_ptx("nanosleep.u32 1000;")
        if const_expr(self._fault == "illegal address"):
            cute.arch.inline_ptx("st.global.u32 [{$r0}], {$r1};", read_only_args=[4 * cutlass.Int64(lane) + 64, lane])
        if const_expr(self._fault == "wrong sum"):
            total[0, 0] = total[0, 0] + cutlass.Float32(1000.0)
        GemvKernel._share(self, total, sums, part, column_of_warp, lane)


class FaultyCuteSpace(CuteGemvSpace):
    """One tiling with each fault."""

    preload = ()

    def params(self, task):
        return (Param("fault", FAULTS, ordered=False),)

    def check(self, task, config):
        return Verdict.yes()

    def seeds(self, task):
        return (Config({"fault": "none"}),)

    def features(self, task, config):
        return {}

    def tiling(self, problem, config):
        return Tiling(3, 2, 32, warps_n=1, warps_k=2, split_k=2, unroll=1, stages=2)

    def build(self, task, config, folder):
        started, problem = time.perf_counter(), gemm(task.problem)
        kernel = FaultyKernel(
            config["fault"], self.tiling(problem, config), cutlass.BFloat16, "none", NO_EPILOGUE, False
        )
        compiled = building._compile(kernel, problem, task.device.arch)
        return save(self, task, config, compiled, folder, (), started)
