"""Decorators of a user's Triton kernel: what its heuristics and its autotuner add to a launch. Imports Triton."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmtune.engine.consumers.triton.contract import hook_of, is_autotuner, layers, param_text, param_value

OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}
"""Parameters that are options of Triton's compiler instead of arguments of the kernel, with Triton's defaults."""

_Derived = tuple[tuple[str, Callable[[Mapping[str, object]], object]], ...]


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
    """Autotuner's `early_config_prune`."""
    zeroed: tuple[str, ...] = ()
    """Arguments that the autotuner's `reset_to_zero` names."""
    restored: tuple[str, ...] = ()
    """Arguments that the autotuner's `restore_value` names."""
    hook: Callable[..., object] | None = None
    """Autotuner's own `pre_hook`, which Triton calls before the launches that it benchmarks."""

    def hook_of(self, config: Mapping[str, object]) -> Callable[..., object] | None:
        """Return the `pre_hook` that a config's launches run first; raises ValueError where the list does not say."""
        kwargs = {name: param_value(value) for name, value in config.items() if name not in OPTIONS}
        return hook_of(self.configs, kwargs)  # type: ignore[no-any-return]

    def kept(self, configs: Sequence[Any], arguments: Mapping[str, object]) -> Sequence[Any]:
        """Return the configs that `early_config_prune` keeps for a launch; it is given what its signature takes."""
        if self.prune is None:
            return configs
        taken = inspect.signature(self.prune).parameters
        every = any(each.kind is each.VAR_KEYWORD for each in taken.values())
        named = {name: value for name, value in arguments.items() if every or name in taken}
        return self.prune(list(configs), dict(arguments), **named)


def decorators_of(kernel: Any) -> Decorators:  # noqa: ANN401 (Triton has no types)
    """Return the parts of a decorated kernel; raises ValueError if a decorator does what gemmtune does not."""
    *above, jit = layers(kernel)
    places = [number for number, layer in enumerate(above) if is_autotuner(layer)]
    if len(places) > 1:
        raise ValueError("has two autotuners: leave one")
    at = places[0] if places else 0
    outer, inner = _derived(above[:at]), _derived(above[at:])
    if not places:
        return Decorators(jit, outer, inner)
    tuner = above[at]
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
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{type(function).__qualname__} {getattr(function, '__qualname__', '')}"


def _derived(above: Sequence[Any]) -> _Derived:
    return tuple(
        pair for layer in above if isinstance(getattr(layer, "values", None), dict) for pair in layer.values.items()
    )
