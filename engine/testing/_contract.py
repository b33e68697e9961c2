"""Helpers of the conformance checks: a run of checks, a requirement, and a comparison with a fresh process."""

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from gemmtune.engine.io.blame import account
from gemmtune.engine.records.errors import ContractError

_Plugin = TypeVar("_Plugin")
_HEAVY = ("torch", "triton", "cutlass", "ray")  # describing a space, scoring and exporting must not load them
_PROGRAM = r"""
import importlib, json, operator, os, pickle, sys
module, name, file, function, *heavy = sys.argv[1:]
given = sys.stdin.buffer.read()
plugin = pickle.loads(given) if given else operator.attrgetter(name)(importlib.import_module(module))
answer = getattr(importlib.import_module(file), function)(plugin)
print("\n" + json.dumps([answer, [package for package in heavy if package in sys.modules], os.listdir()]))
"""


def run_checks(checks: Iterable[Callable[[type[_Plugin]], None]], plugin: type[_Plugin], base: type) -> None:
    """Run the checks of a suite in order; an exception that the plug-in lets out breaks its contract, too.

    Raises:
        ContractError: the plug-in is no class of its base, or a check failed; the message names it in one line.
    """
    if not (isinstance(plugin, type) and issubclass(plugin, base)):
        raise ContractError(f"{plugin!r} is not a class derived from {base.__name__}")
    for check in checks:
        try:
            check(plugin)
        except ContractError:
            raise
        except (Exception, SystemExit) as error:
            what = account(error, {plugin.__module__.partition(".")[0]})
            purpose = (check.__doc__ or "").partition("\n")[0].removeprefix("Check ").rstrip(".")
            require(False, plugin, f"raised {' '.join(what.split())}; the suite checked {purpose}", error)


def require(held: bool, plugin: type, broken: str, cause: BaseException | None = None) -> None:
    """Raise unless a promise was held.

    Raises:
        ContractError: the promise was not held; the message names the plug-in and continues with `broken`.
    """
    if not held:
        raise ContractError(f"{plugin.__module__}.{plugin.__qualname__} {broken}") from cause


def require_lightness(answer: Callable[[type[_Plugin]], str], plugin: type[_Plugin]) -> None:
    """Compare a plug-in's answer with that of a fresh process, as `require_repeat`, which stays light beside it.

    Raises:
        ContractError: the process failed, loaded a heavy package, left a file, or gave another answer.
    """
    fresh = _answer_elsewhere(answer, plugin)
    if fresh is None:
        return
    given, loaded, left = fresh
    require(not loaded, plugin, f"imported {loaded}")
    require(not left, plugin, f"left {left} in the working directory")
    require(given == answer(plugin), plugin, "answers differently in another process")


def require_repeat(answer: Callable[[type[_Plugin]], str], plugin: type[_Plugin], broken: str) -> None:
    """Compare a plug-in's answer here with that of a fresh process with another hash seed and random state.

    Raises:
        ContractError: the process failed, or gave another answer, of which `broken` tells.
    """
    fresh = _answer_elsewhere(answer, plugin)
    require(fresh is None or fresh[0] == answer(plugin), plugin, broken)


def _answer_elsewhere(
    answer: Callable[[type[_Plugin]], str], plugin: type[_Plugin]
) -> tuple[str, list[str], list[str]] | None:
    """Return a fresh interpreter's answer, the heavy packages it loaded, and the files it left in an empty folder.

    None, with a warning, for a class of a notebook, a script or a function that nothing can carry to another process.
    """
    name, carried = plugin.__qualname__, b""
    if not _is_importable(plugin):
        try:
            import cloudpickle

            carried = cloudpickle.dumps(plugin)
        except Exception as error:  # of the import, or of what the class refers to
            fault = f"{plugin.__module__}.{name} is not compared with a fresh process ({account(error)})"
            warnings.warn(f"{fault}: move it into a module, or pip install cloudpickle", stacklevel=4)
            return None
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    path = os.pathsep.join(os.path.abspath(folder) for folder in [*sys.path, *_root(plugin.__module__)])
    with tempfile.TemporaryDirectory() as folder:
        names = (plugin.__module__, name, answer.__module__, answer.__qualname__)
        done = subprocess.run(  # noqa: S603 (our own interpreter, our own code)
            [sys.executable, "-c", _PROGRAM, *names, *_HEAVY],
            cwd=folder,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            input=carried,
            capture_output=True,
            check=False,
        )
    last = next(reversed(done.stderr.decode(errors="replace").strip().splitlines()), f"exit status {done.returncode}")
    require(done.returncode == 0, plugin, f"fails in a fresh process: {last[:300]}")
    found: tuple[str, list[str], list[str]] = tuple(json.loads(done.stdout.splitlines()[-1]))
    return found


def _is_importable(plugin: type) -> bool:
    """Return whether another process finds the class by its name: not one of a notebook, a script or a function."""
    module = plugin.__module__
    if module == "__main__" or module not in sys.modules:
        return module != "__main__"
    found: object = sys.modules[module]
    for part in plugin.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is plugin


def _root(module: str) -> list[str]:
    """Return the folder that a module of this process is imported from, which need not be on its path."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return [str(Path(file).parents[module.count(".") + (Path(file).stem == "__init__")])] if file else []
