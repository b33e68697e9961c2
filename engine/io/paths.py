"""Say what a path names, and find in a folder the file that a command reads."""

import json
import os
import re
from collections.abc import Mapping
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import DeviceError, LandscapeError, StoreError, TableError, UsageError, did_you_mean


class FileKind(Enum):
    """Kind of file that gemmtune reads or writes."""

    TABLE = "table"
    DATABASE = "database"
    INDUCTOR = "export for Inductor"
    CUTE = "export for CuTe dispatchers"
    LOOKUP = "export for stock Inductor"
    TRITON = "export for a Triton kernel"
    LANDSCAPES = "landscape file"
    RUN = "record of a run"
    COMPARISON = "comparison"
    BENCH = "bench of a model"
    CAMPAIGN = "campaign file (TOML)"
    RECORDING = "recorded program"
    SERVING = "tuned file of vLLM or SGLang"
    PAGE = "page"
    PYTHON = "Python file"
    YAML = "YAML file"
    JSON = "JSON file of something else"
    OTHER = "file of something else"

    @property
    def noun(self) -> str:
        """The kind with its article, as a message says it."""
        return f"{'an' if self.value.startswith('export') else 'a'} {self.value}"


_TABLES = "gemmtune show, diff, verify and export take it"
_TAKEN = {
    FileKind.TABLE: _TABLES,
    FileKind.DATABASE: "gemmtune show, export and campaigns take it",
    FileKind.INDUCTOR: "gemmtune show and export --warm take it",
    FileKind.CUTE: "gemmtune show takes it",
    FileKind.LOOKUP: "gemmtune show takes it",
    FileKind.TRITON: "gemmtune_triton.py beside it takes it",
    FileKind.LANDSCAPES: "gemmtune show, compare and tune --replay take it",
    FileKind.RUN: "gemmtune show takes it",
    FileKind.COMPARISON: "gemmtune show takes it",
    FileKind.BENCH: "gemmtune show --html shows it with its folder",
    FileKind.CAMPAIGN: "gemmtune tune takes it",
    FileKind.RECORDING: "gemmtune capture and tune take it",
    FileKind.SERVING: "gemmtune check takes it",
    FileKind.PAGE: "a browser opens it",
    FileKind.PYTHON: "gemmtune tune --kernel FILE.py:CLASS takes a kernel, and capture a model by MODULE:NAME",
    FileKind.YAML: "no command takes it",
    FileKind.JSON: "no command takes it",
    FileKind.OTHER: "no command takes it",
}
"""Commands that take each kind, for the message of one that does not."""
_MODEL_TAKEN = "gemmtune capture and bench take it, and show after --graphs"
_IN_A_FOLDER: dict[FileKind, tuple[str, ...]] = {
    FileKind.TABLE: ("table.json",),
    FileKind.DATABASE: ("measurements.db",),
    FileKind.INDUCTOR: ("inductor_table.json", "inductor/inductor_table.json"),
    FileKind.CUTE: ("cute_table.json", "cute/cute_table.json"),
    FileKind.LOOKUP: ("lookup_table.json",),
    FileKind.COMPARISON: ("comparison.json",),
    FileKind.LANDSCAPES: ("*.csv.gz", "*.csv"),
}
"""Names of the kinds that a folder stands for, in order."""
_WAYS = dict.fromkeys(pairwise((FileKind.DATABASE, FileKind.TABLE, FileKind.INDUCTOR)), "gemmtune export")
"""Commands that make one kind of another."""
_ERRORS: dict[FileKind, type[UsageError]] = {
    FileKind.TABLE: TableError,
    FileKind.INDUCTOR: TableError,
    FileKind.DATABASE: StoreError,
    FileKind.LANDSCAPES: LandscapeError,
}
_SUFFIXES = {
    ".toml": FileKind.CAMPAIGN,
    ".jsonl": FileKind.RECORDING,
    ".log": FileKind.RECORDING,
    ".py": FileKind.PYTHON,
    ".html": FileKind.PAGE,
    ".yaml": FileKind.YAML,
    ".yml": FileKind.YAML,
}
_DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_SNIFFED_JSON_BYTES = 2**20
_URL = re.compile(r"[A-Za-z][\w+.-]+:/")  # a path joins the two slashes of a URL
_CALLABLE = re.compile(r"(?:[\w./-]+\.py|[A-Za-z_][\w.]*):[A-Za-z_][\w.]*")
_TUNER_CACHE = b'"tune_params_keys"'  # of Kernel Tuner, whose file has no end while it runs
_UNTUNED = re.compile(rb"Validator,|\w*Gemm\w*TunableOp_|(?:\w+,)*(?:M,N,K|token,model_dim,inter_dim)(?:[,\r\n]|$)")
"""First line of what TunableOp and AITER write."""


