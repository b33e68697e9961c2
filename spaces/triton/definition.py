"""A user's class that describes a Triton kernel to tune: loaded from its file and checked. Imports torch and Triton."""

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from gemmtune.engine.consumers.triton.contract import python_function, source_sha256
from gemmtune.engine.io.blame import STOPS, account
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.seams.workload import TensorSource
from gemmtune.spaces.triton.making import Make, MetaSource

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Parameters that are options of Triton's compiler instead of arguments of the kernel."""

_NEEDED = ("kernel", "cases", "arguments", "grid", "outputs", "reference")
_SOURCE_DIGITS = 12
_PASSED = (ProblemError, torch.OutOfMemoryError, *STOPS)
"""Errors of a user's function that are not its failure: less may fit, or somebody ends the program."""
_VALUES = (bool, int, float, str)


class Definition:
    """Kernel of a user's class with its parameters, cases and functions."""

    def __init__(self, user_class: type, file: Path) -> None:
        """Check the class.

        Raises:
            ProblemError: the class lacks something, or describes a kernel that cannot be tuned.
        """
        self.file = file
        self.name = user_class.__qualname__
        if missing := [name for name in _NEEDED if not hasattr(user_class, name)]:
            raise self._error(f"has no {missing[0]}; needed: {', '.join(_NEEDED)}")
        self._user: Any = self._called("__init__", user_class)
        self.kernel: Any = self._user.kernel
        if python_function(self.kernel) is None or inspect.isfunction(self.kernel):
            raise self._error("kernel is not decorated by triton.jit or triton.autotune")
        self.jit, self._heuristics, configs = _layers(self)
        self.argument_names: tuple[str, ...] = tuple(self.jit.arg_names)
        self.outputs = tuple(self._user.outputs)
        if not all(isinstance(name, str) for name in self.outputs):
            raise self._error("outputs is no list of names of arguments")
        self.nearest = str(getattr(self._user, "nearest", ""))
        self.kernel_sha256 = source_sha256(self.kernel)
        parts = [self.kernel_sha256, *(inspect.getsource(getattr(user_class, name)) for name in ("arguments", "grid"))]
        self.source = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_SOURCE_DIGITS]
        self.params = self._params(configs)
        default = getattr(self._user, "default", configs[0] if configs else None)
        self.seeds = tuple(self._config(config) for config in configs)
        self.default = None if default is None else self._config(default)
        self.cases = self._cases()

    def tensors(self, sizes: Mapping[str, int], source: TensorSource | None = None, name: str = "") -> dict[str, Any]:
        """Return the launch's arguments by name; without a source they have no memory.

        Raises:
            ProblemError: the class's `arguments` fails, or gives something the kernel does not take.
        """
        make = Make(source or MetaSource(), name)
        found = self._called("arguments", self._user.arguments, dict(sizes), make)
        if not isinstance(found, Mapping):
            raise self._error(f"arguments returned {type(found).__name__}, not a dict by argument name")
        if unknown := sorted(set(found) - set(self.argument_names)):
            raise self._error(f"arguments has {unknown[0]!r}, which the kernel does not take")
        if lost := [each for each in self.outputs if not isinstance(found.get(each), torch.Tensor)]:
            raise self._error(f"outputs names {lost[0]!r}, which is no tensor of arguments")
        return {each: found[each] for each in self.argument_names if each in found}

    def values(self, arguments: Mapping[str, object], config: Mapping[str, object]) -> dict[str, object]:
        """Return everything that a launch passes by name: arguments, the config, and what heuristics derive."""
        given = {**arguments, **config}
        for name, function in self._heuristics:
            given[name] = function(given)
        return given

    def grid(self, sizes: Mapping[str, int], config: Mapping[str, object]) -> tuple[int, int, int]:
        """Return the blocks to launch along each axis.

        Raises:
            ProblemError: the class's `grid` fails, or gives no blocks.
        """
        found = self._called("grid", self._user.grid, dict(sizes), dict(config))
        blocks = tuple(found) if isinstance(found, Sequence) else (found,)
        if not 1 <= len(blocks) <= 3 or not all(isinstance(each, int) and 0 < each < 2**31 for each in blocks):
            raise self._error("grid returned something else than one to three integers above 0 and below 2^31")
        x, y, z = (*blocks, 1, 1)[:3]
        return x, y, z

    def check(self, sizes: Mapping[str, int], config: Mapping[str, object]) -> str:
        """Return why the class rejects a config; empty if it does not."""
        if not hasattr(self._user, "check"):
            return ""
        return str(self._called("check", self._user.check, dict(sizes), dict(config)) or "")

    def reference(self, sizes: Mapping[str, int], arguments: Mapping[str, object]) -> tuple[torch.Tensor, ...]:
        """Return the right result of each output.

        Raises:
            ProblemError: the class's `reference` fails, or lacks an output.
        """
        found = self._called("reference", self._user.reference, dict(sizes), dict(arguments))
        if isinstance(found, torch.Tensor):
            found = {self.outputs[0]: found}
        if not isinstance(found, Mapping) or set(found) != set(self.outputs):
            raise self._error(f"reference gives no tensor for each of the outputs {', '.join(self.outputs)}")
        for name, values in found.items():
            if values.shape != arguments[name].shape:  # type: ignore[attr-defined] # `tensors` checked it
                raise self._error(f"reference gives {name} the shape {tuple(values.shape)}")
        return tuple(found[name] for name in self.outputs)

    def tolerance(self, output: str, dtype: torch.dtype, default: float) -> float:
        """Return the largest relative error of an output: the class's, else the default."""
        given = getattr(self._user, "tolerance", None)
        found = given.get(output) if isinstance(given, Mapping) else given
        return default if found is None else float(found)

    def number(self, name: str, sizes: Mapping[str, int]) -> int | None:
        """Return what the class's `flops` or `bytes` says about a case; None without such a method."""
        if not hasattr(self._user, name):
            return None
        found = self._called(name, getattr(self._user, name), dict(sizes))
        if not isinstance(found, int) or not 0 <= found < 2**63:
            raise self._error(f"{name} returned something else than an integer from 0 on, of 63 bits")
        return found

    def _params(self, configs: Sequence[Mapping[str, object]]) -> dict[str, tuple[Any, ...]]:
        """Return the parameters, each with the class's values and those of the autotuner's configs."""
        given = getattr(self._user, "params", {})
        if not isinstance(given, Mapping) or not (given or configs):
            raise self._error("params is no dict of values by name, and the kernel has no autotuner's configs")
        found = {str(name): list(values) for name, values in given.items()}
        for config in configs:
            for name, value in config.items():
                values = found.setdefault(name, [])
                if value not in values:
                    values.append(value)
        for name, values in found.items():
            if name not in (*self.argument_names, *OPTIONS):
                raise self._error(f"params has {name!r}, which is no argument of the kernel and none of {OPTIONS}")
            if not values or not all(isinstance(value, _VALUES) for value in values):
                raise self._error(f"params[{name!r}] is no list of numbers and texts")
        return {name: tuple(dict.fromkeys(values)) for name, values in found.items()}

    def _config(self, config: Mapping[str, object]) -> dict[str, Any]:
        """Return a config with a value for every parameter; an option that it leaves out is Triton's own default."""
        defaults = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}
        found = {name: config.get(name, defaults.get(name)) for name in self.params}
        for name, value in found.items():
            if value not in self.params[name]:
                raise self._error(f"a config has {name}={value!r}, which is none of params: {self.params[name]}")
        return found

    def _cases(self) -> dict[str, tuple[dict[str, int], float]]:
        """Return sizes and weight of each case by its name."""
        cases = self._user.cases
        if not isinstance(cases, Mapping) or not cases:
            raise self._error("cases is no dict of sizes by name")
        found: dict[str, tuple[dict[str, int], float]] = {}
        for name, case in cases.items():
            if not isinstance(case, Mapping):
                raise self._error(f"cases[{name!r}] is no dict of sizes")
            sizes = {str(size): value for size, value in case.items() if size != "weight"}
            if not sizes or not all(type(value) is int and value > 0 for value in sizes.values()):
                raise self._error(f"cases[{name!r}] has a size that is no integer above 0")
            if self.nearest and self.nearest not in sizes:
                raise self._error(f"nearest={self.nearest!r} is no size of cases[{name!r}]")
            found[str(name)] = sizes, float(case.get("weight", 1.0))
        return found

    def _called(self, what: str, function: Any, *arguments: object) -> Any:  # noqa: ANN401 (a user's function)
        try:
            return function(*arguments)
        except _PASSED:
            raise
        except BaseException as error:
            raise self._error(f"{what} failed: {account(error)}") from error

    def _error(self, text: str) -> ProblemError:
        return ProblemError(f"{self.name} of {self.file.name}: {text}")


