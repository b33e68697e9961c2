"""What the conformance suites share: how a broken contract is said, and a plug-in run in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from gemmtune.engine.records.errors import ContractError

__all__ = ["HEAVY", "require", "run_alone"]

HEAVY = ("torch", "triton", "cutlass", "ray")
"""Packages that describing, scoring and exporting must not load."""


def require(held: bool, plugin: type, broken: str) -> None:
    """Raise where a promise was not held.

    Raises:
        ContractError: naming the plug-in and what it did.
    """
    if not held:
        raise ContractError(f"{plugin.__module__}.{plugin.__qualname__} {broken}")


def run_alone(program: str, plugin: type, hash_seed: str = "0") -> dict[str, object]:
    """Run a program in a fresh interpreter, in an empty folder, with the plug-in's module and name as arguments.

    Returns:
        The JSON object the program printed.

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
    require(done.returncode == 0, plugin, f"fails in a process of its own: {done.stderr.strip()[-300:]}")
    printed: dict[str, object] = json.loads(done.stdout)
    return printed
