"""Checks of `inductor_table.json` that its sealed form spares the loader, for exporters and reports."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from gemmtune.engine.consumers.inductor.loader.loader_rows import (
    PACKAGES,
    TEMPLATES_OF,
    InductorTable,
    ProductRow,
    parse_inductor_table,
)
from gemmtune.engine.records.epilogue.chain import restored
from gemmtune.engine.records.epilogue.text import parse_epilogue
from gemmtune.engine.seams.kernel_call import binder
from gemmtune.engine.tables.kernels.binary import KernelBinary
from gemmtune.engine.tables.sealed import (
    require_config,
    require_facts,
    require_object,
    require_params,
    require_texts,
    shortened,
)

_SIZE = r"[1-9]\d{0,9}"
_KEY = re.compile(
    rf"({'|'.join(TEMPLATES_OF)}):\w+:[nt]{{2}}:{_SIZE}x{_SIZE}x({_SIZE}):(none|vector|matrix|vectors|matrices)"
    r":(static|dynamic)(:(?:alpha|beta)=[\w.+-]+)*(:(?:ld|batch_stride_)[ab]=\d+)*(:[\w.,()\[\]+-]+)?",
    re.ASCII,
)
_FLEX_KEY = re.compile(r"flex:(forward|backward|decode):b\d+:h\d+[\w:=().,+-]*", re.ASCII)
_KNOWN = {"made_with": PACKAGES, "templates": {each for its in TEMPLATES_OF.values() for each in its}}


def parse_written_table(content: bytes) -> InductorTable:
    """Return a table as its loader does, of which each row is for one product, and each config one of its space.

    Raises:
        TypeError, ValueError: a part has the wrong type or value; the message names row and field.
    """
    table = parse_inductor_table(content)
    fields: dict[str, Any] = json.loads(content)
    for name, known in _KNOWN.items():
        for key, texts in fields[name].items():
            if key not in known:
                raise ValueError(f"{name} has the unknown field {shortened(key)}; known: {', '.join(sorted(known))}")
            require_texts(f"{name}.{key}", texts)
    params = {
        name: require_params(f"params.{shortened(name)}", values)
        for name, values in require_object("params", fields["params"]).items()
    }
    for row in fields.get("generated", {}).values():
        require_facts(row["facts"])
    for kernel in table.kernels.values():
        require_launch(kernel)
    for key, parsed in table.rows.items():
        _require_product(key, parsed, table.kernels)
        for number, row in enumerate(fields["rows"][key], 1):
            try:
                _require_row(row, params)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{key}: row {number}: {error}") from None
    return table


def require_launch(kernel: KernelBinary) -> None:
    """Raise a ValueError that names the field of a kernel whose epilogue, arguments or layouts no launch takes."""
    where = f"kernels.{shortened(kernel.name)}"
    try:
        parse_epilogue(str(restored(kernel.epilogue))), binder(kernel.call, int)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{where}: its `epilogue` or `call` is none that a launch takes: {error}") from None
    if re.fullmatch("[nt]{2}", str(kernel.layouts)) is None:
        raise ValueError(f"{where}.layouts={shortened(kernel.layouts)} is not two of n and t")


def _require_product(key: str, rows: Sequence[ProductRow], kernels: Mapping[str, KernelBinary]) -> None:
    """Refuse a key of no product, parts that do not divide k, two rows for one m, and two ranges that share an m."""
    found = _KEY.fullmatch(key)
    if found is None and not _FLEX_KEY.fullmatch(key):
        raise ValueError(f"rows: the key {shortened(key)} names no product of {', '.join(TEMPLATES_OF)}")
    k, epilogue = (int(found[2]), (found[7] or ":none")[1:]) if found else (1, "none")
    for row in rows:
        if row.last < row.first:
            raise ValueError(f"{key}: last={row.last} is less than first={row.first}")
        if k % row.kwargs.get("k_split", 1):
            raise ValueError(f"{key}: k_split={row.kwargs['k_split']} does not divide k={k}")
        if row.kernel and (computed := str(restored(kernels[row.kernel].epilogue))) != epilogue:
            raise ValueError(f"{key}: kernel={row.kernel} computes the epilogue {shortened(computed)}, not {epilogue}")
    for is_range, fault in ((False, "{}: two rows are for m={}"), (True, "{}: m={} is in two ranges")):
        for one, other in pairwise([row for row in rows if (row.first < row.last) is is_range]):
            if other.first <= one.last:  # a row for one m may lie within a range
                raise ValueError(fault.format(key, other.first))


def _require_row(row: Mapping[str, Any], params: Mapping[str, Mapping[str, Mapping[str, object]]]) -> None:
    for where, choice in (("", row), ("otherwise.", row["otherwise"])):
        if choice is not None:
            template = choice["template"]
            if template not in params:
                raise ValueError(f"{where}template={shortened(template)} is not one of {', '.join(params) or 'params'}")
            require_config(f"{where}kwargs", choice["kwargs"], params[template])
    require_facts(row["facts"])
