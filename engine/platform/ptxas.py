"""Which ptxas Inductor has Triton run: not always Triton's own, and another one makes other binaries.

Source: `_set_triton_ptxas_path` in torch/_inductor/runtime/compile_tasks.py. Torch's wheels for CUDA hold one up to
2.12: in 2.11's for CUDA 13.0 it is of release 13.0, where Triton 3.6's own is of 12.8. A build has to run the same one,
or the binary that is timed is not the one that is served. For Blackwell Triton has a ptxas apart, which Inductor leaves
alone.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from gemmtune.engine.records.errors import ToolchainMissing

__all__ = ["VARIABLE", "inductors_ptxas", "release", "tritons_ptxas"]

VARIABLE = "TRITON_PTXAS_PATH"
_RELEASE = re.compile(r"\bV(\d+(?:\.\d+)+)")


def inductors_ptxas(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The one that VARIABLE names, or that torch brings; None where Triton runs its own, as where VARIABLE is empty."""
    if (given := environment.get(VARIABLE)) is not None:
        return Path(given) if given else None
    torch = find_spec("torch")  # does not import it
    if torch is None or torch.origin is None:
        return None
    brought = Path(torch.origin).with_name("bin") / "ptxas"
    return brought if brought.is_file() and os.access(brought, os.X_OK) else None


def tritons_ptxas() -> Path | None:
    """Triton's own; None where there is no Triton."""
    triton = find_spec("triton")
    if triton is None or triton.origin is None:
        return None
    return Path(triton.origin).with_name("backends") / "nvidia/bin/ptxas"


@cache
def release(ptxas: Path) -> str:
    """What it says it is: `13.0.88`.

    Raises:
        ToolchainMissing: it does not run, or names no release.
    """
    way_out = f"name one that runs in {VARIABLE}, or unset that"
    try:
        asked = [str(ptxas), "--version"]
        said = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainMissing(f"{ptxas} does not run ({error}): {way_out}") from None
    if found := _RELEASE.search(said):
        return found[1]
    raise ToolchainMissing(f"{ptxas} --version names no release, but {said.strip()[-80:]!r}: {way_out}")
