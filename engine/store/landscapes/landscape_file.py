"""Read and write landscape files: CSV with one row per recorded config, gzip where the name ends in .gz.

A file whose name ends in .json or .json.gz is read as `tuner_json` says. Columns of a CSV, in any order:

    problem.<field>        the task's problem; a file without such columns holds one task, named by the file
    task.<fact>            true of the whole task: space, device (SKU), toolchain, protocol, date, ...
    <parameter>            every column not listed here; blank in all rows of a task that lacks the parameter
    time_us or time_ms     the recorded time; read where the status is ok
    times_us or times_ms   the single launches, joined by `;` (optional)
    status                 `ok`, one of our statuses with its reason (`build_failed: out of registers`), or another
                           tool's word for a failure
    build.<fact>           registers, shared_bytes, spill_bytes, threads, seconds (optional)
    cost.seconds           total cost of the evaluation; or its parts compile_ms, bench_ms, framework_ms (optional)

`n_reps` and any other name with a dot are ignored. Times of failures are not kept.
"""

import csv
import gzip
import os
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import ModuleType

from gemmtune.engine.io.paths import FileKind, find
from gemmtune.engine.io.reading import read_bytes, text_pieces
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import DeviceError, LandscapeError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.store import recorded, searched
from gemmtune.engine.store.files import write_whole
from gemmtune.engine.store.landscapes import csv_reader, csv_writer, tuner_json


def read_landscapes(
    path: str | os.PathLike[str], problems: Set[Workload | None] | None = None
) -> tuple[Landscape, ...]:
    """Return the landscapes of a file, in the order of their first rows: all, or those of some problems.

    Rows of other problems are not checked: name problems for files that ship alone.

    Raises:
        LandscapeError: the file is missing, is not what its name says, or breaks the format; the message names the
            file, the line, the column, the value and the way out.
    """
    file = Path(path)
    return _parsed(file, read_bytes(file, "landscape", LandscapeError), problems)


def find_landscapes(source: str | os.PathLike[str]) -> tuple[Landscape, ...]:
    """Return the landscapes of a file, of a folder's CSV files, or those that ship with gemmtune of a device.

    Raises:
        DeviceError: the source is neither, and looks like a device's name.
        LandscapeError: the source is something else, a file is malformed, or nothing is recorded of the device.
    """
    path = Path(source)
    if not path.exists() and not path.suffix and path.name == str(source):
        try:
            sku = catalogue.device(str(source)).sku
        except DeviceError as error:
            raise DeviceError(f"no file {source} is here, and {error}") from None
        recorded = [(catalogue.device(each.context["device"]).sku, each) for each in _of_files(embedded())]
        if not any(own == sku for own, _ in recorded):
            skus = ", ".join(sorted({own for own, _ in recorded}))
            raise LandscapeError(f"nothing is recorded of {sku}; recorded: {skus}; the name of a file ends in .csv")
        return tuple(each for own, each in recorded if own == sku)
    found = Path(find(source, FileKind.LANDSCAPES))
    return _of_files(sorted(found.glob("*.csv*")) if found.is_dir() else [found])


def _of_files(paths: Iterable[Path]) -> tuple[Landscape, ...]:
    return tuple(each for path in paths for each in read_landscapes(path))


def write_landscapes(path: str | os.PathLike[str], landscapes: Sequence[Landscape]) -> None:
    """Write all landscapes to one CSV file; equal landscapes give equal bytes.

    An existing file stays whole until the new one is complete. Two things do not read back: line breaks of a reason,
    and the name of a landscape that has no problem, unless it is `field=value,...`.

    Raises:
        UsageError: the file cannot be written.
        LandscapeError: a landscape would not read back equal.
    """
    file = Path(path)
    data = csv_writer.render(file, landscapes).encode()
    if file.suffix == ".gz":
        data = gzip.compress(data, compresslevel=9, mtime=0)
    write_whole(file, data)


def embedded(space: str | None = None) -> tuple[Path, ...]:
    """Return the shipped landscape files, sorted by name; with `space`, those that hold a task of that space."""
    return tuple(path for path in _shipped(recorded) if space is None or _holds(path, space))


def shipped_searches(space: str) -> tuple[Path, ...]:
    """Return the shipped files with what searches of a space measured, sorted by name; they lack most configs."""
    return tuple(path for path in _shipped(searched) if _holds(path, space))


def _shipped(package: ModuleType) -> list[Path]:
    entries = (Path(str(entry)) for entry in resources.files(package).iterdir())
    return sorted(path for path in entries if path.name.endswith(".csv.gz"))


def _holds(path: Path, space: str) -> bool:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
        return any(row.get("task.space") == space for row in csv.DictReader(stream))


@lru_cache(maxsize=6)  # one parse takes a second, and campaigns of one process replay the same files
def _parsed(file: Path, data: bytes, problems: Set[Workload | None] | None) -> tuple[Landscape, ...]:
    pieces = text_pieces(data, file, "landscape", LandscapeError)
    if file.name.removesuffix(".gz").endswith(".json"):
        return (tuner_json.parse(file, "".join(pieces)),)
    return csv_reader.parse(file, pieces, problems)
