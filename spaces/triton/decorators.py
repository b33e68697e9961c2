"""Decorators of a user's Triton kernel: what they add to a launch, and what its functions reach. Imports Triton."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import _lru_cache_wrapper, cache, partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from triton.runtime import driver

from gemmtune.engine.consumers.triton.contract import (
    autotuner_of,
    constant_text,
    defaults_of,
    hook_of,
    is_others,
    layers,
    param_text,
    param_value,
    twin_of,
)

OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}
"""Parameters that are options of Triton's compiler instead of arguments of the kernel, with Triton's defaults."""

_Derived = tuple[tuple[str, Callable[[Mapping[str, object]], object]], ...]

_JIT_OPTIONS = ("debug", "noinline", "do_not_specialize", "do_not_specialize_on_alignment")
_TOLD = {"kernel", "cases", "params", "default", "outputs", "restore", "tolerance", "nearest"}
"""Attributes of a class that a case tells in fields of their own, or that no launch depends on."""


@dataclass(frozen=True)
class Decorators:
    """Parts of a decorated kernel."""

    jit: Any
    """Kernel below its decorators, a `JITFunction`."""
    outer: _Derived
    """Values that heuristics derive above the autotuner, from the arguments alone."""
    inner: _Derived
    """Values that heuristics derive below the autotuner, from the arguments and the config."""
    configs: tuple[Any, ...] = ()
    """Configs of the autotuner, as `triton.Config`."""
    keys: tuple[str, ...] | None = None
    """Names in the autotuner's key; None without an autotuner."""
    prune: Callable[..., Sequence[Any]] | None = None
    """Autotuner's `early_config_prune`, which returns the configs to keep; None without one."""
    zeroed: tuple[str, ...] = ()
    """Arguments that the autotuner's `reset_to_zero` names."""
    restored: tuple[str, ...] = ()
    """Arguments that the autotuner's `restore_value` names."""
    hook: Callable[..., object] | None = None
    """Autotuner's own `pre_hook`, which Triton calls before the launches that it benchmarks."""

    @property
    def defaults(self) -> dict[str, Any]:
        """Defaults of the kernel's arguments by name."""
        return defaults_of(self.jit)

    def hook_of(self, config: Mapping[str, object]) -> Callable[..., object] | None:
        """Return the `pre_hook` that a config's launches run first; raises ValueError where the list does not say."""
        kwargs = {name: param_value(value) for name, value in config.items() if name not in OPTIONS}
        return hook_of(self.configs, kwargs, self.defaults)  # type: ignore[no-any-return]

    def kept(self, configs: Sequence[Any], arguments: Mapping[str, object]) -> Sequence[Any]:
        """Return the configs that `early_config_prune` keeps for a launch; it is given what its signature takes."""
        if self.prune is None:
            return configs
        taken = inspect.signature(self.prune).parameters
        every = any(each.kind is each.VAR_KEYWORD for each in taken.values())
        others = dict(pair for pair in arguments.items() if (every or pair[0] in taken) and pair[0] not in [*taken][:2])
        _remember_properties()
        found = [*self.prune([twin_of(each) for each in configs], dict(arguments), **others)]
        if {each.pre_hook for each in found} - {None, *(each.pre_hook for each in configs)}:
            raise ValueError("it gives a config a pre_hook that the autotuner's configs lack: give it to them")
        return [each for each in configs if each in found]


def _remember_properties() -> None:
    """Let Triton ask a GPU once for its properties: prunings ask per config, and an answer takes a millisecond."""
    with suppress(RuntimeError):  # there is no GPU
        utils = driver.active.utils
        if not isinstance(utils.get_device_properties, _lru_cache_wrapper):
            utils.get_device_properties = cache(utils.get_device_properties)


def decorators_of(kernel: Any) -> Decorators:  # noqa: ANN401 (Triton has no types)
    """Return the parts of a decorated kernel; raises ValueError if a decorator does what gemmtune does not."""
    *above, jit = layers(kernel)
    tuner = autotuner_of(kernel)
    at = 0 if tuner is None else next(number for number, layer in enumerate(above) if layer is tuner)
    outer, inner = _derived(above[:at]), _derived(above[at:])
    if tuner is None:
        return Decorators(jit, outer, inner)
    before = getattr(tuner, "before_gemmtune", {})  # a table may be loaded in this process
    configs = tuple(before.get("configs", tuner.configs))
    if getattr(tuner, "user_defined_post_hook", False):
        raise ValueError("its autotuner has a post_hook, which gemmtune does not run: give the kernel below it, `.fn`")
    if any(getattr(config, "ir_override", None) for config in configs):
        raise ValueError("a config of its autotuner has ir_override, which no table can hold: leave it out")
    return Decorators(
        jit,
        outer,
        inner,
        configs,
        tuple(tuner.keys),
        before.get("prune", getattr(tuner, "early_config_prune", None)),
        tuple(getattr(tuner, "reset_to_zero", ())),
        tuple(getattr(tuner, "restore_value", ())),
        tuner.pre_hook if getattr(tuner, "user_defined_pre_hook", False) else None,
    )


