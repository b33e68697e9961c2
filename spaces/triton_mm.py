"""Space of Inductor's `triton::mm` and `triton::bmm` templates: the kernels that torch.compile deploys."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.artifact import Artifact, KernelCode, Toolchain
from gemmtune.engine.records.config import Config, Param, Value
from gemmtune.engine.records.gemm.problem import gemm
from gemmtune.engine.records.gemm.terms import DType, Layout
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.engine.toolchain.versions import triton_toolchain
from gemmtune.spaces.common.operand_rows import operand_rows
from gemmtune.spaces.common.tile_limits import fits_in_shared_memory
from gemmtune.spaces.common.triton_config import triton_config
from gemmtune.spaces.inductor.rules import (
    DEFAULT_GROUP_M,
    Numbers,
    busiest_sm_traffic,
    groups_differ,
    is_wgmma,
    order_of_sums,
    scaled_config,
    serves,
    template_config,
    tile_fits,
)
from gemmtune.spaces.inductor.tile_features import tiled_features

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

_PARAMS = (
    *(Param(name, (16, 32, 64, 128, 256)) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")),
    Param("GROUP_M", (4, 8, 16)),
    Param("num_stages", (1, 2, 3, 4, 5, 6, 7, 8)),
    Param("num_warps", (1, 2, 4, 8)),
)
_LARGEST_INT32 = 2**31 - 1
_LARGE = 512  # the rules for tiles tell larger sizes apart by alignment alone: no block is as large
_ALIGNED = 16  # elements; no rule for tiles asks for a larger alignment


class TritonMmSpace(Space):
    """Tile, pipeline and swizzle of Inductor's `triton::mm` and `triton::bmm`, also with a bias.

    All sizes are compiled into a kernel. For a problem with `dynamic_m`, m is not, and one binary serves every m.

    The values cover Inductor's EXHAUSTIVE list (tiles 16 to 256, 1 to 5 stages, 2 to 8 warps, GROUP_M 8: 1,875 points).
    They exceed it where a kernel of the recorded landscapes wins: up to 8 stages, for shapes that need more bytes in
    flight, and two more values of GROUP_M, for the L2 reuse of large grids. BLOCK_K 512 never won there.
    """

    preload = ("gemmtune.spaces.inductor.preload",)

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters of the template; `check` rejects values that a task cannot use."""
        return _PARAMS

    def points(self, task: Task) -> Iterator[Config]:
        """Yield every config of the space; all tasks share the objects, and so their hashes."""
        return iter(_points())

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject configs that the template cannot serve, that cannot fit, or that equal another config."""
        served, check_tile = _rules(task)
        if not served:
            return served
        block_k, block_m, block_n, group_m, num_stages, num_warps = config.values()  # sorted by name
        verdict = check_tile(block_m, block_n, block_k, num_stages, num_warps)
        return verdict if group_m == DEFAULT_GROUP_M else verdict and groups_differ(task, config)

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return Inductor's list, scaled to the problem as Inductor scales it, least operand traffic first."""
        scaled = (scaled_config(gemm(task.problem), *listed) for listed in _DEFAULT_LIST)
        feasible = dict.fromkeys(config for config in scaled if self.check(task, config))
        return tuple(sorted(feasible, key=partial(busiest_sm_traffic, task)))

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """Return how the tile fits the problem and the GPU, and the rows of tiles that GROUP_M keeps together."""
        return {name: float(values[0]) for name, values in self.features_of(task, [config]).items()}

    def features_of(self, task: Task, configs: Sequence[Config]) -> Mapping[str, NDArray[np.float64]]:
        """Return the features of several configs, computed together, by name."""
        return tiled_features(task, configs, self.shared_bytes)

    def toolchain(self) -> Toolchain:
        """Return the versions of torch and Triton, and what changes their kernels; see `triton_toolchain`."""
        return triton_toolchain("torch")

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Render the template through Inductor and cross-compile it for the task's device."""
        from gemmtune.spaces.inductor.build import build

        return build(self, task, config, folder)

    def config_source(self, task: Task, config: Config) -> str:
        """Return a config as Triton's source."""
        return triton_config(config)

    def code(self, task: Task, config: Config, folder: Path) -> KernelCode:
        """Render the template as a program, and return it with its PTX."""
        from gemmtune.spaces.inductor.script import rendered_script
        from gemmtune.spaces.triton_source.code import triton_code

        return triton_code(self, task, config, folder, rendered_script(task, config, folder))

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load the cubin through the CUDA driver."""
        from gemmtune.spaces.inductor.kernel import TritonKernel

        return TritonKernel(artifact, gemm(task.problem))

    def summation(self, task: Task, config: Config) -> str:
        """Return the order of the template, which adds one block of k after another; empty but for 16-bit operands."""
        return order_of_sums(task, config) if gemm(task.problem).a_dtype in (DType.BF16, DType.FP16) else ""

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return a key that only values of a dynamic m share: those whose indices have one width."""
        problem = gemm(task.problem)
        if not problem.dynamic_m:
            return super().artifact_key(task, config)
        largest = max(problem.batch * problem.m * problem.n, problem.reach("a"), problem.reach("b"))
        index = "int32" if largest <= _LARGEST_INT32 else "int64"
        return f"{replace(task, problem=replace(problem, m=2)).key}/{index}/{config.digest}"

    def least_shared_bytes(self, task: Task, config: Config) -> int:
        """Return the least shared memory of a block of one config, in bytes."""
        return self.shared_bytes(task, {name: config.integer(name) for name in config})

    def shared_bytes(self, task: Task, values: Mapping[str, Numbers]) -> Numbers:
        """Return the bytes of shared memory of the operand tiles in the pipeline, of one config or of many.

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


@cache
def _points() -> tuple[Config, ...]:
    names = [param.name for param in _PARAMS]
    return tuple(Config(dict(zip(names, values, strict=True))) for values in product(*(p.values for p in _PARAMS)))


@lru_cache(1024)
def _rules(task: Task) -> tuple[Verdict, Callable[..., Verdict]]:
    """Return whether the template serves the task, and the check of its tiles."""
    return serves(task), _tile_check(_canonical(task))


@lru_cache(256)
def _tile_check(task: Task) -> Callable[..., Verdict]:
    """Return the check of BLOCK_M, BLOCK_N, BLOCK_K, num_stages and num_warps; no rule for tiles reads GROUP_M."""
    space = TritonMmSpace()

    @cache
    def check(*tile: Value) -> Verdict:
        config = template_config(*tile)
        needed, stages = space.least_shared_bytes(task, config), config.integer("num_stages")
        return tile_fits(task, config) and fits_in_shared_memory(task, needed, stages)

    return check


def _canonical(task: Task) -> Task:
    """Return one task for all tasks with equal tile verdicts: a hundred problems share the verdicts of about twenty."""

    def reduced(size: int) -> int:
        return size if size < _LARGE else _LARGE + size % _ALIGNED

    problem = gemm(task.problem)
    m, n, k = reduced(problem.m), reduced(problem.n), reduced(problem.k)
    return replace(task, problem=replace(problem, m=m, n=n, k=k, weight=1.0))
