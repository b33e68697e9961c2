"""Load tuned configs into kernels under `triton.autotune`, which then benchmark nothing. Needs Triton and torch alone.

Call `load(kernel)` once per kernel, before its first launch and before torch.compile. Pass tensors in the order of the
kernel's arguments. For a kernel without an autotuner, wrap it first:
`kernel = triton.autotune([triton.Config({})], key=["n"])(kernel)`. Afterwards `report()` names launches without a row.
"""

import copy
import inspect
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gemmtune.engine.consumers.triton.contract import (
    autotuner_of,
    defaults_of,
    hook_of,
    layers,
    param_value,
    python_function,
    source_sha256,
    text_of,
    twin_of,
    value_of,
)
from gemmtune.engine.consumers.triton.table_parser import OPTIONS, SCHEMA, parse_triton_table
from gemmtune.engine.io.bundled import picked
from gemmtune.engine.tables.sealed import read_sealed, shortened

__all__ = ["OPTIONS", "SCHEMA", "TableWarning", "TunedConfigs", "load", "parse_triton_table", "report"]

_RELEASE = re.compile(r"triton\D{0,3}(\d+\.\d+)")
_Key = tuple[object, ...]
_Untyped = Any  # an object of Triton, which has no types
_loaded: "dict[int, TunedConfigs]" = {}


class TableWarning(UserWarning):
    """Warning of a use that the table was not made for.

    `warnings.simplefilter("error", TableWarning)` makes it fatal.
    """


class TunedConfigs(dict[_Key, Any]):
    """Configs by the autotuner's key; a key that differs in one size alone may get those of the nearest tuned value."""

    def __init__(
        self,
        configs: Mapping[_Key, Any],
        positions: Mapping[_Key, int],
        name: str = "",
        accepts: Callable[[Any], bool] = lambda _: True,
    ) -> None:
        """Take the tuned configs by key.

        Args:
            configs: config by key.
            positions: position of the size that may differ, by key, for the keys that have one.
            name: name of the kernel, for the report.
            accepts: whether the kernel's own pruning keeps a config for the launch under way.
        """
        super().__init__(configs)
        self.name, self.misses = name, Counter[_Key]()
        self.launch: Mapping[str, object] = {}
        self.positions, self._accepts = dict(positions), accepts
        self._tuned = dict(configs)
        self._benchmarked: dict[_Key, Any] = {}
        self._untuned: set[_Key] = set()

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self._finds(key)

    def __missing__(self, key: _Key) -> _Untyped:
        return self._benchmarked[key]

    def __setitem__(self, key: _Key, config: _Untyped) -> None:
        """Take what the autotuner found for a launch without a row, which stays a miss for the report."""
        self._benchmarked[key] = config

    def withdraw(self, config: _Untyped) -> bool:
        """Leave the keys of a config to the autotuner; return False if there is no such config."""
        gone = [key for key, each in self.items() if each is config]
        self._untuned.update(gone)
        for key in gone:
            del self[key]
            self._tuned.pop(key, None)
            self.positions.pop(key, None)
        return bool(gone)

    def _finds(self, key: Any) -> bool:  # noqa: ANN401 (numbers and texts)
        """Return whether a key without a row has a config all the same: the nearest row's, or a benchmarked one."""
        if key not in self._benchmarked and key not in self._untuned:
            plain = tuple(getattr(each, "value", each) for each in key)  # of constexpr
            alike = (self._tuned[each] for each in self._nearest(plain) if self._accepts(self._tuned[each]))
            if (found := self._tuned.get(plain) or next(alike, None)) is not None:
                super().__setitem__(key, copy.copy(found))  # it may fit there and not here
                return True
        self.misses[key] += 1
        return key in self._benchmarked

    def _nearest(self, key: _Key) -> list[_Key]:
        """Return the keys that differ from a key in their free size alone, the nearest first."""
        alike = [
            (abs(each[at] - key[at]), each[at], each)  # type: ignore[operator] # sizes are integers
            for each, at in self.positions.items()
            if len(each) == len(key)
            and isinstance(key[at], int)
            and each[:at] + each[at + 1 :] == key[:at] + key[at + 1 :]
        ]
        return [each for *_, each in sorted(alike, key=lambda found: found[:2])]


def report() -> dict[str, int]:
    """Return how many launches no row served, by kernel and the autotuner's key; empty if rows served all."""
    found = Counter[str]()
    for each in [*_loaded.values()]:  # copies, as other threads may launch
        for key, count in [*each.misses.items()]:
            found[f"{each.name}({', '.join(map(str, key))})"] += count
    return dict(found)


