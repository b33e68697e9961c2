"""Content of `vllm_fp8_table.json` and `sglang_fp8_table.json`, and its checks. Needs the standard library alone."""

import hashlib
import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from gemmtune.engine.tables.kernels.binary import KernelBinary, parse_kernels, unpacked
from gemmtune.engine.tables.sealed import (
    parse_sealed,
    require_facts,
    require_integer,
    require_object,
    require_text,
    shortened,
)

SCHEMA = 1
EXACT = ":accumulation=exact"
"""End of a product whose kernels sum exactly."""

_SCALES = {True: "mul(column[fp32]).mul(row[fp32])", False: "mul(scalar[fp32]).mul(scalar2[fp32])"}
_BIAS = {True: ".add(row2)", False: ".add(row)"}
_LARGEST = 2**31 - 1  # that of a problem's sizes
_SIZE = r"[1-9]\d{0,9}"
_EPILOGUES = "|".join(rf"{re.escape(_SCALES[each])}(?:{re.escape(_BIAS[each])})?" for each in (True, False))
_PRODUCT = re.compile(rf"{_SIZE}x{_SIZE}:e4m3:nt(?::out_dtype=fp16)?:epilogue=({_EPILOGUES})(?:{EXACT})?", re.ASCII)
_CUBIN_NAME = re.compile(r"gemmtune_triton_mm_[0-9a-f]{16}", re.ASCII)
_LAUNCH = {"first": 1, "last": 1, "block_m": 0, "grid_x": 1, "grid_y": 1, "grid_z": 1, "threads": 1, "shared_bytes": 0}
"""Least value of each number of a launch."""


class Cubin(NamedTuple):
    """Triton kernel of one product, and its launch."""

    packed: str
    """Binary, compressed by zlib, in base 64."""
    product: str
    """Product whose n and k are compiled in."""
    entry: str
    """Name of its function."""
    arguments: str
    """Names of its arguments, separated by spaces."""
    launch: Mapping[str, int]
    """First and last m that it is right for, and its blocks: `grid_x` per `block_m` rows unless that is 0."""


class LinearRow(NamedTuple):
    """Kernels for one m, or a range of m, of one product."""

    first: int
    """Least m that the row serves."""
    last: int
    """Greatest m that the row serves."""
    kernels: tuple[str, ...]
    """Names of kernels, the fastest first; none where the vendor library led."""


class LinearTable(NamedTuple):
    """Content of a table for an engine's linear layers, checked field by field."""

    device: str
    """Name of the GPU."""
    rows: Mapping[str, tuple[LinearRow, ...]]
    """Rows by product, those that serve fewer m first."""
    binaries: Mapping[str, KernelBinary]
    """CuTe kernels by name."""
    cubins: Mapping[str, Cubin]
    """Triton kernels by name."""


def product_text(n: int, k: int, out_dtype: str, *, row_wise: bool, bias: bool) -> str:
    """Return the name that a problem of e4m3 has behind its m: `4096x4096:e4m3:nt:epilogue=...`.

    Args:
        n: columns of B.
        k: columns of A.
        out_dtype: short name of the output's type.
        row_wise: whether rows of A and columns of B have scales of their own.
        bias: whether a bias is added.
    """
    out = "" if out_dtype == "bf16" else f":out_dtype={out_dtype}"
    return f"{n}x{k}:e4m3:nt{out}:epilogue={_SCALES[row_wise]}{_BIAS[row_wise] if bias else ''}"


def cubin_name(binary: bytes, fields: Mapping[str, object]) -> str:
    """Return the name of a Triton kernel, which tells it from every other one by a digest of what runs."""
    told = json.dumps([fields["product"], fields["entry"], fields["arguments"], fields["launch"]], sort_keys=True)
    return f"gemmtune_triton_mm_{hashlib.sha256(binary + told.encode()).hexdigest()[:16]}"


