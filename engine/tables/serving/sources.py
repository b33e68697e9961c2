"""The JSON files of an installed package, a wheel or a folder, read without importing the package."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement

from gemmtune.engine.records.errors import UsageError

__all__ = ["json_files", "pinned_triton"]

_MOST_BYTES = 2**24
"""Largest size of a tuned file; the engines' are below 16 KiB."""
_TRITON_OF_TORCH = {"2.11": "3.6", "2.12": "3.7", "2.13": "3.7", "2.14": "3.8", "2.15": "3.9"}
"""Release of Triton that each release of torch requires."""


def json_files(source: str) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield path and content of each JSON file of a source, sorted by path.

    Args:
        source: a folder, a wheel's file, or the name of an installed package.

    Raises:
        UsageError: there is no such source, or it cannot be read.
    """
    path = Path(source)
    try:
        if path.is_dir():
            yield from _of_folder(path)
        elif path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                for name in sorted(name for name in wheel.namelist() if name.endswith(".json")):
                    yield PurePosixPath(name), _bounded(wheel.read(name), name)
        else:
            for file in sorted(_installed(source).files or (), key=str):
                if file.suffix == ".json":
                    yield PurePosixPath(file.as_posix()), _bounded(Path(str(file.locate())).read_bytes(), str(file))
    except (OSError, zipfile.BadZipFile) as refused:
        raise UsageError(f"cannot read {source}: {refused}") from None


def pinned_triton(source: str) -> str:
    """Return the release of Triton, `3.8`, that an installed package or a wheel requires; empty if it names none."""
    for requirement in _requirements(source):
        try:
            parsed = Requirement(requirement)
        except InvalidRequirement:
            continue
        if parsed.name in {"torch", "triton"} and (pins := [s for s in parsed.specifier if s.operator == "=="]):
            release = ".".join(pins[0].version.split(".")[:2])
            found = release if parsed.name == "triton" else _TRITON_OF_TORCH.get(release, "")
            if found:
                return found
    return ""


def _of_folder(folder: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    for file in sorted(folder.rglob("*.json")):
        if file.is_file():
            yield PurePosixPath(file.relative_to(folder).as_posix()), _bounded(file.read_bytes(), str(file))


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except (PackageNotFoundError, ValueError):
        raise UsageError(f"{name} is no folder, no wheel and no installed package") from None


def _requirements(source: str) -> list[str]:
    path = Path(source)
    if path.is_dir():
        return []
    if path.suffix != ".whl":
        return _installed(source).requires or []
    with zipfile.ZipFile(path) as wheel:
        metadata = next((name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")), None)
        lines = wheel.read(metadata).decode("utf-8", "replace").splitlines() if metadata else []
    return [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]


def _bounded(content: bytes, name: str) -> bytes:
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{name} holds {len(content)} bytes > {_MOST_BYTES}; it is no tuned file")
    return content
