"""Checks of `inductor_table.json` that its loader leaves out: of what it does not read, by exporters and reports."""

import json
from collections.abc import Mapping
from typing import Any

from gemmtune.engine.consumers.inductor.loader.loader_rows import InductorTable, parse_inductor_table
from gemmtune.engine.tables.sealed import require_config, require_facts, require_object, require_params, shortened


def parse_written_table(content: bytes) -> InductorTable:
    """Return a table as its loader does; check facts, too, and that each config is one of its space.

    Raises:
        TypeError, ValueError: a part has the wrong type or value; the message names row and field.
    """
    table = parse_inductor_table(content)
    fields: dict[str, Any] = json.loads(content)
    params = {
        name: require_params(f"params.{shortened(name)}", values)
        for name, values in require_object("params", fields["params"]).items()
    }
    for key, rows in fields["rows"].items():
        for number, row in enumerate(rows, 1):
            try:
                _require_row(row, params)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{key}: row {number}: {error}") from None
    return table


def _require_row(row: Mapping[str, Any], params: Mapping[str, Mapping[str, Mapping[str, object]]]) -> None:
    for where, choice in (("", row), ("otherwise.", row["otherwise"])):
        if choice is not None:
            template = choice["template"]
            if template not in params:
                raise ValueError(f"{where}template={shortened(template)} is not one of {', '.join(params) or 'params'}")
            require_config(f"{where}kwargs", choice["kwargs"], params[template])
    require_facts(row["facts"])