def parse_linear_table(content: bytes, consumer: str = "vllm_fp8") -> LinearTable:
    """Return a consumer's table from its JSON; refuse, by row and field, what would compute wrongly.

    Raises:
        TypeError, ValueError: a part has the wrong type or value.
    """
    fields = parse_sealed(content, consumer, SCHEMA, {"left_out", "rows", "binaries", "cubins"})
    require_integer("left_out", fields["left_out"], 0, _LARGEST)
    binaries = parse_kernels(fields["binaries"])
    cubins = {name: _cubin(name, its) for name, its in require_object("cubins", fields["cubins"]).items()}
    table = LinearTable(fields["device"]["name"], {}, binaries, cubins)
    rows = {product: _rows(product, its, table) for product, its in require_object("rows", fields["rows"]).items()}
    return table._replace(rows=rows)


def _cubin(name: str, entry: object) -> Cubin:
    where = f"cubins.{shortened(name)}"
    if _CUBIN_NAME.fullmatch(name) is None:
        raise ValueError(f"{where} is no name of a Triton kernel")
    fields = require_object(where, entry, {"object", "product", "entry", "arguments", "launch"})
    for text in ("product", "entry", "arguments"):
        require_text(f"{where}.{text}", fields[text])
    if not isinstance(fields["object"], str):
        raise TypeError(f"{where}.object={shortened(fields['object'])} is not text")
    launch = require_object(f"{where}.launch", fields["launch"], _LAUNCH.keys())
    for number, least in _LAUNCH.items():
        require_integer(f"{where}.launch.{number}", launch[number], least, _LARGEST)
    try:
        binary = unpacked(fields["object"])
    except ValueError as error:
        raise ValueError(f"{where}: its `object` is damaged: {error}") from None
    if cubin_name(binary, fields) != name:
        told = "object, product, entry, arguments, launch"
        raise ValueError(f"{where} is not the name of its {told} ({', '.join(launch)}): export the table again")
    return Cubin(fields["object"], fields["product"], fields["entry"], fields["arguments"], launch)


def _rows(product: str, entries: object, table: LinearTable) -> tuple[LinearRow, ...]:
    """Return the rows of one product; refuse two for one m, and two ranges that share an m."""
    found = _PRODUCT.fullmatch(product)
    if found is None:
        raise ValueError(f"rows: the key {shortened(product)} names no product of e4m3 with its scales")
    if not isinstance(entries, list):
        raise TypeError(f"{product}: its rows={shortened(entries)} are not a list")
    rows = []
    for number, entry in enumerate(entries, 1):
        try:
            rows.append(_row(entry, product, found[1], table))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{product}: row {number}: {error}") from None
    rows.sort()
    for is_range, fault in ((False, "{}: two rows are for m={}"), (True, "{}: m={} is in two ranges")):
        for one, other in pairwise([row for row in rows if (row.first < row.last) is is_range]):
            if other.first <= one.last:  # a row for one m may lie within a range
                raise ValueError(fault.format(product, other.first))
    return tuple(sorted(rows, key=lambda row: row.last - row.first))


def _row(entry: object, product: str, epilogue: str, table: LinearTable) -> LinearRow:
    fields: dict[str, Any] = require_object("it", entry, {"first", "last", "kernels", "facts"})
    first = require_integer("first", fields["first"], 1, _LARGEST)
    last = require_integer("last", fields["last"], first, _LARGEST)
    require_facts(fields["facts"])
    if not isinstance(fields["kernels"], list):
        raise TypeError(f"kernels={shortened(fields['kernels'])} is not a list")
    for name in fields["kernels"]:
        if not isinstance(name, str) or (name not in table.binaries and name not in table.cubins):
            raise ValueError(f"kernels={shortened(name)} is not one of the table's kernels")
        if name in table.cubins:
            cubin = table.cubins[name]
            if cubin.product != product or not cubin.launch["first"] <= first <= last <= cubin.launch["last"]:
                raise ValueError(f"kernels={name} is not for m={first} to {last} of this product: export it again")
        elif (computed := table.binaries[name].epilogue, table.binaries[name].layouts) != (epilogue, "nt"):
            raise ValueError(f"kernels={name} computes the epilogue {shortened(computed[0])}, its row has {epilogue}")
    return LinearRow(first, last, tuple(fields["kernels"]))
