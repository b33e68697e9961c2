"""Content of `inductor_table.json` and its checks, for the exporter and for the loader, which contains this file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from gemmtune.engine.consumers.inductor.loader.kernels.binary import KernelBinary, parse_kernels
from gemmtune.engine.tables.sealed import parse_sealed, require_integer, require_object, require_texts, shortened

SCHEMA = 5
PACKAGES = ("torch", "triton")
"""Packages whose versions change Inductor's kernels."""
BIASED = ("addmm", "baddbmm")
"""Products with a bias."""
DTYPE_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "tf32": "tf32"}
"""Names of types in a problem's text, by the names in a product's key."""

_NOT_SERVED: Sequence[str] = ()
"""Patterns of products whose rows need parts that this loader lacks; an export has the parts that its table needs."""
_LARGEST = 2**31 - 1  # that of a problem's sizes
_SIZE = r"[1-9]\d{0,9}"
_KEY = re.compile(
    rf"(mm|addmm|bmm|baddbmm|scaled_mm|int_mm):\w+:[nt]{{2}}:{_SIZE}x{_SIZE}x{_SIZE}:(none|vector|matrix|vectors|matrices)"
    r":(static|dynamic)(:(?:alpha|beta)=[\w.+-]+)*(:(?:ld|batch_stride_)[ab]=\d+)*(:[\w.,()\[\]+-]+)?",
    re.ASCII,
)
_TEMPLATES_OF = {
    "mm": ("aten::mm", "triton::mm", "decompose_k"),
    "addmm": ("aten::addmm", "triton::mm"),
    "bmm": ("aten::bmm", "triton::bmm"),
    "baddbmm": ("aten::baddbmm", "triton::bmm"),
    "scaled_mm": ("aten::_scaled_mm", "triton::mm"),
    "int_mm": ("aten::_int_mm", "triton::mm"),
}
_ROW_FIELDS = {"first", "last", "template", "kwargs", "fuses_cheap", "facts", "kernel", "otherwise"}
_CUTE, _OPS_OF_CUTE, _CUTE_TEMPLATE = "cute::", ("mm", "addmm", "scaled_mm"), re.compile(r"cute::\w+", re.ASCII)
_MOST = {**dict.fromkeys(("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M"), 4096), "num_stages": 10, "num_warps": 32}
"""Keywords of Triton's templates with their largest values; torch derives all others."""


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


def parse_inductor_table(content: bytes) -> InductorTable:
    """Return a table from its JSON; refuse, by row and field, what Inductor would fail on or compute wrongly.

    Raises:
        TypeError, ValueError: a part has the wrong type or value.
    """
    fields = parse_sealed(content, "inductor", SCHEMA, {"made_with", "templates", "params", "rows", "kernels"})
    made_with = _texts_by_name("made_with", fields, PACKAGES)
    triton = [each for its in _TEMPLATES_OF.values() for each in its if each.startswith("triton")]
    templates = _texts_by_name("templates", fields, triton)
    kernels = parse_kernels(fields["kernels"])
    rows = {key: _rows(key, its, kernels) for key, its in require_object("rows", fields["rows"]).items()}
    return InductorTable(fields["sha256"], fields["device"]["name"], made_with, templates, rows, kernels)


def _texts_by_name(name: str, fields: Mapping[str, object], known: Sequence[str]) -> dict[str, list[str]]:
    found = require_object(name, fields[name])
    if unknown := [key for key in found if key not in known]:
        raise ValueError(f"{name} has the unknown field {shortened(unknown[0])}; known: {', '.join(known)}")
    return {key: require_texts(f"{name}.{key}", texts) for key, texts in found.items()}


