"""Recorded landscapes by device or by file."""

import os
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from gemmtune.engine.campaign.replayed_backend import read_all
from gemmtune.engine.io.arguments import check_types
from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.store.landscapes import landscape_file
from gemmtune.engine.store.landscapes.landscape_file import embedded, find_landscapes
from gemmtune.engine.store.landscapes.tuner_writer import write_for_tuner

LandscapeSource: TypeAlias = str | os.PathLike[str] | Landscape
"""A device, a file, or a landscape that was read before."""

_SUFFIXES = (".csv", ".gz", ".json")


def landscapes(*sources: LandscapeSource, space: str | None = None) -> tuple[Landscape, ...]:
    """Read recorded landscapes: those that ship with gemmtune for a device, or those of files.

    Args:
        sources: devices by SKU ("h200"), files, and folders of CSV files. A file is CSV, a cache file of Kernel Tuner
            or T4 results (JSON), plain or as .gz. Without a source, every landscape that ships with gemmtune.
        space: keep only the landscapes of this space; by default of all.

    Returns:
        One landscape per problem and space, in the order of the sources. Times are in nanoseconds.

    Raises:
        DeviceError: the catalogue does not know the device.
        LandscapeError: nothing is recorded of the device or the space, or a file is missing or malformed.

    Example:
        >>> import gemmtune as gt
        >>> first = gt.landscapes("h200", space="triton_mm")[0]
        >>> first.problem.name, len(first.points), round(first.optimum_ns)
        ('1x6144x4096:bf16:nt', 348, 24000)
    """
    for source in sources:
        check_types({"source": source}, {"source": LandscapeSource})
    each_read = ((x,) if isinstance(x, Landscape) else find_landscapes(x) for x in sources)
    found = list(chain.from_iterable(each_read)) if sources else read_all(embedded())
    kept = tuple(x for x in found if space is None or x.context.get("space") == space)
    if not kept:
        spaces = ", ".join(sorted({x.context.get("space", "unnamed") for x in found})) or "nothing"
        raise LandscapeError(f"nothing is recorded in space {space}; recorded: {spaces}")
    return kept


def write_landscapes(
    path: str | os.PathLike[str], landscapes: Landscape | Iterable[Landscape], *, form: str = "csv"
) -> None:
    """Write landscapes to a file that `landscapes` reads, or one of them for another tool.

    Args:
        path: the file; CSV is compressed where its name ends in .gz.
        landscapes: one or several.
        form: "csv", "t4" for T4 results, or "kernel_tuner" for a cache of its simulation mode, both with metadata.

    Raises:
        UsageError: the file cannot be written.
        LandscapeError: the form is unknown, it takes one landscape alone, or what was written would not read back.

    Example:
        >>> import gemmtune as gt
        >>> import tempfile
        >>> first = gt.landscapes("h200", space="triton_mm")[0]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gt.write_landscapes(f"{folder}/first_T4.json", first, form="t4")
        ...     gt.landscapes(f"{folder}/first_T4.json")[0].optimum_ns == first.optimum_ns
        True
    """
    found = [landscapes] if isinstance(landscapes, Landscape) else list(landscapes)
    if form == "csv":
        landscape_file.write_landscapes(path, found)
        return
    if len(found) != 1:
        raise LandscapeError(f"{path}: a file of the form {form} holds one landscape, and {len(found)} are given")
    write_for_tuner(Path(path), found[0], form)


def sources_of(backend: LandscapeSource | Iterable[LandscapeSource]) -> tuple[tuple[Landscape, ...], str | None]:
    """Return the landscapes that a backend names, or else the device that it names; neither for "auto"."""
    if isinstance(backend, str) and not (backend.endswith(_SUFFIXES) or os.sep in backend):
        return (), None if backend == "auto" else backend
    return read_sources(backend), None


def read_sources(sources: LandscapeSource | Iterable[LandscapeSource]) -> tuple[Landscape, ...]:
    """Return the landscapes of one source or several.

    Raises:
        LandscapeError: no source is given, or as `landscapes`.
    """
    those = [sources] if isinstance(sources, str | os.PathLike | Landscape) else list(sources)
    if not those:
        raise LandscapeError("no landscape is named: name a file or a device, for example 'h200'")
    return landscapes(*those)
