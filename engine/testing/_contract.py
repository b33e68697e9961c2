"""Helpers of the conformance checks: a requirement, and a comparison with a fresh process."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import TypeVar

from gemmtune.engine.records.errors import ContractError

_Plugin = TypeVar("_Plugin")
_HEAVY = ("torch", "triton", "cutlass", "ray")  # describing a space, scoring and exporting must not load them
_PROGRAM = """
import importlib, json, os, sys
module, name, file, function, *heavy = sys.argv[1:]
plugin = getattr(importlib.import_module(module), name)
answer = getattr(importlib.import_module(file), function)(plugin)
print(json.dumps([answer, [package for package in heavy if package in sys.modules], os.listdir()]))
"""


def require(held: bool, plugin: type, broken: str) -> None:
    """Raise unless a promise was held.

    Raises:
        ContractError: the promise was not held; the message names the plug-in and continues with `broken`.
    """
    if not held:
        raise ContractError(f"{plugin.__module__}.{plugin.__qualname__} {broken}")


def require_lightness(answer: Callable[[type[_Plugin]], str], plugin: type[_Plugin]) -> None:
    """Compare a plug-in's answer here with that of a fresh interpreter in an empty folder, with another hash seed.

    Raises:
        ContractError: the process failed, loaded a heavy package, left a file, or gave another answer.
    """
    wanted, seed = answer(plugin), "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    with tempfile.TemporaryDirectory() as folder:
        names = (plugin.__module__, plugin.__qualname__, answer.__module__, answer.__qualname__)
        done = subprocess.run(  # noqa: S603 (our own interpreter, our own code)
            [sys.executable, "-c", _PROGRAM, *names, *_HEAVY],
            cwd=folder,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
    require(done.returncode == 0, plugin, f"fails in a fresh process: {done.stderr.strip()[-300:]}")
    given, loaded, left = json.loads(done.stdout)
    require(not loaded, plugin, f"imported {loaded}")
    require(not left, plugin, f"left {left} in the working directory")
    require(given == wanted, plugin, "answers differently in another process")
