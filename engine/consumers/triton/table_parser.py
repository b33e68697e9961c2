"""Checks of a table of own Triton kernels, which exporter and loader share. Needs the standard library alone."""

from collections.abc import Mapping
from typing import Any

from gemmtune.engine.consumers.triton.contract import VALUE_TEXT, param_value
from gemmtune.engine.tables.sealed import (
    parse_sealed,
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

SCHEMA = 3
OPTIONS = {
    "num_warps": (1, 2, 4, 8, 16, 32),
    "num_stages": range(65),
    "num_ctas": (1, 2, 4, 8, 16),
    "maxnreg": range(1, 256),
}
"""Values of the compiler's options that a config may have; its other params are arguments of the kernel."""
_NO_LIMIT = {"maxnreg": "None"}
_LARGEST_INTEGER = 2**63 - 1
_LARGEST = 1e300


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
    if len({isinstance(value, str) for value in values if value != "None"}) > 1:
        raise TypeError(f"{name} has numbers and texts")
    for value in values:
        if (
            param in OPTIONS
            and (type(value) is not int or value not in OPTIONS[param])
            and value != _NO_LIMIT.get(param)
        ):
            raise ValueError(f"{name}={shortened(value)} is not one of {', '.join(map(str, OPTIONS[param]))}")
        if isinstance(value, str):
            require_text(name, value)
            param_value(value)
        elif isinstance(value, float):
            require_number(name, value, -_LARGEST, _LARGEST)
        elif not isinstance(value, bool):
            require_integer(name, value, -_LARGEST_INTEGER, _LARGEST_INTEGER)


def _require_row(value: object, common: list[str], params: Mapping[str, Mapping[str, object]]) -> None:
    fields = require_object("it", value, {"arguments", "dtypes", "config", "facts"})
    arguments = require_object("arguments", fields["arguments"])
    for name, its in arguments.items():
        if not VALUE_TEXT.fullmatch(require_text(f"arguments.{shortened(name)}", its)):
            raise ValueError(f"arguments.{shortened(name)}={shortened(its)} is no text of an argument")
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
