"""Reader and checks of sealed files, which exporters write and loaders contain. Needs the standard library alone.

A check returns its value. It raises TypeError for a wrong type and ValueError for a wrong value, in one line that names
the field.
"""

import gc
import hashlib
import json
import pkgutil
from collections.abc import Callable, Collection, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_LONGEST_TEXT = 300
_LONGEST_SHOWN = 120
_LARGEST_NUMBER = 1e300


def read_sealed(path: Path, parse: Callable[[bytes], T]) -> T:
    """Return what `parse` makes of a file's content; its errors get a message that begins with the path.

    Raises:
        OSError: the file cannot be read.
        TypeError, ValueError: `parse` raised it.
    """
    collects = gc.isenabled()
    gc.disable()  # many rows, none of them in a cycle: searching for cycles takes a quarter of the time
    try:
        return parse(_content_of(path))
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply for a table; export it again") from None
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from None
    finally:
        if collects:
            gc.enable()


def _content_of(path: Path) -> bytes:
    """Return the bytes of a file, which may lie in an archive that Python imports from."""
    try:
        return path.read_bytes()
    except NotADirectoryError:
        archive = pkgutil.get_importer(str(next((each for each in path.parents if each.is_file()), path)))
        with suppress(AttributeError, OSError):  # of a file that is no archive, and an archive without the file
            return bytes(archive.get_data(str(path)))  # type: ignore[union-attr]
        raise


def parse_sealed(
    content: bytes, consumer: str, schema: int, names: Set[str], sparse: Set[str] = frozenset()
) -> dict[str, Any]:
    """Return a sealed file's fields after checks of its schema, hash and common fields.

    `names` are the fields that only this consumer's tables have, and `sparse` those that some of them have.
    """
    try:
        record = json.loads(content.decode(), parse_constant=_refuse_constant)
    except ValueError as error:
        raise ValueError(f"not JSON, or truncated: {_cut(str(error))}; export the table again") from None
    export = f"gemmtune export --to {consumer}"
    if not isinstance(record, dict) or "schema" not in record:
        raise TypeError(f"not a table for {consumer}: export one with {export}")
    if "ranges" in record:  # gemmtune's own table.json
        instead = f"name {consumer}/{consumer}_table.json beside it, or make one with {export}"
        raise ValueError(f"the table itself, not its export for {consumer}: {instead}")
    if type(record["schema"]) is not int or record["schema"] != schema:
        found = f"schema={shortened(record['schema'])} (written by gemmtune {shortened(record.get('gemmtune'))})"
        way = "use the loader that was exported beside the table"
        raise ValueError(f"{found} is not {schema}, which this loader reads: {way}")
    texts = {"sha256", "gemmtune", "table_sha256", "objective"}
    require_object("the table", record, names | texts | {"schema", "device"} | (sparse & record.keys()))
    for name in texts:
        require_text(name, record[name])
    if seal_of(content, record["sha256"]) != record["sha256"]:
        raise ValueError("edited after it was written: its sha256 does not match; export the table again")
    for name, value in require_object("device", record["device"], {"sku", "name", "arch"}).items():
        require_text(f"device.{name}", value)
    return record


def seal_of(content: bytes, sha256: str) -> str:
    """Return the SHA-256 of a file without white space and without `sha256`, the value of the field of that name.

    White space does not count, so that a version control system may change the ends of lines.
    """
    bare = content.translate(None, b" \t\r\n").replace(f'"sha256":"{sha256}"'.encode(), b'"sha256":""')
    return hashlib.sha256(bare).hexdigest()


def require_object(name: str, value: object, names: Set[str] | None = None) -> dict[str, Any]:
    """Return a JSON object; refuse one whose fields are not `names`, if these are given, or may not be printed."""
    if not isinstance(value, dict):
        raise TypeError(f"{name}={shortened(value)} is not an object")
    if hidden := [each for each in value if not each.isprintable()]:
        raise ValueError(f"{name} has the field {shortened(hidden[0])}, which may not be printed")
    if names is not None and value.keys() != names:
        field = min(value.keys() ^ names)
        raise ValueError(f"{name} has the {'unknown' if field in value else 'missing'} field {shortened(field)}")
    return value


def require_one_of(name: str, value: Any, known: Collection[object]) -> Any:  # noqa: ANN401 (of a known type)
    """Return a value that is among `known`, which are of one type: true is not 1, and neither is 1.0."""
    if type(value) is not type(next(iter(known), None)) or value not in known:
        raise ValueError(f"{name}={shortened(value)} is not in {shortened(known)}")
    return value


def require_integer(name: str, value: object, least: int, most: int) -> int:
    """Return an integer from `least` to `most`."""
    if type(value) is not int:
        raise TypeError(f"{name}={shortened(value)} is not an integer")
    return int(require_number(name, value, least, most))


def require_number(name: str, value: object, least: float, most: float) -> float:
    """Return a number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={shortened(value)} is not a number")
    if not least <= value <= most:
        raise ValueError(f"{name}={shortened(value)} is not from {least} to {most}")
    return value


def require_text(name: str, value: object) -> str:
    """Return a text that may be printed."""
    if not isinstance(value, str):
        raise TypeError(f"{name}={shortened(value)} is not text")
    if not value or len(value) > _LONGEST_TEXT or not value.isprintable():
        raise ValueError(f"{name}={shortened(value)} is not 1 to {_LONGEST_TEXT} printable characters")
    return value


def require_texts(name: str, value: object) -> list[str]:
    """Return a list of texts that may be printed."""
    if not isinstance(value, list):
        raise TypeError(f"{name}={shortened(value)} is not a list")
    return [require_text(name, text) for text in value]


def require_params(name: str, value: object, names: Set[str] | None = None) -> dict[str, dict[str, object]]:
    """Return the values that each param may take, by their texts; the params are `names`, if these are given."""
    params = require_object(name, value, names)
    for param, values in params.items():
        if not isinstance(values, list) or not all(isinstance(each, bool | int | float | str) for each in values):
            raise TypeError(f"{name}.{shortened(param)}={shortened(values)} is not a list of numbers and texts")
    return {param: {repr(each): each for each in values} for param, values in params.items()}


def require_config(name: str, value: object, params: Mapping[str, Mapping[str, object]]) -> dict[str, Any]:
    """Return a config whose values are among `params`, compared as texts: true is not 1, and 1.0 neither."""
    config = require_object(name, value, params.keys())
    for param, its in config.items():
        if repr(its) not in params[param]:
            raise ValueError(f"{name}.{_cut(param)}={shortened(its)} is not one of {_cut(', '.join(params[param]))}")
    return config


def require_facts(value: object) -> dict[str, Any]:
    """Return what a row says for a reader: texts that may be printed, numbers, and objects of numbers."""
    facts = require_object("facts", value)
    for name, its in facts.items():
        where = f"facts.{shortened(name)}"
        if isinstance(its, str):
            if not its.isprintable():
                raise ValueError(f"{where}={shortened(its)} may not be printed")
        elif its is not None:
            for inner, each in (require_object(where, its) if isinstance(its, dict) else {"": its}).items():
                at = f"{where}.{_cut(inner)}" if inner else where
                require_number(at, each, -_LARGEST_NUMBER, _LARGEST_NUMBER)
    return facts


def shortened(value: object) -> str:
    """Return a value as one line of a message."""
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a finite number")
