"""Load tuned configs into kernels under `triton.autotune`, which then benchmark nothing. Needs Triton and torch alone.

Call `load(kernel)` once per kernel, before its first launch. Pass tensors in the order of the kernel's arguments. For a
kernel without an autotuner, wrap it first: `kernel = triton.autotune([triton.Config({})], key=["n"])(kernel)`.
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmtune.engine.consumers.triton.contract import python_function, source_sha256
from gemmtune.engine.tables.sealed import (
    parse_sealed,
    read_sealed,
    require_config,
    require_facts,
    require_integer,
    require_number,
    require_object,
    require_params,
    require_text,
    require_texts,
    shortened,
)

__all__ = ["OPTIONS", "SCHEMA", "TunedConfigs", "load", "parse_triton_table"]

SCHEMA = 2
OPTIONS = {
    "num_warps": (1, 2, 4, 8, 16, 32),
    "num_stages": range(65),
    "num_ctas": (1,),  # gemmtune builds no clusters
    "maxnreg": range(1, 256),
}
"""Values of the compiler's options that a config may have; its other params are arguments of the kernel."""
_LARGEST_INTEGER = 2**63 - 1
_LARGEST = 1e300


class TunedConfigs(dict[tuple[object, ...], Any]):
    """Configs by the autotuner's key; a key that differs in one size alone may get those of the nearest tuned value."""

    def __init__(self, configs: dict[tuple[object, ...], Any], positions: dict[tuple[object, ...], int]) -> None:
        """Take the tuned configs, and by key the position of the size that may differ, for those that have one."""
        super().__init__(configs)
        self._positions = positions

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self._nearest(key) is not None

    def __getitem__(self, key: tuple[object, ...]) -> Any:  # noqa: ANN401 (Triton has no types)
        near = key if super().__contains__(key) else self._nearest(key)
        return super().__getitem__(key if near is None else near)

    def _nearest(self, key: Any) -> tuple[object, ...] | None:  # noqa: ANN401 (numbers and texts)
        if not isinstance(key, tuple):
            return None
        alike = [
            (abs(each[at] - key[at]), each[at], each)
            for each, at in self._positions.items()
            if each[:at] + each[at + 1 :] == key[:at] + key[at + 1 :]
        ]
        return min(alike, default=(0, 0, None))[2]


def load(kernel: Any, path: str | Path | None = None, *, device: str | None = None) -> int:  # noqa: ANN401
    """Fill the cache of a kernel under `triton.autotune` with the table's configs; return the number of rows.

    Args:
        kernel: the decorated kernel.
        path: the table; by default triton_table.json beside this file.
        device: name of the GPU; by default that of torch's current one.

    Raises:
        OSError: the file cannot be read.
        TypeError: a part of the file has the wrong type, or the kernel is not under `triton.autotune`.
        ValueError: the file is not JSON, of another schema, edited after it was written, or has an invalid row. Or the
            table is for another GPU, has no rows for this source of the kernel, a param that the kernel does not take,
            or two configs for one key of the autotuner.
    """
    if not hasattr(kernel, "configs") or python_function(kernel) is None:
        raise TypeError(f"{kernel!r} has no autotuner: wrap it in triton.autotune([triton.Config({{}})], key=[...])")
    source = Path(__file__).with_name("triton_table.json") if path is None else Path(path)
    table = read_sealed(source, parse_triton_table)
    import torch
    import triton

    present = device or torch.cuda.get_device_name()
    if present != table["device"]["name"]:
        raise ValueError(f"the table is for {table['device']['name']}, not {present}: tune on this GPU")
    sha256 = source_sha256(kernel)
    found = [each for each in table["kernels"] if each["source_sha256"] == sha256]  # one per class of the kernel
    if not found:
        known = ", ".join(f"{each['kernel']} ({each['source_sha256'][:12]})" for each in table["kernels"])
        raise ValueError(f"the kernel's source is {sha256[:12]}, and the table has {known}: tune it again")
    rows: dict[tuple[object, ...], Any] = {}
    positions = {}
    taken = {*inspect.signature(python_function(kernel)).parameters, *OPTIONS}
    for entry in found:
        if unknown := sorted(entry["params"].keys() - taken):
            raise ValueError(f"{source}: {entry['kernel']}: the kernel has no argument {shortened(unknown[0])}")
        keys = [name for name in kernel.keys if name in entry["arguments"]]
        for row in entry["rows"]:
            key = (*(row["arguments"][name] for name in keys), *row["dtypes"])
            _require_alike(rows.setdefault(key, row), row, kernel.keys)
            if entry["nearest"] in keys:
                positions[key] = keys.index(entry["nearest"])
    configs = {}
    for key, row in rows.items():
        options = {name: value for name, value in row["config"].items() if name in OPTIONS}
        kwargs = {name: value for name, value in row["config"].items() if name not in OPTIONS}
        configs[key] = triton.Config(kwargs, **options)
    kernel.cache = TunedConfigs(configs, positions)
    if len(kernel.configs) == 1:  # an autotuner with one config never looks into its cache
        kernel.configs = [*kernel.configs, *kernel.configs]
    return sum(len(entry["rows"]) for entry in found)


