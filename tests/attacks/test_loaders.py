"""Hostile values in exported tables: each is refused by row and field, or leaves every kernel as it was."""

from __future__ import annotations

import copy
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmtune.engine.consumers.cute.exporter import CuteExporter
from gemmtune.engine.consumers.cute.table_loader import CuteTable, parse_cute_table
from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.consumers.inductor.loader.loader_rows import parse_inductor_table
from gemmtune.engine.consumers.triton.exporter import TritonExporter
from gemmtune.engine.consumers.triton.loader import parse_triton_table
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.kernels.binary import kernel_name, packed
from gemmtune.engine.tables.sealed import read_sealed, seal_of
from gemmtune.engine.testing.exporter_conformance import example_table

PLANTED = "gemmtune_planted"
"""Part of every text that names a module, a file or a command."""
HOSTILE: list[Any] = [
    *(None, True, False, 0, -1, 11, 48, 10**9, 2**31, 2**40, 2**62, 2**63, 10**30, 10**4000, -(10**30)),
    *(0.5, 4.0, -0.0, 1e308, -1e-308),
    *("", " ", "4", "aten::no", "\x00", "\x1b[31mred", "\ud800", "ä\u202e", "x" * 10_000, "../" * 50 + PLANTED),
    *(f"/tmp/{PLANTED}", f"{PLANTED}.module", f"__import__('{PLANTED}')", f"$(touch {PLANTED})", f"file:///{PLANTED}"),
    *([], {}, [[]], [None], {"": None}, [{"a": [1]}], {PLANTED: PLANTED}, [PLANTED]),
    *(2**53 + 1, -1e-30, "True", "null", "٣", "\u2028", [0] * 1000, {"0": 0}),
]
"""Values of which `is_legal` excepts those that a field of another table may have."""
TILES = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 128, "GROUP_M": 8, "num_stages": 2, "num_warps": 8}
OPERATOR = CuteExporter.example[1]
QUACK = Config(
    {
        "tile_m": 128,
        "tile_n": 192,
        "cluster_m": 2,
        "cluster_n": 1,
        "pingpong": True,
        "swap_ab": False,
        "is_dynamic_persistent": False,
        "max_swizzle_size": 8,
    }
)
SPLIT_K = {
    "warp_n": 16,
    "warps_n": 1,
    "warps_k": 4,
    "split_k": 4,
    "k_unroll": 2,
    "num_stages": 4,
    "share_a": False,
    "use_pdl": True,
}
PRODUCT = Problem.parse("64x96x200:bf16:nt")


def choice(space, config):
    toolchain = "torch 2.13.0, triton 3.7.0, quack-kernels 0.6.5"
    return Choice(space, Config(config), 100.0, 99.0, 101.0, 32, Evidence.MEASURED, toolchain, "graph-cold-l2")


def table(*spaces):
    rows = (Row(PRODUCT, tuple(choice(*each) for each in spaces), None, 0.0, (), regret_bound=0.01),)
    return Table(catalogue.device("H200"), rows, "latency")


def inductor_table():
    """Return a table with a range of a product with an epilogue, and a row of a CuTe kernel."""
    made = table(("triton_mm", TILES))
    ranged = Problem.parse("256x96x200:bf16:nt:epilogue=relu:dynamic_m=true")
    splitk = Row(replace(PRODUCT, m=8), (choice("cute_splitk", SPLIT_K), choice("triton_mm", TILES)), None, 0.0, ())
    return replace(
        made,
        rows=(*made.rows, splitk),
        ranges=(RangeRow(ranged, 65, 256, choice("triton_mm", TILES), ((256, 0.0),)),),
    )


def built(wanted, _):
    """Return a kernel of each task without its compiler: a loader parses any object file."""
    call = ["a", "b.mT", "bias", "out", [None, 4], "stream"]
    entry = {"object": packed(b"an object file"), "call": call, "layouts": "nt", "epilogue": []}
    entry["packages"] = {"apache-tvm-ffi": "0.1", "nvidia-cutlass-dsl": "4.8.1"}
    return {job: (kernel_name(job[0].space, b"an object file", call, "nt", []), entry) for job in wanted}


TABLES = {
    "inductor": inductor_table(),
    "cute": table(("cute_gemm", OPERATOR), ("quack_gemm", QUACK)),
    "triton": example_table(TritonExporter()),
}
EXPORTS: dict[str, Callable[[], Exporter]] = {
    "inductor": InductorExporter,
    "cute": CuteExporter,
    "triton": TritonExporter,
}
FILES = {name: f"{name}_table.json" for name in EXPORTS}
with patch("gemmtune.engine.consumers.inductor.exporter.built_kernels", built):
    EXPORTED = {name: exporter().export(TABLES[name]) for name, exporter in EXPORTS.items()}
