"""Content of `inductor_table.json` and its checks, for the exporter and for the loader, which contains this file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from gemmtune.engine.tables.sealed import (
    parse_sealed,
    require_config,
    require_integer,
    require_object,
    require_params,
    require_texts,
    shortened,
)

__all__ = ["PACKAGES", "SCHEMA", "InductorTable", "ProductRow", "parse_inductor_table"]

SCHEMA = 2
PACKAGES = ("torch", "triton")
"""Packages whose versions change Inductor's kernels."""

_LARGEST = 2**31 - 1  # that of a problem's sizes
_SIZE = r"[1-9]\d{0,9}"
_KEY = re.compile(
    rf"(mm|addmm|bmm):\w+:[nt]{{2}}:{_SIZE}x{_SIZE}x{_SIZE}:(none|vector|matrix):(static|dynamic)", re.ASCII
)
_TEMPLATES_OF = {
    "mm": ("aten::mm", "triton::mm", "triton::mm_persistent_tma"),
    "addmm": ("aten::addmm", "triton::mm", "triton::mm_persistent_tma"),
    "bmm": ("aten::bmm", "triton::bmm"),
}
_ROW_FIELDS = {"first", "last", "template", "kwargs", "facts"}
_KWARGS = {"BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_stages", "num_warps"}
_Params = Mapping[str, Mapping[str, Mapping[str, object]]]


class ProductRow(NamedTuple):
    """The choice for one m, or a range of m, of one product."""

    first: int
    """Least m that the row serves."""
    last: int
    """Greatest m that the row serves."""
    template: str
    """Inductor's name of the kernel's template."""
    kwargs: Mapping[str, int]
    """Tuned keywords of the template; empty for ATen."""

    @property
    def is_aten(self) -> bool:
        """Whether the vendor library runs."""
        return self.template.startswith("aten::")


class InductorTable(NamedTuple):
    """Content of `inductor_table.json`."""

    sha256: str
    """Hash of the content."""
    device: str
    """Name of the GPU, as torch gives it."""
    made_with: Mapping[str, Sequence[str]]
    """Versions that timed the rows, by package."""
    templates: Mapping[str, Sequence[str]]
    """Hashes of the template's source that timed the rows, by Triton template."""
    rows: Mapping[str, tuple[ProductRow, ...]]
    """Rows by product, ascending."""


def parse_inductor_table(content: bytes) -> InductorTable:
    """Check the JSON of a table.

    Raises:
        TypeError: a part has the wrong type; the message names row and field.
        ValueError: a part has a value that Inductor would fail on or compute wrongly; the message names row and field.
    """
    fields = parse_sealed(content, "inductor", SCHEMA, {"made_with", "templates", "params", "rows"})
    made_with = _texts_by_name("made_with", fields["made_with"], PACKAGES)
    triton = [name for names in _TEMPLATES_OF.values() for name in names if name.startswith("triton::")]
    templates = _texts_by_name("templates", fields["templates"], triton)
    params = {name: _params(name, values) for name, values in require_object("params", fields["params"]).items()}
    rows = {key: _rows(key, entries, params) for key, entries in require_object("rows", fields["rows"]).items()}
    return InductorTable(fields["sha256"], fields["device"]["name"], made_with, templates, rows)


def _texts_by_name(name: str, value: object, known: Sequence[str]) -> dict[str, list[str]]:
    found = require_object(name, value)
    if unknown := [key for key in found if key not in known]:
        raise ValueError(f"{name} has the unknown field {shortened(unknown[0])}; known: {', '.join(known)}")
    return {key: require_texts(f"{name}.{key}", texts) for key, texts in found.items()}


def _params(template: str, values: object) -> dict[str, dict[str, object]]:
    """Return the values of a template's keywords; torch derives all others, and a wrong EVEN_K gives wrong results."""
    name = f"params.{shortened(template)}"
    params = require_params(name, values, _KWARGS if template.startswith("triton::") else set())
    for keyword, known in params.items():
        for value in known.values():
            require_integer(f"{name}.{keyword}", value, 1, _LARGEST)
    return params


def _rows(key: str, entries: object, params: _Params) -> tuple[ProductRow, ...]:
    """Return the rows of one product; refuse two for one m, and two ranges that share an m.

    A row for one m may lie within a range.
    """
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"rows: the key {shortened(key)} names no product of mm, addmm or bmm")
    if not isinstance(entries, list):
        raise TypeError(f"{key}: its rows={shortened(entries)} are not a list")
    rows: list[ProductRow] = []
    known = {template: params[template] for template in _TEMPLATES_OF[found[1]] if template in params}
    for number, entry in enumerate(entries, 1):
        try:
            rows.append(_row(entry, known))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{key}: row {number}: {error}") from None
    rows.sort(key=itemgetter(0, 1))  # first and last
    for one, other in pairwise([row for row in rows if row.first == row.last]):
        if one.first == other.first:
            raise ValueError(f"{key}: two rows are for m={one.first}")
    for one, other in pairwise([row for row in rows if row.first < row.last]):
        if other.first <= one.last:
            raise ValueError(f"{key}: m={other.first} is in two ranges")
    return tuple(rows)


def _row(entry: object, known: _Params) -> ProductRow:
    fields = require_object("it", entry, _ROW_FIELDS)
    first = require_integer("first", fields["first"], 1, _LARGEST)
    last = require_integer("last", fields["last"], first, _LARGEST)
    template = fields["template"]
    if not isinstance(template, str) or template not in known:
        raise ValueError(f"template={shortened(template)} is not one of {', '.join(known) or 'params'}")
    return ProductRow(first, last, template, require_config("kwargs", fields["kwargs"], known[template]))