def load(kernel: Any, path: str | Path | None = None, *, device: str | None = None) -> int:  # noqa: ANN401
    """Fill the cache of a kernel under `triton.autotune` with the table's configs; return the number of rows.

    Args:
        kernel: the decorated kernel; its autotuner may lie below other decorators, such as `triton.heuristics`.
        path: the table; by default triton_table.json beside this file.
        device: name of the GPU; by default that of torch's current one.

    Warns:
        TableWarning: the table was made by another release of Triton.

    Raises:
        OSError: the file cannot be read.
        TypeError: a part of the file has the wrong type.
        ValueError: the file is not JSON, of another schema, edited after it was written, or has an invalid row. Or the
            kernel has no autotuner. Or no GPU is here or named. Or the table is for another GPU, has no rows for this
            source of the kernel, a param that the kernel does not take, two configs for one key of the autotuner, a
            config whose hook is not known, or rows without an argument that the autotuner's key names.
    """
    tuner = autotuner_of(kernel)
    if tuner is None:
        raise ValueError(f"{kernel!r} has no autotuner: wrap it in triton.autotune([triton.Config({{}})], key=[...])")
    source = Path(__file__).with_name("triton_table.json") if path is None else Path(path)
    import torch
    import triton

    present = device or (torch.cuda.get_device_name() if torch.cuda.is_available() else "")
    if not present:
        raise ValueError("torch sees no GPU here: load the table where the kernel runs, or name its GPU by device=")
    others = ""

    def parse(content: bytes) -> dict[str, Any]:
        nonlocal others
        of_gpu, others = picked(content, present)
        return parse_triton_table(of_gpu)

    table = read_sealed(source, parse)
    if present != table["device"]["name"]:
        raise ValueError(f"the table is for {others or table['device']['name']}, not {present}: tune on this GPU")
    sha256 = source_sha256(kernel)
    found = [each for each in table["kernels"] if each["source_sha256"] == sha256]  # one per class of the kernel
    if not found:
        known = ", ".join(f"{each['kernel']} ({each['source_sha256'][:12]})" for each in table["kernels"])
        raise ValueError(f"the kernel's source is {sha256[:12]}, and the table has {known}: tune it again")
    if not hasattr(tuner, "before_gemmtune"):  # no table is loaded yet
        tuner.before_gemmtune = {"configs": list(tuner.configs), "prune": getattr(tuner, "early_config_prune", None)}
    own = tuner.before_gemmtune
    keyed = _keyed(tuner, found)
    by = getattr(tuner, "strategy", None)  # what an autotuner such as FlagGems' libtuner rounds its key by
    rounded = dict(zip(tuner.keys, by, strict=True)) if isinstance(by, list | tuple) else {}
    rows: dict[_Key, Any] = {}
    positions = {}
    taken = {*inspect.signature(python_function(kernel)).parameters, *OPTIONS}
    for entry in found:
        if unknown := sorted(entry["params"].keys() - taken):
            raise ValueError(f"{source}: {entry['kernel']}: the kernel has no argument {shortened(unknown[0])}")
        for row in entry["rows"]:
            for names in _variants(kernel, keyed, row["arguments"]):
                values = ((name, value_of(row["arguments"][name])) for name in names)
                key = (*(rounded.get(name, lambda same: same)(value) for name, value in values), *row["dtypes"])
                other = rows.setdefault(key, row)
                if names == keyed:
                    _require_alike(other, row, keyed, rounded)
                if entry["nearest"] in names:
                    positions[key] = names.index(entry["nearest"])
    configs = {key: _config(triton.Config, row, own["configs"], defaults_of(kernel)) for key, row in rows.items()}
    made_by = {each[1] for row in rows.values() if (each := _RELEASE.search(str(row["facts"].get("toolchain"))))}
    if other := sorted(made_by - {".".join(triton.__version__.split(".")[:2])}):  # a major and a minor release
        text = f"the table was made by Triton {other[0]}, and this is {triton.__version__}: tune again"
        warnings.warn(text, TableWarning, stacklevel=2)
    tuned = TunedConfigs(configs, positions, python_function(kernel).__name__, partial(_accepts, tuner, own))
    has_heuristics = any(hasattr(layer, "values") for layer in layers(kernel))  # which torch 2.11 cannot prune
    _install(tuner, own, tuned, keyed, compiles=not (has_heuristics and torch.__version__.startswith("2.11.")))
    _loaded[id(tuner)] = tuned
    return sum(len(entry["rows"]) for entry in found)


def _keyed(tuner: _Untyped, found: Sequence[Any]) -> list[str]:
    """Return the arguments that an autotuner's key holds, in its order.

    Names of no argument are none, nor are arguments that a config or a heuristic below the autotuner gives.
    """
    below = {name for layer in layers(tuner.fn) for name in getattr(layer, "values", ())}
    names = [name for name in tuner.keys if name in tuner.arg_names and name not in below]
    for entry in found:
        lost = [name for name in names if name not in (*entry["arguments"], *entry["params"])]
        if lost:
            raise ValueError(
                f"the autotuner's key names {lost[0]}, which is in no row of {entry['kernel']}: take it out of it, "
                f"or let `arguments` of {entry['kernel']} give it as a number, text, None or type, and tune again"
            )
    return [name for name in names if all(name in entry["arguments"] for entry in found)]