RECORDS = {name: json.loads(files[FILES[name]]) for name, files in EXPORTED.items()}


def kernels(name, content):
    """Return the kernel per product that the loaders take from a table's file."""
    if name == "inductor":
        parsed = parse_inductor_table(content)
        binaries = {kernel: (its.packed, its.call, its.layouts) for kernel, its in parsed.kernels.items()}
        return {
            key: [(*(row._replace(kwargs={}) if row.kernel else row), binaries.get(row.kernel)) for row in rows]
            for key, rows in parsed.rows.items()
        }  # the binary is the kernel of a row that has one, whatever config it says
    if name == "triton":  # rows by their places: arguments, types and sources may be of any other launch
        rows = [kernel["rows"] for kernel in parse_triton_table(content)["kernels"]]
        return {place: repr(sorted_json(row["config"])) for its in rows for place, row in enumerate(its)}
    parsed = parse_cute_table(content)
    fields = {"cute_gemm": "operator", "quack_gemm": "gemm_config"}
    return {
        (space, key): (repr(sorted_json(row[fields[space]])), row["rounded_loss"])
        for space, rows in parsed["rows"].items()
        for key, row in rows.items()
    }


def outcome(name, content):
    """Return the kernels, or None and the refusal, which is one short line without control characters."""
    try:
        return kernels(name, content), ""
    except (TypeError, ValueError) as error:
        message = str(error)
    assert message.isprintable(), repr(message)
    assert len(message) < 1000
    return None, message


def is_part(after, before):
    """Return whether each kernel is as before; a table may have fewer rows."""
    return all(kernel == before[key] for key, kernel in after.items() if kernel != [])


def sorted_json(value):
    return json.dumps(value, sort_keys=True)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a JSON document, but its own."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths(item, (*path, key))


def changed(record, path, value):
    """Return a copy with another value at a path."""
    if not path:
        return value
    copied = copy.copy(record)
    copied[path[0]] = changed(record[path[0]], path[1:], value)
    return copied


def renamed(record, path, name):
    """Return a copy in which the key at the end of a path has another name."""
    copied = copy.deepcopy(record)
    place = copied
    for key in path[:-1]:
        place = place[key]
    place[name] = place.pop(path[-1])
    return copied


def resealed(record):
    """Return the file of a changed record, with the hash that belongs to it."""
    bare = json.dumps({**record, "sha256": ""}).encode()
    return bare.replace(b'"sha256": ""', f'"sha256": "{seal_of(bare, "")}"'.encode())


def names_it(message, path):
    """Return whether a message names the field, and the product if the field is one row's."""
    names = [part for part in path if isinstance(part, str)]
    products = [part for part in names if "x96x200" in part]
    return names[-1].removesuffix("s") in message and all(product in message for product in products)


def is_legal(path, value):
    """Return whether a value makes another valid table: a range, a row for smaller sizes, or one that may fuse."""
    if path[-1] == "fuses_cheap":
        return type(value) is bool
    if path[-1] in ("first", "last"):
        return type(value) is int and 0 < value < 2**31
    return path[-1] == "rounded_loss" and value == 0 and type(value) is not bool


def fields_of(name):
    return [path for path in paths(RECORDS[name]) if path != ("sha256",)]


@pytest.mark.parametrize("name", EXPORTS)
def test_any_value_of_any_field_is_refused_by_name_or_gives_the_same_kernels(name):
    before = kernels(name, resealed(RECORDS[name]))
    refused = 0
    for path in fields_of(name):
        values = [each for each in HOSTILE if not is_legal(path, each)]
        assert len(values) >= 40
        for value in values:
            after, message = outcome(name, resealed(changed(RECORDS[name], path, value)))
            refused += after is None
            assert names_it(message, path) if after is None else is_part(after, before), (path, value, message)
    assert refused > 700


@pytest.mark.parametrize("package", ["apache-tvm-ffi", "nvidia-cutlass-dsl"])
def test_a_binary_names_the_version_of_each_package_that_runs_it(package):
    [name] = RECORDS["inductor"]["kernels"]
    record = copy.deepcopy(RECORDS["inductor"])
    del record["kernels"][name]["packages"][package]
    message = f"kernels.{name!r}.packages.{package!r}=None is not text"
    assert outcome("inductor", resealed(record)) == (None, message)


@pytest.mark.parametrize("name", EXPORTS)
def test_any_name_of_any_field_is_refused_or_gives_the_same_kernels(name):
    before = kernels(name, resealed(RECORDS[name]))
    for path in fields_of(name):
        for text in (value for value in HOSTILE if isinstance(value, str) and isinstance(path[-1], str)):
            after, message = outcome(name, resealed(renamed(RECORDS[name], path, text)))
            assert message or is_part(after, before), (path, text)