def find(given: str | os.PathLike[str], *wanted: FileKind) -> str:
    """Return the file of a wanted kind that a path names: itself, or the one in a folder. URLs stay as they are.

    Args:
        given: a file, a folder, the URL of a database, or a device whose landscapes ship with gemmtune.
        wanted: kinds that the caller reads, the preferred one first.

    Raises:
        UsageError: the path is empty, names nothing, cannot be read, or names something else. The message says what it
            names, what takes that, and which file was meant; its class is that of the first wanted kind.
    """
    text, error = os.fspath(given), _ERRORS.get(wanted[0], UsageError)
    refuse_empty(text, wanted[0].value)
    if "://" in text and FileKind.DATABASE in wanted:
        return text
    if _URL.match(text) and not os.path.lexists(text):
        raise error(f"{_without_password(text)} is the URL of a database{_instead(FileKind.DATABASE, wanted, text)}")
    path = Path(text)
    try:
        if path.is_dir():
            return _in_folder(path, text, wanted, error)
        path.stat()
        kind = kind_of_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return _recorded(path, text, wanted, error)
    except (OSError, ValueError) as refused:
        raise error(f"cannot read {wanted[0].value} {text}: {_reason(refused)}") from None
    if path.is_file() and not path.stat().st_size and wanted != (FileKind.DATABASE,):
        raise error(f"{text} is empty; {_wanted(wanted)} is wanted here")
    damaged = (kind is FileKind.OTHER and wanted[0] is FileKind.CAMPAIGN) or (
        kind is FileKind.JSON and wanted[0] in (FileKind.TABLE, FileKind.INDUCTOR, FileKind.LANDSCAPES)
    )
    if kind is None or kind in wanted or damaged:
        return text  # whoever reads it says what is wrong with it
    raise error(f"{text} is {kind.noun}{_instead(kind, wanted, text)}")


def find_database(given: str | os.PathLike[str], *, made: bool) -> str:
    """Return the database that a path or URL names, as `find` does; if it may be made, a missing file is one."""
    text = os.fspath(given)
    refuse_empty(text, FileKind.DATABASE.value)
    return text if made and "://" not in text and not os.path.lexists(text) else find(text, FileKind.DATABASE)


def kind_of_file(path: Path) -> FileKind | None:
    """Return the kind of a file by its content and name; None where only a reader of its format can tell.

    Raises:
        OSError: the file cannot be read.
    """
    if not path.is_file():
        return None  # a pipe: what is looked at is gone
    with path.open("rb") as file:
        if (head := file.read(16)) == b"SQLite format 3\0":
            return FileKind.DATABASE
        head += file.read(_SNIFFED_JSON_BYTES - len(head))
    name, begins = path.name.lower(), head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if name.endswith((".csv.gz", ".json.gz")):
        return FileKind.LANDSCAPES
    if not begins or name.endswith(_DATABASE_SUFFIXES):
        return _SUFFIXES.get(path.suffix.lower()) if path.suffix else None
    if name.endswith(".csv"):
        return FileKind.RECORDING if _UNTUNED.match(begins) else FileKind.LANDSCAPES
    if path.suffix.lower() in _SUFFIXES:
        return _SUFFIXES[path.suffix.lower()]
    if begins.startswith((b"{", b"[")) or name.endswith(".json"):
        if _TUNER_CACHE in head:
            return FileKind.LANDSCAPES
        return None if len(head) == _SNIFFED_JSON_BYTES else _kind_of_json(head)
    return FileKind.PAGE if begins[:9].lower() in (b"<!doctype", b"<html lan") else FileKind.OTHER


def json_kind(fields: Mapping[str, Any]) -> FileKind | None:
    """Return the kind of a JSON object by the fields that only this kind has."""
    if fields and all(name.startswith(("('", "_")) for name in fields):
        return FileKind.RECORDING  # of FlashInfer's autotuner
    if "bundle" in fields and isinstance(tables := fields.get("tables"), dict) and tables:
        first = next(iter(tables.values()))
        return json_kind(first) if isinstance(first, dict) else None
    if "made_with" in fields:
        return FileKind.INDUCTOR
    if "rounding_bound" in fields:
        return FileKind.CUTE
    if "landscapes" in fields and "curves" in fields:
        return FileKind.COMPARISON
    if {"command", "started_at", "evaluations"} <= fields.keys():
        return FileKind.RUN
    if {"arms", "call"} <= fields.keys():
        return FileKind.BENCH
    if "cache" in fields or "results" in fields:
        return FileKind.LANDSCAPES
    if {"schema", "rows", "ranges"} <= fields.keys():
        return FileKind.TABLE
    if {"schema", "kernels", "table_sha256"} <= fields.keys():
        return FileKind.TRITON
    if fields and all("+" in key and isinstance(rows, list) for key, rows in fields.items()):
        return FileKind.LOOKUP
    return FileKind.SERVING if fields and all(re.fullmatch(r"\d+|triton_version", key) for key in fields) else None


