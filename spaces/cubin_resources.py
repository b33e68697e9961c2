"""Resources of a cubin, as Triton's cuobjdump reads them. Imports Triton."""

import re
import subprocess
from pathlib import Path

import triton

from gemmtune.engine.seams.space import BuildError

__all__ = ["CUOBJDUMP", "registers_and_spills"]

CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
"""Disassembler that Triton ships."""


def registers_and_spills(cubin: Path) -> tuple[int, int]:
    """Return registers and bytes of local memory per thread."""
    usage = subprocess.run([CUOBJDUMP, "-res-usage", cubin], capture_output=True, text=True, check=True).stdout  # noqa: S603 (our own paths)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise BuildError(f"cuobjdump reports no resources: {usage.strip()[:200]}")
    return int(found[1]), int(found[2])
