"""Contract of a search space: a family of kernels with its parameters, constraints, build and loading."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from gemmtune.engine.records.artifact import Artifact, KernelCode, Toolchain
from gemmtune.engine.records.config import Config, Param, spanned
from gemmtune.engine.records.errors import GemmtuneError
from gemmtune.engine.records.search import Guess, Prior
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.kernel_call import Argument

if TYPE_CHECKING:  # the names of plug-ins are listed without numpy
    import numpy as np
    from numpy.typing import NDArray


class BuildError(GemmtuneError):
    """Config that cannot be built; the message is the reason in the database and the report."""


class Launchable(Protocol):
    """Kernel that is loaded on the current device."""

    def __call__(self, *arguments: Any) -> None:  # noqa: ANN401 (each kind of workload has its own)
        """Enqueue one launch on torch's current stream, without waiting.

        Args:
            arguments: `Operands.arguments` of the workload. For a GEMM: A of shape (m, k), B of shape (k, n) and the
                output (m, n), each with a batch dimension first for bmm and with the task's dtype and strides; then the
                bias of an addmm with the output's dtype, shape (n,) or (m, n). An epilogue may have further outputs
                behind the first, and has its operands at the end: see `Problem.argument_names`.
        """

    def close(self) -> None:
        """Free the kernel's resources on the device; it is not called afterwards."""


@runtime_checkable
class Completable(Protocol):
    """Kernel whose outputs a kernel completes that is equal for all configs, and not timed."""

    def complete(self, *arguments: Any) -> None:  # noqa: ANN401 (as of a launch)
        """Enqueue what completes the outputs of a launch; a check calls it behind one, with equal arguments."""


class Space(ABC):
    """Family of kernels that differ in their parameters.

    `params`, `check`, `seeds`, `prior` and `features` need no optional package and no GPU. `build` runs in a builder
    process on a CPU; `load` and the launchable run in the worker process that owns the GPU. An instance is stateless
    and picklable: its answers depend only on the arguments.

    A space whose answers are in a user's code raises `UnknownDefinition` where that code was not read. Reports and
    replays then go on without params and seeds.

    Example:
        >>> import gemmtune as gt
        >>> from gemmtune.engine.records import catalogue, task
        >>> from gemmtune.engine.seams import registry
        >>> mm = task.Task(gt.Problem.parse("16x4096x4096"), catalogue.device("H200"), "triton_mm")
        >>> bool(registry.space("triton_mm").check(mm, registry.space("triton_mm").seeds(mm)[0]))
        True
    """

    workload: ClassVar[str] = "gemm"
    """Kind of workload that the kernels serve; the methods get tasks of this kind alone."""
    preload: ClassVar[tuple[str, ...]] = ()
    """Modules that a builder process imports once, before its first build."""

    examples: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Pairs of a workload's name and a device's, which the conformance checks use; by default many GEMMs."""

    needs: ClassVar[tuple[str, ...]] = ()
    """Packages that run the kernels in production, beside torch and what it brings."""

    seeds_first: ClassVar[bool] = False
    """Whether programs choose among the seeds themselves, so that a search evaluates them all if its budget allows."""

    compiled_packages: ClassVar[tuple[str, ...]] = ()
    """Packages whose sources are compiled into the binaries; their licences go with a table that holds these."""

    launch_params: ClassVar[tuple[str, ...]] = ()
    """Integer parameters that a launch takes from `Artifact.launch`: configs that differ in these alone share a binary.
    `artifact_key` takes a config without them, too."""

    def advice(self, task: Task) -> str:
        """Return what a program changes to run the kernel, where no exporter serves it; by default nothing."""
        return ""

    @abstractmethod
    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters for a task, with every value worth trying."""

    @abstractmethod
    def check(self, task: Task, config: Config) -> Verdict:
        """Decide whether a config can be right and fast for a task; each constraint is stated only here."""

    @abstractmethod
    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return known good configs that pass `check`, best guess first; may be empty."""

    def prior(self, task: Task) -> Prior:
        """Return an analytic model's time for each config that passes `check`; by default there is no model.

        Without an installed model that covers the GPU, the prior has no times and a reason. One version of the model
        gives equal priors for equal tasks.
        """
        return Prior(reason=f"space {task.space} has no analytic model")

    def guess(self, task: Task, configs: Sequence[Config]) -> Guess | None:
        """Return what other kernels' measurements let expect of configs that pass `check`; by default nothing.

        A search without features and history begins with it.
        """
        return None

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """Return numbers by name that describe a config that passes `check` on a task; by default none.

        Samplers compare tasks by these numbers: waves, bytes per flop, logarithms where ratios matter. The names are
        equal for every task and config of the space.
        """
        return {}

    def features_of(self, task: Task, configs: Sequence[Config]) -> Mapping[str, NDArray[np.float64]]:
        """Return the `features` of one or more configs by name, as arrays of shape (configs,).

        The default calls `features` per config; a space with large feasible sets may compute them together.
        """
        import numpy as np

        rows = [self.features(task, config) for config in configs]
        return {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}

    @abstractmethod
    def toolchain(self) -> Toolchain:
        """Return the installed versions that a binary depends on, without importing the packages.

        Raises:
            ToolchainMissing: a package is not installed; the message names the extra to install.
        """

    @abstractmethod
    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Render and compile a config for the task's device, without a GPU, and write the binary to `folder`.

        Every task and config has a file of its own, even if they share a key: the file is deleted once it was measured.

        Raises:
            BuildError: the config cannot be built; the message is the reason.
        """

    @abstractmethod
    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load a built kernel on the current device; any exception means that it cannot run there."""

    def config_source(self, task: Task, config: Config) -> str:
        """Return a config as source to paste, without building it; by default as a table has it."""
        return config.json

    def code(self, task: Task, config: Config, folder: Path) -> KernelCode:
        """Return the kernel of a config as text, built as `build` does; by default nothing.

        Raises:
            BuildError: the config cannot be built.
        """
        return KernelCode()

    def deployed_call(self, artifact: Artifact, task: Task) -> list[Argument] | None:
        """Return the arguments of the binary's function `kernel`, which a loader calls through TVM-FFI.

        By default None: only the space itself can launch its kernels, or the consumer makes them itself.
        """
        return None

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return a key that is equal for tasks and configs that may share one binary; by default none do."""
        return f"{task.key}/{config.digest}"

    def summation(self, task: Task, config: Config) -> str:
        """Return the order in which a config's kernel adds the products of each element, as text.

        Kernels of equal text give equal rows equal bits: at every range size, at every place among the rows, and
        whatever the other rows hold. The text is empty for a kernel that may break this, as those do that split the
        sum by what the GPU has idle; by default all may.
        """
        return ""

    def points(self, task: Task) -> Iterator[Config]:
        """Yield every config of the space in a fixed order, feasible or not; by default those that `params` span."""
        yield from spanned(self.params(task))
