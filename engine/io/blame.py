"""Say whose code raised an exception, and where."""

import os
import re
import sys
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType

from gemmtune.engine.records.errors import Stopped

STOPS = (KeyboardInterrupt, Stopped)
"""Requests to end the program, which no handler of somebody's failing code may take for a failure."""

_FOREIGN = {"site-packages", "dist-packages"}
"""Folders that hold installed packages, by their name; other ones hold the packages' metadata too."""
_TOLD = re.compile(r'File "([^"]+)", line ([0-9]+)')
_LIBRARY = os.path.dirname(os.__file__)


def account(error: BaseException, packages: Collection[str] | None = ()) -> str:
    """Return an exception's type and text, with the place in the user's code; `packages` as for `line_of`."""
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:  # the class is the user's
        text = ""
    place = line_of(error, packages)
    return f"{type(error).__name__}: {text}".rstrip(": ") + (f" ({place})" if place else "")


def first_line(error: BaseException) -> str:
    """Return an exception's type and the first line of its text, 500 characters at most."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"[:500]


def line_of(error: BaseException, packages: Collection[str] | None = ()) -> str:
    """Return file and line of the last call in the user's code on the way to an exception; empty where none was on it.

    Installed packages are not the user's, but for those that `packages` names: all with None, but gemmtune never.
    """
    found = [(f.f_code.co_filename, n) for f, n in walk_tb(error.__traceback__) if _is_users_frame(f, packages)]
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        found.append((error.filename, error.lineno or 0))
    return _place(*found[-1]) if found else ""


def line_above() -> str:
    """Return file and line of the nearest caller in the user's code; empty without one."""
    frames = ((frame, line) for frame, line in walk_stack(None) if _is_users_frame(frame, ()))
    return next((_place(frame.f_code.co_filename, line) for frame, line in frames), "")


def line_in(text: str) -> str:
    """Return file and line of the last call in the user's code that a text of torch names; empty without one."""
    found = [(file, int(line)) for file, line in _TOLD.findall(text) if _is_users(file, "", ())]
    return _place(*found[-1]) if found else ""


def _place(file: str, line: int) -> str:
    file = file.removeprefix(f"{_here()}{os.sep}")
    return f"{file}, line {line}" if line else file


def _is_users_frame(frame: FrameType, packages: Collection[str] | None) -> bool:
    file = frame.f_code.co_filename
    if not os.path.isabs(file) and not file.startswith("<"):  # a compiled module names the file of its source's folder
        file = str(frame.f_globals.get("__file__") or file)
    return _is_users(file, str(frame.f_globals.get("__name__")).partition(".")[0], packages)


def _is_users(file: str, package: str, packages: Collection[str] | None) -> bool:
    if package == "gemmtune" or file.startswith("<"):
        return False
    is_installed = _is_installed(file)
    if file.startswith(_LIBRARY) and not is_installed:
        return False
    return not is_installed or packages is None or package in packages


def _is_installed(file: str) -> bool:
    """Return whether a file lies where packages are installed, and in no working directory at or below that place."""
    if _FOREIGN & set(Path(file).parts):
        return True
    here = _here()
    depth = len(here) if file.startswith(f"{here}{os.sep}") else 0
    folders = (os.path.join(here, folder).rstrip(os.sep) for folder in sys.path)
    return any(
        len(folder) > depth and file.startswith(f"{folder}{os.sep}") and _holds_packages(folder) for folder in folders
    )


@cache
def _holds_packages(folder: str) -> bool:
    """Return whether packages are installed in a folder, besides gemmtune, whose metadata may be in its checkout."""
    with suppress(OSError):
        return any(name.endswith(".dist-info") and not name.startswith("gemmtune-") for name in os.listdir(folder))
    return False


def _here() -> str:
    with suppress(OSError):  # the folder may be gone
        return str(Path.cwd())
    return ""
