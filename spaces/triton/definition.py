"""A user's class that describes a Triton kernel to tune: loaded from its file and checked. Imports torch and Triton."""

import hashlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import triton

from gemmtune.engine.consumers.triton.contract import param_text, param_value, python_function, source_sha256, text_of
from gemmtune.engine.io.blame import STOPS, account
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.seams.workload import TensorSource
from gemmtune.spaces.triton.decorators import OPTIONS, decorators_of, parts_of, source_of, values_of
from gemmtune.spaces.triton.making import Make, PlainSource, share_memory, unpassable

_NEEDED = ("kernel", "cases", "arguments", "grid", "outputs", "reference")
_SOURCE_DIGITS = 12
_PASSED = (ProblemError, torch.OutOfMemoryError, *STOPS)
"""Errors of a user's function that are not its failure: less may fit, or somebody ends the program."""
_VALUES = (bool, int, float, str)
_ON_CPU_BYTES, _MOST_LISTED = 2**26, 4096
TODO = "TODO(gemmtune)"
"""Mark of what a person must still fill in of a class that `gemmtune check --draft` wrote."""


class Definition:
    """Kernel of a user's class with its parameters, cases and functions."""

    def __init__(self, user_class: type, file: Path) -> None:
        """Check the class; raises ProblemError if it lacks something, or describes a kernel that cannot be tuned."""
        self.file = file
        self.name = user_class.__qualname__
        if left := [
            line.partition(f"{TODO}: ")[2] for line in source_of(user_class).splitlines() if f"# {TODO}" in line
        ]:
            raise self._error(f"is a draft; fill in, and delete each line {TODO}: {'; '.join(left)}")
        if missing := [name for name in _NEEDED if not hasattr(user_class, name)]:
            raise self._error(f"has no {missing[0]}; needed: {', '.join(_NEEDED)}")
        self._user: Any = self._called("__init__", user_class)
        self.kernel: Any = self._user.kernel
        if python_function(self.kernel) is None or inspect.isfunction(self.kernel):
            raise self._error("kernel is not decorated by triton.jit or triton.autotune")
        try:
            self.decorators = decorators_of(self.kernel)
        except ValueError as error:
            raise self._error(str(error)) from None
        self.jit = self.decorators.jit
        self.argument_names: tuple[str, ...] = tuple(self.jit.arg_names)
        self._defaults = self.decorators.defaults
        self.outputs = self._few("outputs", self._user.outputs)
        if not self.outputs or not all(isinstance(name, str) for name in self.outputs):
            raise self._error("outputs is no list of names of arguments")
        given = getattr(self._user, "tolerance", None)
        self._tolerances = given if isinstance(given, Mapping) else dict.fromkeys(self.outputs, given)
        for name, value in self._tolerances.items():
            if not isinstance(value, int | float | None) or not (value or 0) >= 0:
                raise self._error(f"tolerance has {name!r}: {value!r}, and takes a number from 0 on, or one per output")
        self.zeroed = self.decorators.zeroed
        self.restored = (*self.decorators.restored, *self._few("restore", getattr(self._user, "restore", ())))
        if unknown := sorted({*self.zeroed, *self.restored}.difference(self.argument_names)):
            raise self._error(f"restores {unknown[0]!r}, which is no argument of the kernel")
        self.says_default = hasattr(self._user, "default")
        """Whether the class has a default of its own."""
        self.nearest = str(getattr(self._user, "nearest", ""))
        self.kernel_sha256 = source_sha256(self.kernel)
        configs = values_of(self.decorators.configs)
        self.params = self._params(configs)
        default = getattr(self._user, "default", configs[0] if configs else None)
        self.seeds = tuple(self._config(config) for config in configs)
        self.default = None if default is None else self._config(default)
        told = (self.default, self.seeds, self.decorators.keys, self.zeroed, self.restored)
        self.parts = parts_of(self.decorators, user_class, self.kernel_sha256, repr(told))
        joined = "\n".join(self.parts.values())
        self.source = hashlib.sha256(joined.encode()).hexdigest()[:_SOURCE_DIGITS]
        self.cases = self._cases()

    def tensors(self, sizes: Mapping[str, int], source: TensorSource | None = None, name: str = "") -> dict[str, Any]:
        """Return the launch's arguments by name; without a source they have no memory.

        Raises:
            ProblemError: the class's `arguments` fails, or gives something the kernel does not take.
        """
        make = Make(source or PlainSource(), name)
        found = self._called("arguments", self._user.arguments, dict(sizes), make)
        if not isinstance(found, Mapping):
            raise self._error(f"arguments returned {type(found).__name__}, not a dict by argument name")
        if unknown := sorted(set(found) - set(self.argument_names)):
            raise self._error(f"arguments has {unknown[0]!r}, which the kernel does not take")
        self._require_passable(found)
        if lost := [each for each in self.outputs if not isinstance(found.get(each), torch.Tensor)]:
            raise self._error(f"outputs names {lost[0]!r}, which is no tensor of arguments")
        for each in self.outputs if source is None else ():  # on a device, tensors share memory
            if each not in (*self.zeroed, *self.restored) and not make.has_made_empty(found[each]):
                raise self._error(
                    f"outputs names {each!r}, which is not made by make.empty: if the kernel also reads it, adds to it "
                    f"or leaves a part unwritten, say restore = ({each!r},)"
                )
            aliases = (n for n, x in found.items() if n not in self.outputs and share_memory(x, found[each]))
            if each not in self.restored and (alias := next(aliases, "")):
                raise self._error(f"outputs names {each!r}, whose memory {alias!r} shares: say restore = ({each!r},)")
        written = {each: found[each].clone() for each in self.restored if isinstance(found.get(each), torch.Tensor)}
        return {each: {**found, **written}[each] for each in self.argument_names if each in found}

    def _require_passable(self, found: Mapping[str, object]) -> None:
        """Refuse arguments that neither a launch nor a table can hold, and a launch that lacks one."""
        for name, value in found.items():
            if fault := unpassable(value):
                raise self._error(f"arguments gives {name!r} {fault}")
        derived = {name for name, _ in (*self.decorators.outer, *self.decorators.inner)}
        known = {*found, *self.params, *self._defaults, *derived}
        if lost := [name for name in self.argument_names if name not in known]:
            raise self._error(f"arguments lacks {lost[0]!r}, which the kernel needs")

    @lru_cache(64)  # noqa: B019 (definitions live as long as the process)
    def _tensors_of(self, sizes: tuple[tuple[str, int], ...]) -> dict[str, Any]:
        return self.tensors(dict(sizes))

    def values(self, arguments: Mapping[str, object], config: Mapping[str, object]) -> dict[str, object]:
        """Return everything that a launch passes by name: arguments, the config, and what heuristics derive.

        Raises:
            ProblemError: a heuristic fails.
        """
        given = {**self.derived(arguments), **{name: param_value(value) for name, value in config.items()}}
        for name, function in self.decorators.inner:
            given[name] = self._called(f"the heuristic of {name}", function, dict(given))
        return given

    def derived(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments with what heuristics above the autotuner derive from them; raises like `values`."""
        given = dict(arguments)
        for name, function in self.decorators.outer:
            given[name] = self._called(f"the heuristic of {name}", function, dict(given))
        return given

    def scalars(self, sizes: Mapping[str, int]) -> dict[str, str]:
        """Return every argument of a launch that is no tensor as text, with defaults of those that are left out.

        Raises:
            ProblemError: the class's `arguments` or a heuristic fails.
        """
        given = {**self._defaults, **self.derived(self.tensors(sizes))}
        texts = ((name, text_of(given[name])) for name in self.argument_names if name in given)
        return {name: text for name, text in texts if text is not None and name not in self.params}

    def seeds_of(self, sizes: Mapping[str, int]) -> tuple[dict[str, Any], ...]:
        """Return the autotuner's configs that its `early_config_prune` keeps for a case; raises like `kept`."""
        kept = self._kept(sizes, self.decorators.configs)
        return tuple(s for s, config in zip(self.seeds, self.decorators.configs, strict=True) if config in kept)

    def default_of(self, sizes: Mapping[str, int]) -> dict[str, Any] | None:
        """Return the config that a case runs untuned: the class's, else the first one that the autotuner keeps."""
        if self.says_default or not self.seeds:
            return self.default
        if kept := self.seeds_of(sizes):
            return kept[0]
        raise self._error(
            f"early_config_prune keeps none of the autotuner's configs for {dict(sizes)}: let it return some of those "
            "that it is given, or give the class a `default`"
        )

    def refusal(self, sizes: Mapping[str, int], config: Mapping[str, object]) -> str:
        """Return why the autotuner would not run a config, or ""; raises ProblemError if its pruning fails."""
        parts = self.decorators
        if parts.prune is None and all(each.pre_hook is None for each in parts.configs):
            return ""
        values = {name: param_value(value) for name, value in config.items()}
        options = {name: values[name] for name in OPTIONS if name in values}
        kwargs = {name: value for name, value in values.items() if name not in OPTIONS}
        try:
            hook = parts.hook_of(config)
        except ValueError as error:
            return str(error)
        candidate = triton.Config(kwargs, **options, pre_hook=hook)
        kept = self._kept(sizes, (*parts.configs, candidate))
        return "" if candidate in kept else "the autotuner's early_config_prune drops it"

    def run_hook(self, arguments: Mapping[str, object]) -> None:
        """Run the autotuner's own `pre_hook`, if it has one, as Triton does before a launch that it benchmarks.

        Raises:
            ProblemError: the hook fails.
        """
        if self.decorators.hook is not None:
            self._called("the autotuner's pre_hook", self.decorators.hook, dict(arguments))

    def _kept(self, sizes: Mapping[str, int], configs: Sequence[Any]) -> Sequence[Any]:
        if self.decorators.prune is None:
            return configs
        arguments = self.derived(self._tensors_of(tuple(sizes.items())))
        return self._called("early_config_prune", self.decorators.kept, configs, arguments)  # type: ignore[no-any-return]

    def grid(self, sizes: Mapping[str, int], config: Mapping[str, object]) -> tuple[int, int, int]:
        """Return the blocks to launch along each axis; raises ProblemError if `grid` of the class fails."""
        found = self._called("grid", self._user.grid, dict(sizes), {**OPTIONS, **config})
        blocks = tuple(found) if isinstance(found, Sequence) else (found,)
        if not 1 <= len(blocks) <= 3 or not all(isinstance(each, int) and 0 < each < 2**31 for each in blocks):
            raise self._error(f"grid returned {found!r:.80}, not one to three integers above 0 and below 2^31")
        return (*blocks, 1, 1)[:3]

    def check(self, sizes: Mapping[str, int], config: Mapping[str, object]) -> str:
        """Return why the class rejects a config; empty if it does not."""
        if not hasattr(self._user, "check"):
            return ""
        values = {name: param_value(value) for name, value in config.items()}
        return str(self._called("check", self._user.check, dict(sizes), values) or "")

    def reference(self, sizes: Mapping[str, int], arguments: Mapping[str, object]) -> tuple[torch.Tensor, ...]:
        """Return the right result of each output; raises ProblemError if the class's `reference` fails or lacks one."""
        found = self._called("reference", self._user.reference, dict(sizes), dict(arguments))
        if isinstance(found, torch.Tensor):
            found = {self.outputs[0]: found}
        if not isinstance(found, Mapping) or set(found) != set(self.outputs):
            raise self._error(f"reference does not give one tensor per output, and no other: {', '.join(self.outputs)}")
        for name, values in found.items():
            if values.shape != arguments[name].shape:  # type: ignore[attr-defined] # `tensors` checked it
                raise self._error(f"reference gives {name} the shape {tuple(values.shape)}")
        return tuple(found[name] for name in self.outputs)

    def reference_fault(self, sizes: Mapping[str, int]) -> str:
        """Return why the class's `reference` fails without a GPU; empty if it does not, or nobody can tell.

        It runs without memory, and on the CPU if it needs the values of at most 64 MiB.
        """
        for device in ("meta", "cpu"):
            arguments = self.tensors(sizes, PlainSource(device))
            needed = sum(each.nbytes for each in arguments.values() if isinstance(each, torch.Tensor))
            if device == "cpu" and needed > _ON_CPU_BYTES:
                break
            try:
                self.reference(sizes, arguments)
                break
            except ProblemError as error:
                cause = error.__cause__
                if not isinstance(cause, NotImplementedError) and (device == "cpu" or "meta" not in str(cause)):
                    return str(error)
        return ""

    def tolerance(self, output: str, dtype: torch.dtype, default: float) -> float:
        """Return the largest relative error of an output: the class's, else the default."""
        found = self._tolerances.get(output)
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
        found = {str(name): [*map(param_text, self._few(f"params[{name!r}]", its))] for name, its in given.items()}
        for config in configs:
            for name, value in config.items():
                values = found.setdefault(name, [])
                if value not in values:
                    values.append(value)
        for name in found.keys() & self._defaults.keys():  # which a config may leave out
            if any(name not in config for config in configs):
                found[name].append(param_text(self._defaults[name]))
        for name, values in found.items():
            if name not in (*self.argument_names, *OPTIONS):
                known = f"no argument of the kernel and none of {tuple(OPTIONS)}"
                raise self._error(f"params has {name!r}, which is {known}: leave it out")
            if not values or not all(isinstance(value, _VALUES) for value in values):
                raise self._error(f"params[{name!r}] is no list of numbers, texts, None and types")
            if len({isinstance(value, str) for value in values if value != "None"}) > 1:
                raise self._error(f"params[{name!r}] has numbers and texts, which no table can hold: let all be texts")
        return {name: tuple(dict.fromkeys(values)) for name, values in found.items()}

    def _few(self, what: str, values: Iterable[Any]) -> tuple[Any, ...]:
        """Return what a class lists; an endless list is refused."""
        found = (values,) if isinstance(values, str) else tuple(islice(values, _MOST_LISTED + 1))
        if len(found) > _MOST_LISTED:
            raise self._error(f"{what} lists more than {_MOST_LISTED}: list the few that are worth a build")
        return found

    def _config(self, config: Mapping[str, object]) -> dict[str, Any]:
        """Return a config with a value for every parameter; what it leaves out is the kernel's or Triton's default."""
        left_out = {**self._defaults, **OPTIONS}
        found = {name: param_text(config.get(name, left_out.get(name))) for name in self.params}
        for name, value in {**config, **found}.items():
            if name not in self.params and value != left_out.get(name):
                raise self._error(f"config {dict(config)} has {name!r}, which is not in params: give it there")
            if value not in self.params.get(name, (value,)):
                if name not in config and name not in left_out:
                    raise self._error(f"config {dict(config)} has no {name!r}, which is in params: give it there")
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
            if not 0 < found[str(name)][1] < math.inf:
                raise self._error(f"cases[{name!r}] has weight={case['weight']!r}, which is no number above 0")
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


@lru_cache(64)
def load_definition(file: Path, name: str) -> Definition:
    """Return the class of a file; the file is imported once per process.

    Raises:
        ProblemError: the file cannot be imported, has no such class, or the class describes no kernel.
    """
    user_class = getattr(module_of(file), name, None)
    if not isinstance(user_class, type):
        known = [each for each, it in vars(module_of(file)).items() if isinstance(it, type) and hasattr(it, "kernel")]
        raise ProblemError(f"{file.name} has no class {name}; classes with a kernel: {', '.join(known) or 'none'}")
    try:
        return Definition(user_class, file)
    except _PASSED:
        raise
    except BaseException as error:  # the class may hold anything
        raise ProblemError(f"{name} of {file.name} describes no kernel: {account(error)}") from error


@lru_cache(64)
def module_of(file: Path) -> Any:  # noqa: ANN401 (a user's module)
    """Return a user's file as a module, imported once per process; raises ProblemError if it cannot be imported."""
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
