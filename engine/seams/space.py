"""A search space: the parameters of one family of kernels, and how one is built and loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.prior import Prior
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict

if TYPE_CHECKING:
    import torch

__all__ = ["BuildError", "Launchable", "Space"]


class BuildError(Exception):
    """A config cannot be built; the message is the reason that reaches the database and the report."""


class Launchable(Protocol):
    """A loaded kernel."""

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """Enqueue out = A @ B, of addmm bias + A @ B, on torch's current stream; returns without waiting.

        A is m×k, B is k×n, out is m×n, with the task's dtypes and strides; of bmm each behind a dimension of the batch.
        The bias has the output's dtype, and n or m×n elements; a kernel that serves no addmm is never given one.
        """

    def close(self) -> None:
        """Free what the kernel holds on the device; it is not called again."""


class Space(ABC):
    """A family of kernels.

    `params`, `check`, `seeds`, `prior` and `features` need no optional package and no GPU. `build` runs in a builder
    process on a CPU; `load` and the launchable run in the worker process that owns the GPU. An instance is stateless
    and picklable.

    Example:
        >>> import gemmtune as gt
        >>> from gemmtune.engine.records import catalogue
        >>> from gemmtune.engine.records.task import Task
        >>> from gemmtune.engine.seams import registry
        >>> space = registry.space("triton_mm")
        >>> task = Task(gt.Problem.parse("16x4096x4096:bf16:nt"), catalogue.device("H200"), "triton_mm")
        >>> bool(space.check(task, space.seeds(task)[0]))
        True
    """

    preload: ClassVar[tuple[str, ...]] = ()
    """Modules a builder process imports once, before its first build."""

    @abstractmethod
    def params(self, task: Task) -> tuple[Param, ...]:
        """The parameters for this task, with every value worth trying."""

    @abstractmethod
    def check(self, task: Task, config: Config) -> Verdict:
        """Whether the config can be right and fast here. The only statement of each constraint, with its reason."""

    @abstractmethod
    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Known good starting points that pass `check`, best guess first; may be empty."""

    def prior(self, task: Task) -> Prior:
        """What an analytic model expects of each config that passes `check`; by default there is no model.

        It orders and drops candidates before they are built, and ranks them where there is no GPU to time them on. It
        fails open: where the model is not installed, does not know the GPU or breaks, there are no times, and the
        reason says why. The same task gives the same prior as long as the model's version is the same.
        """
        return Prior(reason=f"no analytic model of the space {task.space} is known")

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """What a config that passes `check` means on this task, as numbers a search can learn from; by default none.

        Quantities that behave alike on other tasks (waves, bytes a flop), in logarithms where ratios matter: what one
        task teaches is carried to another through them. The same names for every task and config of the space.
        """
        return {}

    def features_of(self, task: Task, configs: Sequence[Config]) -> Mapping[str, NDArray[np.float64]]:
        """The `features` of several configs, at least one, by name; one array for each, in the configs' order.

        A space whose search sets are large computes them together; by default they are asked for one by one.
        """
        rows = [self.features(task, config) for config in configs]
        return {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}

    @abstractmethod
    def toolchain(self) -> Toolchain:
        """The installed versions a binary depends on, without importing them.

        Raises:
            ToolchainMissing: a package is not installed; the message names the extra that brings it.
        """

    @abstractmethod
    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Render and compile for the task's device, without a GPU; leave the binary in `folder`.

        In a file of the task's and config's own, also where others share its key: it is deleted once it was measured.

        Raises:
            BuildError: the config cannot be built, with the reason.
        """

    @abstractmethod
    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load a built kernel on the current device; any exception means it cannot run there."""

    def artifact_key(self, task: Task, config: Config) -> str:
        """Equal for tasks and configs that may share one binary; by default nothing is shared."""
        return f"{task.key}/{config.digest}"

    def points(self, task: Task) -> Iterator[Config]:
        """Every config of the space, feasible or not, in a fixed order; by default the product of the params."""
        params = self.params(task)
        for values in product(*(p.values for p in params)):
            yield Config({p.name: value for p, value in zip(params, values, strict=True)})