def values_of(configs: Sequence[Any]) -> list[dict[str, Any]]:
    """Return configs as values by param; an option is a param where a config says more than Triton's default.

    `num_warps` and `num_stages` are always params.
    """
    said = [{name: getattr(config, name, default) for name, default in OPTIONS.items()} for config in configs]
    options = [
        name
        for name, default in OPTIONS.items()
        if name in ("num_warps", "num_stages") or any(each[name] != default for each in said)
    ]
    return [
        {name: param_text(value) for name, value in {**config.kwargs, **{n: its[n] for n in options}}.items()}
        for config, its in zip(configs, said, strict=True)
    ]


def source_of(function: Any) -> str:  # noqa: ANN401 (a user's function)
    """Return the source of a function, or what stands for it where there is none."""
    if isinstance(function, partial):
        return f"{source_of(function.func)} of {constant_text([*function.args, *function.keywords.items()])}"
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{type(function).__qualname__} {getattr(function, '__qualname__', '')}"


def _derived(above: Sequence[Any]) -> _Derived:
    return tuple(
        pair for layer in above if isinstance(getattr(layer, "values", None), dict) for pair in layer.values.items()
    )


def parts_of(parts: Decorators, user_class: Any, kernel_sha256: str, told: str) -> dict[str, str]:  # noqa: ANN401
    """Return what makes another kernel of an edited class, by a word for messages.

    Args:
        parts: decorators of its kernel.
        user_class: the class.
        kernel_sha256: hash of what Triton compiles of the kernel.
        told: what the autotuner and the class say of configs.
    """
    derived = (*parts.outer, *parts.inner)
    hooks = dict.fromkeys((*(config.pre_hook for config in parts.configs), parts.hook, parts.prune))
    names = [(f"{each.kwargs}", getattr(each.pre_hook, "__qualname__", "none")) for each in parts.configs]
    owners = sorted({f"{kwargs}: {hook}" for kwargs, hook in names if len({name for _, name in names}) > 1})
    made = [each for each in (user_class.__init__,) if isinstance(each, FunctionType)]
    launch = _reached((user_class.arguments, user_class.grid, *made, *hooks), user_class)
    options = {name: each for name in _JIT_OPTIONS if (each := getattr(parts.jit, name, None))}
    heuristics = [f"{name} {source_of(function)}" for name, function in derived]
    heuristics += filter(None, [_reached([function for _, function in derived], user_class)])
    found = {
        "kernel": kernel_sha256,
        "arguments": "".join([inspect.getsource(user_class.arguments), *map(source_of, made)]),
        "grid": inspect.getsource(user_class.grid),
        "heuristics": "\n".join(heuristics),
        "hooks": "\n".join([*(source_of(each) for each in hooks if each is not None), *owners]),
        "configs": told,
    }
    return {**found, **{name: str(each) for name, each in (("reached", launch), ("options", options)) if each}}


def _reached(functions: Iterable[Any], owner: type) -> str:
    """Return sources of functions and values of constants that functions reach by name; empty if there are none.

    Args:
        functions: functions of the user's file; their own sources are left out.
        owner: class whose attributes they reach through `self`.
    """
    known = (each if isinstance(each, FunctionType) else _function_of(each) for each in functions)
    first = {each for each in known if each is not None}
    waiting, found, seen = [*first], set[str](), set[Any]()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        if function not in first:
            found.add(source_of(function))
        for name, value in _values(function, owner):
            text = constant_text(value)
            if text is not None:
                found.add(f"{function.__qualname__} {name}={text}")
            elif (below := _function_of(value)) is not None and not is_others(below.__module__):
                waiting.append(below)
    return "\n".join(sorted(found))


def _function_of(value: Any) -> FunctionType | None:  # noqa: ANN401 (anything in a user's file)
    """Return the function of a method, property, or cached, wrapped or partial function; None of anything else."""
    for kind, name in ((partial, "func"), (staticmethod | classmethod | MethodType, "__func__"), (property, "fget")):
        value = getattr(value, name) if isinstance(value, kind) else value
    if isinstance(value, FunctionType | _lru_cache_wrapper):
        value = inspect.unwrap(value)
    return value if isinstance(value, FunctionType) else None


def _values(function: FunctionType, owner: type) -> Iterator[tuple[str, Any]]:
    """Yield what names in a function may stand for: closed-over values, globals, and attributes of these and `self`."""
    names = sorted(set(_names(function.__code__)))
    closed = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    filled = {name: cell for name, cell in closed.items() if cell != CellType() and name != "__class__"}
    yield from ((name, cell.cell_contents) for name, cell in filled.items())
    spaces: list[Mapping[str, Any]] = [function.__globals__]
    spaces += ({k: v for k, v in vars(base).items() if k not in _TOLD} for base in owner.__mro__[:-1])
    seen = set[int]()
    for space in spaces:  # which grow by the user's modules, classes and objects that names stand for
        for name, value in [(name, space[name]) for name in names if name in space and name[:2] != "__"]:
            yield name, value
            kind = value if isinstance(value, type) else type(value)
            users = not is_others(value.__name__ if isinstance(value, ModuleType) else kind.__module__)
            if id(value) not in seen and (users or kind is SimpleNamespace):
                seen.add(id(value))
                spaces += (vars(each) for each in (value, *kind.__mro__) if hasattr(each, "__dict__"))


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes in a function and in the functions inside it."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)