def parse_triton_table(content: bytes) -> dict[str, Any]:
    """Check the JSON of a table and return it.

    Raises:
        TypeError: a part has the wrong type; the message names kernel, row and field.
        ValueError: a part has another value than the exporter writes; the message names kernel, row and field.
    """
    fields = parse_sealed(content, "triton", SCHEMA, {"kernels"})
    _each("kernels", fields["kernels"], _require_kernel)
    return fields


def _each(name: str, value: object, require: Any) -> None:  # noqa: ANN401 (a check)
    if not isinstance(value, list):
        raise TypeError(f"{name}={shortened(value)} is not a list")
    for number, each in enumerate(value, 1):
        try:
            require(each)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name.removesuffix('s')} {number}: {error}") from None


def _require_kernel(value: object) -> None:
    fields = require_object("it", value, {"kernel", "source_sha256", "arguments", "nearest", "params", "rows"})
    for name in ("kernel", "source_sha256"):
        require_text(name, fields[name])
    common = require_texts("arguments", fields["arguments"])
    if fields["nearest"] not in ("", *common):
        raise ValueError(f"nearest={shortened(fields['nearest'])} is not one of its arguments")
    params = require_params("params", fields["params"])
    for name, values in params.items():
        _require_values(name, list(values.values()))
    _each("rows", fields["rows"], lambda row: _require_row(row, common, params))


def _require_values(param: str, values: list[Any]) -> None:
    """Refuse values of a param that no kernel of gemmtune was built with."""
    name = f"params.{shortened(param)}"
    for value in values:
        if param in OPTIONS and (type(value) is not int or value not in OPTIONS[param]):
            raise ValueError(f"{name}={shortened(value)} is not one of {', '.join(map(str, OPTIONS[param]))}")
        if isinstance(value, str) is not isinstance(values[0], str):
            raise TypeError(f"{name} has numbers and texts")
        if isinstance(value, str):
            require_text(name, value)
        elif isinstance(value, float):
            require_number(name, value, -_LARGEST, _LARGEST)
        elif not isinstance(value, bool):
            require_integer(name, value, -_LARGEST_INTEGER, _LARGEST_INTEGER)


def _require_row(value: object, common: list[str], params: Mapping[str, Mapping[str, object]]) -> None:
    fields = require_object("it", value, {"arguments", "dtypes", "config", "facts"})
    arguments = require_object("arguments", fields["arguments"])
    for name, its in arguments.items():
        require_integer(f"arguments.{shortened(name)}", its, -_LARGEST_INTEGER, _LARGEST_INTEGER)
    if lost := [name for name in common if name not in arguments]:
        raise ValueError(f"arguments lacks {lost[0]}, which the other rows have")
    require_texts("dtypes", fields["dtypes"])
    config = require_object("config", fields["config"])
    if not config:
        raise ValueError("config is empty: every row says what it runs")
    if unknown := sorted(config.keys() - params.keys()):
        raise ValueError(f"config.{shortened(unknown[0])} is not one of params")
    require_config("config", config, {name: params[name] for name in config})
    if not isinstance(require_facts(fields["facts"]).get("problem"), str):
        raise TypeError("facts has no problem, which messages name")


def _require_alike(one: Any, other: Any, keys: list[str]) -> None:  # noqa: ANN401 (rows of the table)
    """Refuse two rows with one key of the autotuner and different configs."""
    if one["config"] != other["config"]:
        apart = [name for name, value in one["arguments"].items() if other["arguments"].get(name) != value]
        raise ValueError(
            f"{one['facts']['problem']} and {other['facts']['problem']} have one key of the autotuner "
            f"({', '.join(keys) or 'no argument'}) and two configs: add {' or '.join(apart)} to its key"
        )