def refuse_empty(path: str | os.PathLike[str], what: str) -> None:
    """Raise a UsageError for the empty path of an unset variable, which Python takes for this folder."""
    if not os.fspath(path).strip():
        raise UsageError(f"the path of the {what} is empty, as of a variable that is not set: name it, or leave it out")


def _kind_of_json(head: bytes) -> FileKind | None:
    try:
        record = json.loads(head)
    except (ValueError, RecursionError):
        return None
    return (json_kind(record) if isinstance(record, dict) else None) or FileKind.JSON


def _in_folder(path: Path, text: str, wanted: tuple[FileKind, ...], error: type[UsageError]) -> str:
    """Return the file of a wanted kind in a folder; of several landscapes, the folder."""
    held = os.listdir(path)
    for kind in wanted:
        if found := _first(path, kind):
            return text if kind is FileKind.LANDSCAPES else str(found)
    others = [kind for kind in _IN_A_FOLDER if _first(path, kind)]
    if not held:
        raise error(f"{text} is an empty folder; {_wanted(wanted)} is wanted here")
    if not others:
        looked = " nor ".join(dict.fromkeys(name for kind in wanted for name in _IN_A_FOLDER.get(kind, ())[:1]))
        lacking = f"is a folder with neither {looked}" if " nor " in looked else f"is a folder without {looked}"
        raise error(f"{text} {lacking if looked else 'is a folder'}; {_wanted(wanted)} is wanted here")
    raise error(f"{text} is a folder with {others[0].noun}{_instead(others[0], wanted, text)}")


def _first(folder: Path, kind: FileKind) -> Path | None:
    names = _IN_A_FOLDER.get(kind, ())
    return next((path for name in names for path in sorted(folder.glob(name)) if path.is_file()), None)


def _recorded(path: Path, text: str, wanted: tuple[FileKind, ...], error: type[UsageError]) -> str:
    """Return the name of a device whose landscapes ship with gemmtune; no other path may be missing."""
    try:
        catalogue.device(text)
    except DeviceError:
        if _CALLABLE.fullmatch(text):
            raise error(f"{text} is a model's name: {_MODEL_TAKEN}; {_wanted(wanted)} is wanted here") from None
        near = os.listdir(path.parent) if path.parent.is_dir() else []
        beside = "" if path.parent == Path() else f"{path.parent}{os.sep}"
        meant = did_you_mean(path.name, near).replace("did you mean ", f"did you mean {beside}").removesuffix(" ")
        makes = ", which gemmtune tune makes" if wanted[0] is FileKind.DATABASE else ""
        way = f": {meant}" if meant else f"; {_wanted(wanted)} is wanted here{makes}"
        raise error(f"no file or folder {text} is here{way}") from None
    if FileKind.LANDSCAPES in wanted:
        return text
    raise error(f"{text} names landscapes that ship with gemmtune{_instead(FileKind.LANDSCAPES, wanted, text)}")


def _instead(kind: FileKind, wanted: tuple[FileKind, ...], text: str) -> str:
    """Return the end of a message: what takes this kind, what is wanted, and where or how to get it."""
    path = Path(text)
    above = [path, path.parent, path.parent.parent] if not _URL.match(text) else []
    beside = (found for folder in above for each in wanted if (found := _first(folder, each)))
    near = next((f", such as {found}" for found in beside), "")
    ways = (_WAYS[kind, each] for each in wanted if (kind, each) in _WAYS)
    way = next((f"; {command} {_without_password(text)} writes it" for command in ways), "")
    return f": {_TAKEN[kind]}; {_wanted(wanted)} is wanted here{near or way}"


def _wanted(wanted: tuple[FileKind, ...]) -> str:
    """Return the kinds that are wanted, in words."""
    if wanted == (FileKind.RECORDING,):
        return "a model, MODULE:CALL, or a recorded program"
    nouns = [kind.noun for kind in wanted[:3]]
    return f"{', '.join(nouns[:-1])} or {nouns[-1]}" if len(nouns) > 1 else nouns[0]


def _reason(refused: Exception) -> str:
    if isinstance(refused, PermissionError):
        return "you may not read it; ask whose it is, or chmod it"
    return "its name is malformed" if isinstance(refused, ValueError) else str(getattr(refused, "strerror", refused))


def _without_password(url: str) -> str:
    return re.sub(r":/+([^:/@]*):[^@]*@", r"://\1:***@", url)
