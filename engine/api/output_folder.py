"""The folder that results are written to: checked before anything is measured."""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from gemmtune.engine.io.paths import refuse_empty
from gemmtune.engine.records.errors import TableError, UsageError
from gemmtune.engine.report.layout import count
from gemmtune.engine.store.files import write_whole
from gemmtune.engine.tables.licence import SPDX

_FILES = (".csv", ".db", ".gz", ".html", ".json", ".py", ".toml", ".txt")  # suffixes that no new folder has
_NAMED = 3  # files that a notice names


def make_folder(folder: Path) -> None:
    """Create a folder unless it exists; raises UsageError if it cannot be created or written, or is a file."""
    reason = "you may not write there"
    if folder.suffix in _FILES and not folder.exists():
        raise UsageError(f"{folder} is the name of a file, and a folder is wanted: {folder.with_suffix('')}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return
    except (FileExistsError, NotADirectoryError):
        reason = f"{next(each for each in (folder, *folder.parents) if each.exists())} is a file"
    except PermissionError:
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", "") or "its name is malformed"
    raise UsageError(f"cannot write to {folder}: {reason}; name another folder")


def folder_of(out: str | os.PathLike[str]) -> Path:
    """Return the folder of a path; raises UsageError if it is empty, which Python takes for the current folder."""
    refuse_empty(out, "folder to write to")
    return Path(out)


def write_all(files: Mapping[str, str | bytes], folder: Path) -> list[Path]:
    """Write files below a folder, each whole, in place of an earlier package of ours; return their paths."""
    for parent in dict.fromkeys([folder, *((folder / name).parent for name in files)]):
        make_folder(parent)
    for name, body in files.items():
        write_whole(folder / name, body.encode() if isinstance(body, str) else body)
    written = [folder / name for name in files]
    found = {module for path in written if path.name == "__init__.py" for module in path.parent.glob("*.py")}
    for module in found.difference(written):
        if module.read_bytes().startswith(SPDX.encode()):
            module.unlink()
    return written


def refuse_loss(files: Mapping[str, str | bytes], folder: Path) -> None:
    """Raise a TableError where a file to replace has the table of a GPU that the new one and the campaign's lack."""
    for name, body in files.items():
        held, new = _gpus(folder / name), _gpus(body)
        lost = " and ".join(sorted(held - new))
        if lost and (len(held) > 1 or _gpus(folder.parent / "table.json") != new):
            raise TableError(f"{folder / name} would lose the table of {lost}: export all together, or elsewhere")


def _gpus(content: str | bytes | Path) -> set[str]:
    """Return the names of the GPUs that a consumer's file has tables of; none of another file or a damaged one."""
    with suppress(AttributeError, KeyError, OSError, TypeError, ValueError):
        record = json.loads(content.read_bytes() if isinstance(content, Path) else content)
        return {table["device"]["name"] for table in record.get("tables", {"": record}).values()}
    return set()


def with_packages(written: Iterable[Path]) -> list[Path]:
    """Return the paths of what was written, with a package's folder in the place of its files."""
    paths = list(written)
    packages = {path.parent for path in paths if path.name == "__init__.py"}
    return list(dict.fromkeys(path.parent if path.parent in packages else path for path in paths))


def left_behind(folder: Path, written: Collection[Path]) -> str:
    """Return a line on the files below a consumer's folder that were not written now; empty where there are none."""
    others = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc" and path not in written]
    if not others:
        return ""
    names = [*sorted(str(path.relative_to(folder)) for path in others)[:_NAMED], *["..."] * (len(others) > _NAMED)]
    is_are = "is" if len(others) == 1 else "are"
    return f"{count(len(others), 'file')} in {folder} {is_are} not of this table: {', '.join(names)}"
