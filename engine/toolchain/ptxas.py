"""Find the ptxas that Inductor has Triton run.

Torch's wheels contain a ptxas up to torch 2.12, which Inductor prefers to Triton's own. Builds must run the same one:
otherwise production compiles another binary than the one that was timed. On Blackwell Triton runs a separate ptxas.
Source: `_set_triton_ptxas_path` in torch/_inductor/runtime/compile_tasks.py.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from gemmtune.engine.records.errors import ToolchainMissing

PTXAS_VARIABLE = "TRITON_PTXAS_PATH"
_RELEASE = re.compile(r"\bV(\d+(?:\.\d+)+)")


def inductor_ptxas(environment: Mapping[str, str]) -> Path | None:
    """Return the ptxas that Inductor selects under these environment variables; None if Triton runs its own.

    PTXAS_VARIABLE comes first, then the file in torch's wheel. An empty PTXAS_VARIABLE selects Triton's own.
    """
    if (given := environment.get(PTXAS_VARIABLE)) is not None:
        return Path(given) if given else None
    torch = find_spec("torch")  # does not import it
    if torch is None or torch.origin is None:
        return None
    bundled = Path(torch.origin).with_name("bin") / "ptxas"
    return bundled if bundled.is_file() and os.access(bundled, os.X_OK) else None


def current_ptxas() -> Path | None:
    """Return the ptxas that Inductor selects in this process, which builds must use; None if Triton runs its own."""
    return inductor_ptxas(os.environ)


def triton_ptxas() -> Path | None:
    """Return the path of Triton's own ptxas; None if Triton is not installed."""
    triton = find_spec("triton")
    if triton is None or triton.origin is None:
        return None
    return Path(triton.origin).with_name("backends") / "nvidia/bin/ptxas"


@cache
def ptxas_release(ptxas: Path) -> str:
    """Run `ptxas --version` and return the release, as in `13.0.88`.

    Raises:
        ToolchainMissing: the file does not run, or its output names no release.
    """
    way_out = f"name one that runs in {PTXAS_VARIABLE}, or unset that"
    try:
        command = [str(ptxas), "--version"]
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainMissing(f"{ptxas} does not run ({error}): {way_out}") from None
    if found := _RELEASE.search(output):
        return found[1]
    raise ToolchainMissing(f"{ptxas} --version names no release, but {output.strip()[-80:]!r}: {way_out}")