@pytest.mark.parametrize("name", EXPORTS)
@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1" * 5000, "[" * 100_000, '{"a": 1, "a": 2}', "\xff"]
)
def test_json_that_no_exporter_writes_is_refused_with_the_files_name(tmp_path, name, value):
    file = tmp_path / FILES[name]
    text = json.dumps({**RECORDS[name], "objective": "HERE"}).replace('"HERE"', value)
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises((TypeError, ValueError)) as refused:
        read_sealed(file, lambda content: kernels(name, content))
    assert type(refused.value) in (TypeError, ValueError)
    assert str(refused.value).startswith(f"{file}: ")
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("text", ["\x1f", "\n", "\ud7fc", "a\u202eb", "x" * 100_000], ids=range(5))
@pytest.mark.parametrize("name", EXPORTS)
def test_a_name_that_a_file_makes_up_is_told_in_one_short_line(name, text):
    objects = [path for path in fields_of(name) if isinstance(at(RECORDS[name], path), dict)]
    assert len(objects) >= 4
    for path in objects:
        for value in (None, {text: None}):
            held = at(RECORDS[name], path)
            outcome(name, resealed(changed(RECORDS[name], path, held | {text: value})))
            outcome(name, resealed(changed(RECORDS[name], path, {text: value})))


def at(record, path):
    """Return the value at a path."""
    for key in path:
        record = record[key]
    return record


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize("name", EXPORTS)
@given(data=st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a loaded machine
def test_random_documents_raise_nothing_else(name, data):
    record = RECORDS[name]
    for path in data.draw(st.lists(st.sampled_from(fields_of(name)), max_size=3)):
        try:
            record = changed(record, path, data.draw(DOCUMENTS))
        except (KeyError, IndexError, TypeError):  # an earlier document has replaced a parent
            continue
    outcome(name, resealed(record))


EVENTS: list[tuple[str, tuple[Any, ...]]] = []
WATCHED = {
    "import",
    "open",
    "exec",
    "compile",
    "os.system",
    "os.exec",
    "os.listdir",
    "subprocess.Popen",
    "socket.connect",
}
recording = False


def hook(event, args):
    if recording and event in WATCHED:
        EVENTS.append((event, args))


def test_a_loader_imports_opens_and_runs_nothing_that_a_table_names(tmp_path):
    global recording  # noqa: PLW0603 (an audit hook cannot be removed)
    sys.addaudithook(hook)
    planted = [f"/tmp/{PLANTED}", f"{PLANTED}.module", [PLANTED], {PLANTED: PLANTED}]
    file = tmp_path / "cute_table.json"
    for name in EXPORTS:
        for path in fields_of(name):
            for value in planted:
                file.write_bytes(resealed(changed(RECORDS[name], path, value)))
                recording = True
                try:
                    if name == "cute":
                        with warnings.catch_warnings(action="ignore"):
                            CuteTable(file, "quack_gemm")
                    else:
                        read_sealed(file, parse_inductor_table if name == "inductor" else parse_triton_table)
                except (TypeError, ValueError):
                    pass
                finally:
                    recording = False
    assert EVENTS, "the reading of the file itself"
    assert not [event for event in EVENTS if PLANTED in repr(event)]


CHOICES = [("triton_mm", TILES), ("aten", {}), ("cute_gemm", OPERATOR), ("quack_gemm", QUACK)]


@pytest.mark.parametrize(("space", "config"), CHOICES, ids=[space for space, _ in CHOICES])
def test_an_exporter_refuses_any_value_that_is_not_the_spaces(space, config):
    name = "inductor" if space in ("triton_mm", "aten") else "cute"
    params = registry.space(space).params(Task(PRODUCT, catalogue.device("H200"), space))
    known = {param.name: {repr(value) for value in param.values} for param in params}
    EXPORTS[name]().export(table((space, config)))
    for param in [*config, "EVEN_K"]:
        for value in (each for each in HOSTILE if isinstance(each, bool | int | float | str)):
            if value == "\ud800" or repr(value) in known.get(param, ()):
                continue  # no table's file has the first, which is no UTF-8
            with pytest.raises(TableError, match=param):
                EXPORTS[name]().export(table((space, {**config, param: value})))


def test_stock_inductors_lookup_table_has_the_keywords_of_checked_rows_alone():
    """Stock Inductor trusts EVEN_K and ACC_TYPE, and its table carries no hash."""
    lookup = json.loads(EXPORTED["inductor"]["lookup_table.json"])
    assert len(lookup) == 1
    derived = {"template_id": "triton::mm", "EVEN_K": False, "ACC_TYPE": "tl.float32", "USE_FAST_ACCUM": False}
    assert all(rows == [{**TILES, **derived}] for rows in lookup.values())
