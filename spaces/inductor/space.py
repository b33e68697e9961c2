"""The base class of the spaces of Inductor's Triton templates."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import product
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.platform.versions import triton_toolchain
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param, Value
from gemmtune.engine.records.problem import Op, gemm
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.spaces.inductor.rules import (
    DEFAULT_GROUP_M,
    Numbers,
    busiest_sm_traffic,
    groups_differ,
    scaled_config,
    serves,
    template_config,
    tile_fits,
)
from gemmtune.spaces.inductor.tile_features import tiled_features
from gemmtune.spaces.tile_limits import fits_in_shared_memory

__all__ = ["InductorSpace"]

_LARGE = 512  # the rules for tiles tell larger sizes apart by alignment alone: no block is as large
_ALIGNED = 16  # elements; no rule for tiles asks for a larger alignment


class InductorSpace(Space):
    """Space of one Inductor template; a subclass gives its parameters, its list and its shared memory."""

    preload = ("gemmtune.spaces.inductor.preload",)

    values: ClassVar[tuple[Param, ...]]
    """Parameters with their values, equal for every task."""
    inductors_list: ClassVar[tuple[tuple[int, int, int, int, int], ...]]
    """Configs that Inductor tries: (BLOCK_M, BLOCK_N, BLOCK_K, num_stages, num_warps)."""
    templates: ClassVar[Mapping[Op, str]]
    """Name of the Inductor template that renders each operation."""

    @abstractmethod
    def shared_bytes(self, task: Task, values: Mapping[str, Numbers]) -> Numbers:
        """Return the least shared memory of a block, in bytes, for one config or for arrays of values."""

    def offered(self, task: Task) -> Verdict:
        """Return whether Inductor offers the template for such a problem on such a GPU."""
        return Verdict.yes()

    def least_shared_bytes(self, task: Task, config: Config) -> int:
        """Return the least shared memory of a block of one config, in bytes."""
        return self.shared_bytes(task, {name: config.integer(name) for name in config})

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters of the template; `check` rejects values that a task cannot use."""
        return self.values

    def points(self, task: Task) -> Iterator[Config]:
        """Yield every config of the space; all tasks share the objects, and so their hashes."""
        return iter(_points(self.values))

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject configs that the template cannot serve, that cannot fit, or that equal another config."""
        served, check_tile = _rules(type(self), task)
        if not served:
            return served
        block_k, block_m, block_n, group_m, num_stages, num_warps = config.values()  # sorted by name
        verdict = check_tile(block_m, block_n, block_k, num_stages, num_warps)
        return verdict if group_m == DEFAULT_GROUP_M else verdict and groups_differ(task, config)

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return Inductor's list, scaled to the problem as Inductor scales it, least operand traffic first."""
        scaled = (scaled_config(gemm(task.problem), *listed) for listed in self.inductors_list)
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

        return build(self, self.templates[gemm(task.problem).op], task, config, folder)

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load the cubin through the CUDA driver."""
        from gemmtune.spaces.inductor.kernel import TritonKernel

        return TritonKernel(artifact, gemm(task.problem))


@cache
def _points(params: tuple[Param, ...]) -> tuple[Config, ...]:
    names = [param.name for param in params]
    return tuple(Config(dict(zip(names, values, strict=True))) for values in product(*(p.values for p in params)))


@lru_cache(1024)
def _rules(space_type: type[InductorSpace], task: Task) -> tuple[Verdict, Callable[..., Verdict]]:
    """Return whether the template serves the task, and the check of its tiles."""
    space = space_type()
    return serves(task, tuple(space.templates)) and space.offered(task), _tile_check(space_type, _canonical(task))


@lru_cache(256)
def _tile_check(space_type: type[InductorSpace], task: Task) -> Callable[..., Verdict]:
    """Return the check of BLOCK_M, BLOCK_N, BLOCK_K, num_stages and num_warps; no rule for tiles reads GROUP_M."""
    space = space_type()

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