def _layers(definition: Definition) -> tuple[Any, tuple[tuple[str, Any], ...], list[dict[str, Any]]]:
    """Return the kernel below its decorators, the values that heuristics derive, and the autotuner's configs."""
    heuristics: list[tuple[str, Any]] = []
    configs: list[dict[str, Any]] = []
    kernel = definition.kernel
    while not inspect.isfunction(kernel.fn):
        if hasattr(kernel, "configs"):
            for config in kernel.configs:
                if config.pre_hook is not None:
                    raise definition._error("a config of its autotuner has a pre_hook, which gemmtune does not run")
            if getattr(kernel, "reset_to_zero", ()) or getattr(kernel, "restore_value", ()):
                raise definition._error("its autotuner resets or restores arguments: let the kernel write its outputs")
            given = [{**config.kwargs, **{n: getattr(config, n, None) for n in OPTIONS}} for config in kernel.configs]
            configs = [{name: value for name, value in each.items() if value is not None} for each in given]
        if hasattr(kernel, "values"):
            heuristics += kernel.values.items()
        kernel = kernel.fn
    if all(config.get("num_ctas", 1) == 1 for config in configs):
        configs = [{name: value for name, value in config.items() if name != "num_ctas"} for config in configs]
    return kernel, tuple(heuristics), configs


