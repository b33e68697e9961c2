"""What the spaces of Inductor's GEMM templates for Triton have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.platform.ptxas import current_ptxas, ptxas_release, triton_ptxas
from gemmtune.engine.platform.versions import toolchain_of
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param, Value
from gemmtune.engine.records.problem import Op
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.spaces.inductor.rules import (
    Numbers,
    fits_in_shared_memory,
    groups_differ,
    scaled_seeds,
    serves,
    tile_fits,
)
from gemmtune.spaces.inductor.tile_features import tiled_features

__all__ = ["InductorSpace"]

_POINTS: dict[type[Space], tuple[Config, ...]] = {}
"""Those of each template: its tasks have the same, and share what is known of one, such as its hash."""
_LARGE = 512
"""A size from which on rules for tiles tell sizes apart by alignment alone: no block is as large, and `is_wgmma` asks
for no more."""
_ALIGNED = 16
"""Elements that a size may be a multiple of, as far as these rules ask."""


class InductorSpace(Space):
    """A template's space; a subclass says what tells its template from the others."""

    preload = ("gemmtune.spaces.inductor.preload",)

    values: ClassVar[tuple[Param, ...]]
    """Parameters of every task."""
    inductors_list: ClassVar[tuple[tuple[int, int, int, int, int], ...]]
    """(BLOCK_M, BLOCK_N, BLOCK_K, num_stages, num_warps) that Inductor tries."""
    templates: ClassVar[Mapping[Op, str]]
    """Name of the template that renders each operation."""

    _checked: tuple[Task, Verdict, dict[tuple[Value, ...], Verdict]] | None = None
    """The task that was checked last, whether it is served at all, and what was said of its tiles: GROUP_M orders them,
    and only one rule reads it."""

    @abstractmethod
    def shared_bytes(self, task: Task, values: Mapping[str, Numbers]) -> Numbers:
        """The least shared memory of a block, of one config or of an array of them."""

    def offered(self, task: Task) -> Verdict:
        """Whether Inductor offers the template for such a problem on such a GPU."""
        return Verdict.yes()

    def least_shared_bytes(self, task: Task, config: Config) -> int:
        """As `shared_bytes`, of one config."""
        return self.shared_bytes(task, {name: config.integer(name) for name in config})

    def params(self, task: Task) -> tuple[Param, ...]:
        """The same for every task; `check` cuts what a task cannot use."""
        return self.values

    @cached_property
    def _group(self) -> int:
        """Where a config has its GROUP_M."""
        return sorted(param.name for param in self.values).index("GROUP_M")

    def points(self, task: Task) -> Iterator[Config]:
        """Made once for all tasks."""
        if type(self) not in _POINTS:
            _POINTS[type(self)] = tuple(super().points(task))
        return iter(_POINTS[type(self)])

    @cached_property
    def _tiles(self) -> dict[Task, dict[tuple[Value, ...], Verdict]]:
        """What was said of tiles, by the task as its tiles see it.

        A hundred problems are some twenty such, and to enumerate their million configs takes half as long.
        """
        return {}

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject what the template cannot serve, what cannot fit, and what is another config under a second name."""
        if self._checked is None or self._checked[0] is not task:
            served = serves(task, tuple(self.templates)) and self.offered(task)
            self._checked = task, served, self._tiles.setdefault(_as_tiles_see(task), {})
        _, served, verdicts = self._checked
        if not served:
            return served
        values, group = tuple(config.values()), self._group
        tile = values[:group] + values[group + 1 :]
        if tile not in verdicts:
            verdicts[tile] = tile_fits(task, config) and fits_in_shared_memory(
                task, config, self.least_shared_bytes(task, config)
            )
        return verdicts[tile] and groups_differ(task, config)

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Inductor's list, scaled to the problem as Inductor scales it, the least operand traffic first."""
        return scaled_seeds(self, task, self.inductors_list)

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """What the tile means on the problem, and the rows of tiles that GROUP_M keeps together."""
        return {name: float(values[0]) for name, values in self.features_of(task, [config]).items()}

    def features_of(self, task: Task, configs: Sequence[Config]) -> Mapping[str, NDArray[np.float64]]:
        """The same of several, together."""
        return tiled_features(task, configs, self.shared_bytes)

    def toolchain(self) -> Toolchain:
        """Inductor renders, Triton compiles; with ptxas, where Inductor has Triton run another than its own."""
        made_by = toolchain_of("torch", "triton")
        ptxas = current_ptxas()
        if ptxas is None or ptxas == triton_ptxas():
            return made_by
        return Toolchain(tuple(sorted((*made_by.versions, ("ptxas", ptxas_release(ptxas))))))

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Render through Inductor and cross-compile for the task's device."""
        from gemmtune.spaces.inductor.build import build

        return build(self, self.templates[task.problem.op], task, config, folder)

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load the cubin through the CUDA driver."""
        from gemmtune.spaces.inductor.kernel import CudaKernel

        return CudaKernel(artifact, task.problem)


def _as_tiles_see(task: Task) -> Task:
    """One for all tasks whose tiles are judged alike, in the same words."""

    def seen(size: int) -> int:
        return size if size < _LARGE else _LARGE + size % _ALIGNED

    of = task.problem
    return replace(task, problem=replace(of, m=seen(of.m), n=seen(of.n), k=seen(of.k), weight=1.0))
