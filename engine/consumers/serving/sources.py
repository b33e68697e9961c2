"""The JSON files of an installed package, a wheel, a folder or by themselves, read without importing a package."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement

from gemmtune.engine.io.reading import read_bytes
from gemmtune.engine.records.errors import UsageError

_MOST_BYTES = 2**24
"""Largest size of a tuned file; the engines' are below 16 KiB."""
_TRITON_OF_TORCH = {"2.11": "3.6", "2.12": "3.7", "2.13": "3.7", "2.14": "3.8", "2.15": "3.9"}
"""Release of Triton that each release of torch requires."""


def json_files(source: str) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield path and content of each JSON file of a source, sorted by path; raises UsageError if it cannot be read."""
    path = Path(source)
    if path.is_dir():
        files = ((file.relative_to(path), file) for file in sorted(path.rglob("*.json")) if file.is_file())
        yield from ((PurePosixPath(name.as_posix()), _content(file)) for name, file in files)
    elif path.suffix == ".json":
        yield PurePosixPath(path.as_posix()), _content(path)
    elif path.suffix == ".whl":
        with _wheel(path) as wheel:
            for name in sorted(name for name in wheel.namelist() if name.endswith(".json")):
                yield PurePosixPath(name), _unpacked(wheel, name)
    else:
        for installed in sorted(_installed(source).files or (), key=str):
            if installed.suffix == ".json":
                yield PurePosixPath(installed.as_posix()), _content(Path(str(installed.locate())))


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


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except (PackageNotFoundError, ValueError):
        raise UsageError(f"{name} is no folder, no wheel, no tuned file (.json) and no installed package") from None


def _requirements(source: str) -> list[str]:
    path = Path(source)
    if path.is_dir() or path.suffix == ".json":
        return []
    if path.suffix != ".whl":
        return _installed(source).requires or []
    with _wheel(path) as wheel:
        metadata = next((name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")), None)
        lines = _unpacked(wheel, metadata).decode("utf-8", "replace").splitlines() if metadata else []
    return [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]


@contextmanager
def _wheel(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a wheel; refuse one that is damaged, encrypted or packed by another method while it is read."""
    try:
        with zipfile.ZipFile(path) as wheel:
            yield wheel
    except OSError as refused:
        raise UsageError(f"cannot read {path}: {refused.strerror or refused}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as refused:
        raise UsageError(f"cannot read {path}: it is no whole wheel ({refused})") from None


def _content(file: Path) -> bytes:
    return _bounded(read_bytes(file, "tuned file"), str(file))


def _unpacked(wheel: zipfile.ZipFile, name: str) -> bytes:
    with wheel.open(name) as stream:  # a wheel may say less than it holds
        return _bounded(stream.read(_MOST_BYTES + 1), name)


def _bounded(content: bytes, name: str) -> bytes:
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{name} holds more than {_MOST_BYTES} bytes; it is no tuned file")
    return content
