"""Landscapes as files: one CSV, gzip where its name ends in .gz, one row a recorded config.

Where the name ends in .json or .json.gz, it is read as a cache file of Kernel Tuner or as results in the T4 format.

Columns, in any order:
    problem.<field>        name the task; a file without them holds one task, named by its stem
    task.<fact>            true of the whole task: space, device (SKU), toolchain, protocol, date, ...
    <parameter>            every column not listed here; blank in all rows of a task that lacks the parameter
    time_us or time_ms     the recorded time; read where the status is ok
    times_us or times_ms   the launches behind it, joined by `;` (optional)
    status                 `ok`, one of our statuses with its reason (`build_failed: out of registers`), or another
                           tool's word for a failure
    build.<fact>           registers, shared_bytes, spill_bytes, threads, seconds (optional)
    cost.seconds           what the evaluation cost in all; or its parts compile_ms, bench_ms, framework_ms (optional)
    n_reps, any other name with a dot: bookkeeping, not read
Times of failures are not kept.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.store.files import write_whole
from gemmtune.engine.store.landscapes.kernel_tuner_cache import load as load_json
from gemmtune.engine.store.landscapes.kernel_tuner_cache import parse as parse_cache
from gemmtune.engine.store.landscapes.reader import parse
from gemmtune.engine.store.landscapes.t4_results import parse as parse_t4
from gemmtune.engine.store.landscapes.writer import render

__all__ = ["read_landscapes", "write_landscapes"]


def read_landscapes(path: str | os.PathLike[str]) -> tuple[Landscape, ...]:
    """Every landscape of a file, in the order of their first rows.

    Raises:
        LandscapeError: the file is missing, is not what its name says, or a row breaks the format; the message names
            the file, the place, the value and the way out.
    """
    file = Path(path)
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8-sig")
    except FileNotFoundError:
        raise LandscapeError(f"no landscape file {file}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise LandscapeError(f"{file} is not whole gzip ({error}); the name of a plain CSV ends in .csv") from None
    except UnicodeDecodeError as error:
        raise LandscapeError(f"{file} is not text in UTF-8 ({error}); the name of a gzip CSV ends in .csv.gz") from None
    except OSError as error:
        raise LandscapeError(f"cannot read landscape {file}: {error.strerror}") from None
    if file.name.removesuffix(".gz").endswith(".json"):
        return (_parse_json(file, text),)
    return parse(file, text)


def _parse_json(file: Path, text: str) -> Landscape:
    found = load_json(file, text)
    if "cache" in found:
        return parse_cache(file, found)
    if "results" in found:
        return parse_t4(file, found)
    keys = ", ".join(found) or "none"
    raise LandscapeError(
        f"{file} has neither 'cache', as a cache file of Kernel Tuner, nor 'results', as the T4 format; it has: {keys}"
    )


def write_landscapes(path: str | os.PathLike[str], landscapes: Sequence[Landscape]) -> None:
    """Write all landscapes to one file; the same landscapes give the same bytes.

    What was there before stays whole until the new file is complete. All reads back equal but for this: a reason is one
    line, and a landscape without a problem whose name is not `field=value,...` is named by the file.

    Raises:
        UsageError: the file cannot be written.
        LandscapeError: a landscape would not read back equal.
    """
    file = Path(path)
    data = render(file, landscapes).encode()
    if file.suffix == ".gz":
        data = gzip.compress(data, compresslevel=9, mtime=0)
    write_whole(file, data)
