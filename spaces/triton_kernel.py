"""Spaces of a user's own Triton kernel: the values of its parameters, and the config that it runs with untuned."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from gemmtune.engine.records.artifact import Artifact, KernelCode, Toolchain
from gemmtune.engine.records.config import Config, Param, Value
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.search import Guess
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import BuildError, Launchable, Space
from gemmtune.engine.toolchain.versions import triton_toolchain
from gemmtune.spaces.common.one_config import OneConfigSpace
from gemmtune.spaces.common.triton_config import triton_config
from gemmtune.spaces.triton.kind import definition_here, definition_of

_ALIGNED = 16  # divisor of an integer argument that Triton compiles a kernel of its own for


class TritonKernelSpace(Space):
    """Parameters of the user's class, with the configs of its autotuner as seeds."""

    workload: ClassVar[str] = "triton"
    preload: ClassVar[tuple[str, ...]] = ("gemmtune.spaces.triton.preload",)
    seeds_first: ClassVar[bool] = True

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the class's parameters, with its values and those of the autotuner's configs."""
        return tuple(_param(name, values) for name, values in definition_of(task.problem).params.items())

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject a config for the reason that the class gives, or that the kernel's autotuner would not run it."""
        definition, sizes = definition_of(task.problem), task.problem.sizes
        if reason := definition.check(sizes, config):
            return Verdict.no("check", reason)
        reason = definition.refusal(sizes, config)
        return Verdict.no("autotuner", reason) if reason else Verdict.yes()

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return the default and the configs that the autotuner keeps, as far as they pass the class's check."""
        definition, sizes = definition_of(task.problem), task.problem.sizes
        default = definition.default_of(sizes)
        configs = [*([] if default is None else [default]), *definition.seeds_of(sizes)]
        return tuple(config for config in dict.fromkeys(map(Config, configs)) if self.check(task, config))

    def guess(self, task: Task, configs: Sequence[Config]) -> Guess | None:
        """Return what sweeps of public kernels let expect of the configs; None if the class cannot say its grid."""
        from gemmtune.spaces.triton.guess import guess

        return guess(task, configs)

    def toolchain(self) -> Toolchain:
        """Return the version of Triton, and what changes its kernels."""
        return triton_toolchain("torch")

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return a key of the kernel, the config, and what Triton compiles in of the arguments."""
        definition, values = definition_of(task.problem), self._values(task, config)
        given = definition.values(definition.tensors(task.problem.sizes), values)
        constants = {param.name for param in definition.jit.params if param.is_constexpr} | values.keys()
        parts = (f"{name}={value!r}" if name in constants else _compiled_in(value) for name, value in given.items())
        return f"{task.device.arch}/{definition.name}@{task.problem.described_by[1]}/{';'.join(parts)}"

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Compile the kernel for the task's device."""
        from gemmtune.spaces.triton.build import build

        try:
            return build(self, task, config, self._values(task, config), definition_here(task.problem), folder)
        except ProblemError as error:
            raise BuildError(str(error)) from error

    def config_source(self, task: Task, config: Config) -> str:
        """Return what a config stands for, as Triton's source."""
        return triton_config(self._values(task, config))

    def code(self, task: Task, config: Config, folder: Path) -> KernelCode:
        """Return a program that launches the class's kernel, with its PTX."""
        from gemmtune.spaces.triton.script import script_of
        from gemmtune.spaces.triton_source.code import triton_code

        script = script_of(task, self._values(task, config), definition_of(task.problem))
        return triton_code(self, task, config, folder, script)

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load the cubin through the CUDA driver."""
        from gemmtune.spaces.triton.launch import load

        values = Config.from_json(str(dict(artifact.launch)["config"]))  # of any task and space that share the binary
        return load(artifact, task, values, definition_here(task.problem))

    def _values(self, task: Task, config: Config) -> Mapping[str, Value]:
        """Return the values that a config stands for."""
        return config


class TritonDefaultSpace(OneConfigSpace, TritonKernelSpace):
    """One config: what the user runs untuned, the class's `default` or the first config of its autotuner."""

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject a class that says no default."""
        values = self._values(task, config)
        if not values:
            return Verdict.no("default", "the class has no `default`, and its kernel no autotuner's configs")
        reason = definition_of(task.problem).check(task.problem.sizes, values)
        return Verdict.no("check", reason) if reason else Verdict.yes()

    def _values(self, task: Task, config: Config) -> Mapping[str, Value]:
        return Config.from_json(task.problem.to_fields()["default"] or "{}")


def _param(name: str, values: tuple[Value, ...]) -> Param:
    """Return a parameter, ascending if all its values are numbers."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return Param(name, tuple(sorted(numbers))) if len(numbers) == len(values) else Param(name, values, ordered=False)


def _compiled_in(value: object) -> str:
    """Return what Triton specialises a kernel on: the type, and for an integer 1 and whether 16 divides it."""
    if isinstance(value, bool) or not isinstance(value, int):
        start = getattr(value, "storage_offset", int)() * getattr(value, "itemsize", 1)
        dtype = str(getattr(value, "dtype", None) or type(value).__name__)
        return dtype if start % _ALIGNED == 0 else f"{dtype} unaligned"
    return "1" if value == 1 else f"int{64 if abs(value) >= 2**31 else 32}{'' if value % _ALIGNED else ' aligned'}"