def _rows(key: str, entries: object, kernels: Mapping[str, KernelBinary]) -> tuple[ProductRow, ...]:
    """Return the rows of one product; refuse two for one m, and two ranges that share an m."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"rows: the key {shortened(key)} names no product of {', '.join(_TEMPLATES_OF)}")
    if any(re.search(each, key) for each in _NOT_SERVED):
        raise ValueError(f"{key}: this loader serves no such rows: use the one that was exported beside the table")
    if not isinstance(entries, list):
        raise TypeError(f"{key}: its rows={shortened(entries)} are not a list")
    rows: list[ProductRow] = []
    known = (*_TEMPLATES_OF[found[1]], *([_CUTE] if found[1] in _OPS_OF_CUTE and not found[4] else []))
    for number, entry in enumerate(entries, 1):
        try:
            rows.append(_row(entry, known, kernels, (found[6] or ":none")[1:]))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{key}: row {number}: {error}") from None
    k = int(key.split(":")[3].rpartition("x")[2])
    for row in rows:
        if row.template == "decompose_k" and k % row.kwargs["k_split"]:
            raise ValueError(f"{key}: k_split={row.kwargs['k_split']} does not divide k={k}")
    rows.sort(key=lambda row: (row.first, row.last))
    for is_range, fault in ((False, "{}: two rows are for m={}"), (True, "{}: m={} is in two ranges")):
        for one, other in pairwise([row for row in rows if (row.first < row.last) is is_range]):
            if other.first <= one.last:  # a row for one m may lie within a range
                raise ValueError(fault.format(key, other.first))
    return tuple(rows)


def _row(entry: object, known: Sequence[str], kernels: Mapping[str, KernelBinary], epilogue: str) -> ProductRow:
    fields = require_object("it", entry, _ROW_FIELDS)
    first = require_integer("first", fields["first"], 1, _LARGEST)
    last = require_integer("last", fields["last"], first, _LARGEST)
    template, kwargs = _choice("", fields, known)
    kernel, otherwise = fields["kernel"], fields["otherwise"]
    if not template.startswith(_CUTE):
        for name in ("kernel", "otherwise"):
            if fields[name] is not None:
                raise ValueError(f"{name}={shortened(fields[name])}: {template} has none, only rows of CuTe have")
        if not isinstance(fields["fuses_cheap"], bool):
            raise TypeError(f"fuses_cheap={shortened(fields['fuses_cheap'])} is not true or false")
        return ProductRow(first, last, template, kwargs, fuses_cheap=fields["fuses_cheap"])
    if not isinstance(kernel, str) or kernel not in kernels:
        raise ValueError(f"kernel={shortened(kernel)} is not one of the table's kernels")
    if (computed := kernels[kernel].epilogue) != epilogue:
        raise ValueError(f"kernel={kernel} computes the epilogue {shortened(computed)}, its row has {epilogue}")
    next_choice = require_object("otherwise", otherwise, {"template", "kwargs"})
    instead = ProductRow(first, last, *_choice("otherwise.", next_choice, known[:-1]))
    return ProductRow(first, last, template, kwargs, kernel, instead)


def _choice(where: str, fields: Mapping[str, Any], known: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
    """Return the template and the tuned keywords of a choice; those of a CuTe kernel are in its binary."""
    template = fields["template"]
    is_cute = isinstance(template, str) and _CUTE in known and _CUTE_TEMPLATE.fullmatch(template)
    if not isinstance(template, str) or template == _CUTE or (template not in known and not is_cute):
        raise ValueError(f"{where}template={shortened(template)} is not one of {', '.join(known)}")
    if is_cute:
        return template, require_object(f"{where}kwargs", fields["kwargs"])
    most = _MOST if "triton" in template else {"k_split": _LARGEST} if template == "decompose_k" else {}
    kwargs = require_object(f"{where}kwargs", fields["kwargs"], most.keys())
    for name, value in kwargs.items():
        number = require_integer(f"{where}kwargs.{name}", value, 1, most[name])
        if name not in ("num_stages", "k_split") and number & number - 1:  # Triton compiles no other tiles
            raise ValueError(f"{where}kwargs.{name}={number} is not a power of 2")
    return template, kwargs
