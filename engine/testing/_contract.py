"""Helpers of the conformance checks: a requirement, and a run in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from gemmtune.engine.records.errors import ContractError

__all__ = ["HEAVY", "require", "run_alone"]

HEAVY = ("torch", "triton", "cutlass", "ray")
"""Packages that describing a space, scoring and exporting must not load."""


def require(held: bool, plugin: type, broken: str) -> None:
    """Raise unless a promise was held.

    Raises:
        ContractError: the promise was not held; the message names the plug-in and continues with `broken`.
    """
    if not held:
        raise ContractError(f"{plugin.__module__}.{plugin.__qualname__} {broken}")


def run_alone(program: str, plugin: type, hash_seed: str = "0") -> dict[str, object]:
    """Run a program in a fresh interpreter and an empty folder, with the plug-in's module and name as arguments.

    Returns:
        JSON object that the program printed.

    Raises:
        ContractError: the program failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: S603 (our own interpreter, our own code)
            [sys.executable, "-c", program, plugin.__module__, plugin.__qualname__],
            cwd=folder,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )
    require(done.returncode == 0, plugin, f"fails in a fresh process: {done.stderr.strip()[-300:]}")
    printed: dict[str, object] = json.loads(done.stdout)
    return printed
