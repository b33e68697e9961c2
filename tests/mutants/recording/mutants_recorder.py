"""Write down which functions of the source each test file reaches, in every process that the tests start.

Where MUTANTS_REACH names a file, a line in the site-packages of a copy imports this module first thing. Each process
then adds lines to that file: test file, source file and function, separated by tabs. What a process does after the test
file that started it, such as a shared cluster, counts for that file.
"""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType, FrameType
from typing import Any

SOURCES = ("engine/", "spaces/", "objectives/", "gemmtune/")
LINKED = ("gemmtune/engine/", "gemmtune/spaces/", "gemmtune/objectives/")
"""Folders of the package, which are links."""
TREE = os.path.abspath(f"{__file__}/../../../..") + "/"  # without pathlib: each child imports this first
_OUT = os.open(os.environ["MUTANTS_REACH"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_seen: set[tuple[object, ...]] = set()


def write(*fields: str) -> None:
    """Add a line, whole, also where other processes add theirs."""
    os.write(_OUT, ("\t".join(fields) + "\n").encode())


def entered(code: CodeType) -> None:
    """Write down a function of the source that the running test's file has not reached in this process.

    Bodies of modules and classes run on import, which says little; the compiler leaves only them without CO_OPTIMIZED.
    """
    if not code.co_filename.startswith(TREE) or not code.co_flags & 1:
        return
    path, test = code.co_filename[len(TREE) :], os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
    if path.startswith(LINKED):
        path = path.removeprefix("gemmtune/")
    if test and path.startswith(SOURCES) and (test, code) not in _seen:
        _seen.add((test, code))
        if (found := (test, path, code.co_qualname)) not in _seen:  # a function may hold several comprehensions
            _seen.add(found)
            write(*found)


if sys.version_info >= (3, 12):
    _tool: Any = sys.monitoring

    def _started(code: CodeType, _: int) -> Any:
        entered(code)
        return _tool.DISABLE

    _tool.use_tool_id(_tool.COVERAGE_ID, "mutants")
    _tool.register_callback(_tool.COVERAGE_ID, _tool.events.PY_START, _started)
    _tool.set_events(_tool.COVERAGE_ID, _tool.events.PY_START)
else:

    def _called(frame: FrameType, event: str, argument: object) -> None:
        entered(frame.f_code)

    sys.settrace(_called)
    threading.settrace(_called)
