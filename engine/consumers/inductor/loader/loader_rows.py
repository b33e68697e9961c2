"""Content of `inductor_table.json` and its checks, for the exporter and for the loader, which contains this file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gemmtune.engine.consumers.inductor.loader.generated import GENERATED, parse_generated
from gemmtune.engine.consumers.inductor.loader.one_order import require_templates
from gemmtune.engine.tables.kernels.binary import KernelBinary, parse_kernels
from gemmtune.engine.tables.sealed import parse_sealed, require_object, require_one_of, shortened

SCHEMA = 6
PACKAGES = ("torch", "triton")
"""Packages whose versions change Inductor's kernels."""
BIASED = ("addmm", "baddbmm")
"""Products with a bias."""
DTYPE_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "tf32": "tf32"}
"""Names of types in a problem's text, by the names in a product's key."""

_NOT_SERVED = "(?!)"
"""Pattern of products whose rows need parts that this loader lacks; an export has the parts that its table needs."""
TEMPLATES_OF = {
    "mm": ("aten::mm", "triton::mm", "decompose_k"),
    "addmm": ("aten::addmm", "triton::mm"),
    "bmm": ("aten::bmm", "triton::bmm"),
    "baddbmm": ("aten::baddbmm", "triton::bmm"),
    "scaled_mm": ("aten::_scaled_mm", "triton::mm"),
    "int_mm": ("aten::_int_mm", "triton::mm"),
    **dict.fromkeys(("grouped_rows", "grouped_inner"), ("aten::_grouped_mm", "aten::_scaled_grouped_mm")),
    "flex": ("flex::default", "flex::forward", "flex::backward", "flex::decode"),
}
"""Templates that rows of a product may name, beside those of CuTe kernels."""
_SIZES, _POWERS = range(1, 2**31), tuple(2**power for power in range(13))
_PIPELINE: Mapping[str, Sequence[int]] = {"num_stages": range(1, 11), "num_warps": _POWERS[:6]}
_FLEX = {"forward": "BLOCK_M BLOCK_N", "backward": "BLOCK_M1 BLOCK_N1 BLOCK_M2 BLOCK_N2", "decode": "BLOCK_N"}
_KEYWORDS_OF: Mapping[str, Mapping[str, Sequence[int]]] = {
    "aten": {},
    "triton": {
        **dict.fromkeys(("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M"), _POWERS),  # Triton compiles no other tiles
        **_PIPELINE,
    },
    "decompose_k": {"k_split": _SIZES},
    **{f"flex::{phase}": {**dict.fromkeys(its.split(), _POWERS), **_PIPELINE} for phase, its in _FLEX.items()},
}
"""Keywords of templates with their values; torch derives all others."""
_CHOICE_FIELDS = {"template", "kwargs"}
_ROW_FIELDS = {"first", "last", "fuses_cheap", "facts", "kernel", "otherwise", *_CHOICE_FIELDS}


class ProductRow(NamedTuple):
    """The choice for one m, or a range of m, of one product."""

    first: int
    """Least m that the row serves."""
    last: int
    """Greatest m that the row serves."""
    template: str
    """Inductor's name of the kernel's template."""
    kwargs: Mapping[str, Any]
    """Tuned keywords of the template, or the config of a CuTe kernel; empty for ATen."""
    kernel: str = ""
    """Name of the CuTe kernel among the table's; empty where torch makes the kernel."""
    otherwise: ProductRow | None = None
    """Choice to run where a CuTe kernel cannot; None for other rows."""
    fuses_cheap: bool = False
    """Whether a plain product's kernel may compute a cheap epilogue that it was not timed with."""

    @property
    def is_aten(self) -> bool:
        """Whether the vendor library runs."""
        return self.template.startswith("aten::")


class InductorTable(NamedTuple):
    """Content of `inductor_table.json`, checked field by field."""

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
    kernels: Mapping[str, KernelBinary]
    """CuTe kernels by name."""
    batch_invariant: bool = False
    """Whether the rows of a product add in one order, so that equal rows of operands have equal bits at every m."""
    generated: Mapping[str, Mapping[str, int]] = {}
    """Configs of kernels between the products, by `source_key`."""


def parse_inductor_table(content: bytes) -> InductorTable:
    """Return a table from its JSON; refuse an edited one, and a value that Inductor would fail on, by row and field.

    Raises:
        TypeError, ValueError: a part has the wrong type or value.
    """
    names = {"made_with", "templates", "params", "rows", "kernels"}
    fields = parse_sealed(content, "inductor", SCHEMA, names, {"batch_invariant", "left_out", *GENERATED})
    made_with, templates = (require_object(name, fields[name]) for name in ("made_with", "templates"))
    kernels = parse_kernels(its) if (its := require_object("kernels", fields["kernels"])) else {}
    rows = {key: _rows(key, its, kernels) for key, its in require_object("rows", fields["rows"]).items()}
    invariant = require_one_of("batch_invariant", fields.get("batch_invariant", False), (False, True))
    if invariant:
        require_templates(rows)
    parts = fields["sha256"], fields["device"]["name"], made_with, templates, rows, kernels, invariant
    return InductorTable(*parts, parse_generated(fields))


def _rows(key: str, entries: object, kernels: Mapping[str, KernelBinary]) -> tuple[ProductRow, ...]:
    """Return the rows of one product, ascending."""
    templates = TEMPLATES_OF.get(key.partition(":")[0])
    if templates is None:
        raise ValueError(f"rows: the key {shortened(key)} names no product of {', '.join(TEMPLATES_OF)}")
    if re.search(_NOT_SERVED, key):
        raise ValueError(f"{key}: this loader serves no such rows: use the one that was exported beside the table")
    if not isinstance(entries, list):
        raise TypeError(f"{key}: its rows={shortened(entries)} are not a list")
    rows = []
    for number, entry in enumerate(entries, 1):
        try:
            rows.append(_row(entry, templates, kernels))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{key}: row {number}: {error}") from None
    return tuple(sorted(rows, key=lambda row: (row.first, row.last)))


def _row(entry: object, templates: Sequence[str], kernels: Mapping[str, KernelBinary]) -> ProductRow:
    fields = require_object("it", entry, _ROW_FIELDS)
    first, last = (require_one_of(name, fields[name], _SIZES) for name in ("first", "last"))
    fuses_cheap = require_one_of("fuses_cheap", fields["fuses_cheap"], (False, True))
    if fields["kernel"] is None:
        require_one_of("otherwise, without a kernel,", fields["otherwise"], (None,))
        return ProductRow(first, last, *_choice("", fields, templates), fuses_cheap=fuses_cheap)
    kernel = require_one_of("kernel", fields["kernel"], [*kernels])
    template = require_one_of("template", fields["template"], [kernels[kernel].template])
    instead = require_object("otherwise", fields["otherwise"], _CHOICE_FIELDS)
    otherwise = ProductRow(first, last, *_choice("otherwise.", instead, templates))
    return ProductRow(first, last, template, require_object("kwargs", fields["kwargs"]), kernel, otherwise)


def _choice(where: str, fields: Mapping[str, Any], templates: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
    """Return the template and the tuned keywords of a choice, which become a part of generated code."""
    template = require_one_of(f"{where}template", fields["template"], templates)
    known = _KEYWORDS_OF.get(template) or _KEYWORDS_OF.get(template.partition("::")[0], {})
    kwargs = require_object(f"{where}kwargs", fields["kwargs"], known.keys())
    return template, {name: require_one_of(f"{where}kwargs.{name}", its, known[name]) for name, its in kwargs.items()}
