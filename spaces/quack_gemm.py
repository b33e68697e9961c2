"""Space of QuACK's persistent GEMM for Hopper and Blackwell, which `quack.gemm_interface.gemm` runs."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.gemm.problem import gemm
from gemmtune.engine.records.gemm.terms import Accumulation
from gemmtune.engine.records.search import Prior
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.kernel_call import RUNTIME_PACKAGES, Argument
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.engine.toolchain.versions import toolchain_of
from gemmtune.spaces.matmul_heuristics.model import prior_of
from gemmtune.spaces.quack.autotuner_list import DEFAULT_SWIZZLE, listed
from gemmtune.spaces.quack.operands import is_plain
from gemmtune.spaces.quack.rules import runs, serves
from gemmtune.spaces.quack.tiles import clustered_tile, modelled, operand_traffic, tile_order, transposed

# Named as the fields of quack.gemm_config.GemmConfig.
_PARAMS = (
    Param("tile_m", (64, 128, 192, 256)),
    Param("tile_n", (16, 32, 64, 128, 160, 192, 208, 224, 256, 512)),
    Param("cluster_m", (1, 2)),
    Param("cluster_n", (1, 2)),
    Param("pingpong", (False, True)),
    Param("swap_ab", (False, True)),
    Param("is_dynamic_persistent", (False, True)),
    Param("max_swizzle_size", (4, 8, 16)),
)
_FEW_ROWS = 64
_EPILOGUES = "2"
"""Revision of what gemmtune computes in QuACK's epilogue; a kernel of another one is measured again."""


class QuackGemmSpace(Space):
    """Tile, cluster, schedule and swizzle of QuACK's GEMM, with a bias and an epilogue in the kernel.

    The points cover the list of QuACK's autotuner (44 configs on sm_90, 196 on sm_100) and more that its kernels take.
    These are clusters of one and of four CTAs, two more swizzle sizes, and tiles of 64 rows and of few columns, which
    the list for sm_90 lacks. The other fields keep their listed values: split_k and cluster_k are 1, and QuACK chooses
    tile_k.
    """

    preload = ("gemmtune.spaces.quack.build",)
    needs = RUNTIME_PACKAGES
    compiled_packages = ("nvidia-cutlass-operators", "quack-kernels")  # QuACK builds on an example of CUTLASS
    launch_params = ("max_swizzle_size",)

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters, equal for every task; `check` rejects values that an architecture cannot run."""
        return _PARAMS

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject configs that QuACK cannot run here, and configs that equal another one."""
        verdict = serves(task) and runs(task, config)
        swizzle = config.integer("max_swizzle_size")
        if not verdict or swizzle == DEFAULT_SWIZZLE:
            return verdict
        if tile_order(task, config, swizzle) == tile_order(task, config, DEFAULT_SWIZZLE):
            return Verdict.no(
                "max_swizzle_size without effect",
                f"max_swizzle_size {swizzle} orders the tiles as {DEFAULT_SWIZZLE} does, QuACK's own",
            )
        return Verdict.yes()

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return all that QuACK's own autotuner would try, least operand traffic of the busiest SM first.

        For 8-bit floats they have narrow tiles too, and for exact sums only tiles whose accumulators do not spill. From
        65 rows on, their ping-pong tiles alternate with the others: hiding the epilogue often gains more than the least
        traffic does, see experiments/models.
        """
        problem = gemm(task.problem)
        exact = problem.accumulation is Accumulation.EXACT
        known = listed(task.device.arch, float8=problem.a_dtype.is_float8, exact=exact)
        feasible = [config for config in known if self.check(task, config)]
        ordered = sorted(feasible, key=partial(operand_traffic, task))
        if not problem.a_dtype.is_float8 or problem.m <= _FEW_ROWS:
            return tuple(ordered)
        kinds = ([seed for seed in ordered if seed["pingpong"] is kind] for kind in (True, False))
        return tuple(seed for pair in zip_longest(*kinds) for seed in pair if seed is not None)

    def prior(self, task: Task) -> Prior:
        """Return the estimates of nvMatmulHeuristics; with swap_ab they are those of the transposed product.

        QuACK asks for its default config in this way: `_nvmmh_query_config` in quack/nvmmh_heuristic.py.
        """
        feasible = [config for config in self.points(task) if self.check(task, config)]
        plain = prior_of(task, (c for c in feasible if not c["swap_ab"]), partial(modelled, task))
        swapped = prior_of(transposed(task), (c for c in feasible if c["swap_ab"]), partial(modelled, task))
        if plain.reason or swapped.reason:
            return plain if plain.reason else swapped
        return replace(plain, times_ns={**plain.times_ns, **swapped.times_ns})

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """Return how clusters and tiles fit the problem and the GPU, and how wide the groups of tiles are."""
        _, group = tile_order(task, config, config.integer("max_swizzle_size"))
        return {**clustered_tile(task, config).features(task), "group": math.log2(group)}

    def toolchain(self) -> Toolchain:
        """Return the versions of QuACK, of CUTLASS's DSL, which compiles, of TVM-FFI, and of our epilogues."""
        versions = toolchain_of(*RUNTIME_PACKAGES, "quack-kernels", extra="cute").versions
        return Toolchain(tuple(sorted((*versions, ("gemmtune-epilogues", _EPILOGUES)))))

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return all that the binary depends on; sizes, strides and the number of clusters are its arguments."""
        problem = gemm(task.problem)
        dtypes = f"{problem.a_dtype}:{problem.b_dtype}:{problem.out_dtype}:{problem.acc_dtype}"
        parts = [f"{dtypes}:{problem.a_layout}{problem.b_layout}"]
        if problem.a_dtype.is_float8:
            parts.append(problem.accumulation.value)
        if not is_plain(problem):
            parts.append(f"{problem.op}:{problem.bias}:{problem.epilogue}")
        return "/".join((task.space, task.device.arch, *parts, config.digest))

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Trace and cross-compile QuACK's kernel for the task's device."""
        from gemmtune.spaces.quack.build import build

        return build(self, task, config, folder)

    def deployed_call(self, artifact: Artifact, task: Task) -> list[Argument]:
        """Return the operands, and the epilogue and schedule that the kernel was compiled for."""
        from gemmtune.spaces.quack.call import call_of

        return call_of(artifact, task)

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load the kernel with the host code that launches it, without QuACK."""
        from gemmtune.spaces.cute.artifact import CuteKernel

        return CuteKernel(artifact, self.deployed_call(artifact, task), gemm(task.problem).argument_names)