def _variants(kernel: Any, keyed: list[str], arguments: Mapping[str, str]) -> Iterator[list[str]]:  # noqa: ANN401
    """Yield the arguments that a launch's key may hold: all of them, then without those that a launch may leave out."""
    defaults = defaults_of(kernel)
    optional = [name for name in keyed if name in defaults and text_of(defaults[name]) == arguments[name]]
    for left_out in itertools.product((False, True), repeat=len(optional)):
        gone = {name for name, out in zip(optional, left_out, strict=True) if out}
        yield [name for name in keyed if name not in gone]


def _config(make: Any, row: Mapping[str, Any], own: Sequence[Any], defaults: Mapping[str, object]) -> Any:  # noqa: ANN401
    """Return a row's config with the hook that the kernel's own config of equal params has."""
    values = {name: param_value(value) for name, value in row["config"].items()}
    kwargs = {name: value for name, value in values.items() if name not in OPTIONS}
    try:
        hook = hook_of(own, kwargs, defaults)
    except ValueError as error:
        raise ValueError(f"{row['facts']['problem']}: {error}") from None
    return make(kwargs, **{name: value for name, value in values.items() if name in OPTIONS}, pre_hook=hook)


def _accepts(tuner: _Untyped, own: Mapping[str, Any], config: _Untyped) -> bool:
    twins = [twin_of(each) for each in (*own["configs"], config)]
    return own["prune"] is None or config in own["prune"](twins, tuner.nargs, **tuner.cache.launch)


def _install(
    tuner: _Untyped, own: Mapping[str, Any], configs: TunedConfigs, keyed: Sequence[str], *, compiles: bool
) -> None:
    """Give an autotuner its tuned configs, for launches and, if it `compiles`, for torch.compile."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources, PTXASError

    launch = type(tuner).run.__get__(tuner)

    def run(*arguments: object, **named: object) -> _Untyped:
        configs.launch = named
        try:
            return launch(*arguments, **named)
        except (OutOfResources, CompileTimeAssertionFailure, PTXASError) as error:  # which the autotuner passes over
            if not configs.withdraw(tuner.best_config):
                raise
            text = f"{configs.name}: a tuned config no longer fits, so Triton's autotuner chooses: {error}"
            warnings.warn(text, TableWarning, stacklevel=2)
            return run(*arguments, **named)
        finally:
            configs.launch = {}  # holds no tensor that the program is done with

    tuner.cache, tuner.run = configs, run
    resets = bool(getattr(tuner, "reset_to_zero", ()) or getattr(tuner, "restore_value", ()))
    if own["prune"] is None and (resets or not compiles):  # torch.compile would forget the resets if it pruned
        tuner.configs = own["configs"] * (1 + (len(own["configs"]) == 1))  # one config alone is never looked up
        return
    tuned = list(dict.fromkeys(configs.values()))
    tuner.configs = [*own["configs"], *tuned]
    if isinstance(getattr(tuner, "configs_top_k", None), float):
        tuner.configs_top_k = int(min(tuner.configs_top_k, 1.0) * len(own["configs"]))
    places = [(key, configs.positions.get(key, -1), tuner.configs.index(config)) for key, config in configs.items()]
    tuner.early_config_prune = _pruner(places, keyed, tuner.arg_names, len(own["configs"]), own["prune"])


def _pruner(
    places: Sequence[tuple[_Key, int, int]], keyed: Sequence[str], names: Sequence[str], count: int, prune: _Untyped
) -> _Untyped:
    """Return a pruning that leaves torch.compile the row's config alone, and a launch without a row the kernel's own.

    Dynamo traces it. Its keys may hold symbols, so they are compared and not looked up.
    """
    from torch import Tensor
    from torch.compiler import is_compiling

    def early_config_prune(configs: _Untyped, nargs: _Untyped, **kwargs: _Untyped) -> _Untyped:
        own = configs[:count]
        if is_compiling():
            given = {**nargs, **kwargs}
            asked = [given[name] for name in keyed if name in given]
            asked += [str(given[name].dtype) for name in given if name in names and isinstance(given[name], Tensor)]
            nearest = None
            for key, free, place in places:
                if len(key) != len(asked) or any(key[at] != asked[at] for at in range(len(key)) if at != free):
                    continue
                if free < 0 or key[free] == asked[free]:
                    return [configs[place]]
                distance = abs(key[free] - asked[free])
                if prune is None and (nearest is None or distance < nearest[0]):
                    nearest = distance, place
            if nearest is not None:
                return [configs[nearest[1]]]
        return own if prune is None else prune(own, nargs, **kwargs)

    return early_config_prune


def _require_alike(one: Any, other: Any, keys: list[str], rounded: Mapping[str, object]) -> None:  # noqa: ANN401 (rows)
    """Refuse two rows with one key of the autotuner and different configs."""
    if one["config"] != other["config"]:
        apart = [name for name, value in one["arguments"].items() if other["arguments"].get(name) != value]
        lost = [name for name in apart if name not in rounded]
        way_out = (
            f"add {' or '.join(lost)} to its key" if lost else f"it rounds {' and '.join(apart)}, so keep one of them"
        )
        raise ValueError(
            f"{one['facts']['problem']} and {other['facts']['problem']} have one key of the autotuner "
            f"({', '.join(keys) or 'no argument'}) and two configs: {way_out}"
        )