@lru_cache(64)
def load_definition(file: Path, name: str) -> Definition:
    """Return the class of a file; the file is imported once per process.

    Raises:
        ProblemError: the file cannot be imported, has no such class, or the class describes no kernel.
    """
    user_class = getattr(_module(file), name, None)
    if not isinstance(user_class, type):
        known = [
            each for each, value in vars(_module(file)).items() if isinstance(value, type) and hasattr(value, "kernel")
        ]
        raise ProblemError(f"{file.name} has no class {name}; classes with a kernel: {', '.join(known) or 'none'}")
    try:
        return Definition(user_class, file)
    except _PASSED:
        raise
    except BaseException as error:  # the class may hold anything
        raise ProblemError(f"{name} of {file.name} describes no kernel: {account(error)}") from error


@lru_cache(64)
def _module(file: Path) -> Any:  # noqa: ANN401 (a user's module)
    if not file.is_file():
        raise ProblemError(f"no file {file} to take a kernel from")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))  # for what the file imports from beside it
    digest = hashlib.sha256(str(file).encode()).hexdigest()[:_SOURCE_DIGITS]
    spec = importlib.util.spec_from_file_location(f"{file.stem}_{digest}", file)
    if spec is None or spec.loader is None:
        raise ProblemError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[spec.name]
        if isinstance(error, STOPS):
            raise
        raise ProblemError(f"{file} cannot be imported: {account(error)}") from error
    return module
