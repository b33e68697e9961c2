"""Settings of Triton's compiler for one build, and what its binaries occupy. Imports Triton."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from unittest.mock import patch

import triton

from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.device import Device
from gemmtune.engine.seams.space import BuildError
from gemmtune.engine.toolchain.ptxas import PTXAS_VARIABLE, current_ptxas
from gemmtune.engine.toolchain.releases import FP_FUSION_VARIABLE, fp_fusion

_ptx: ContextVar[list[str] | None] = ContextVar("ptx", default=None)
CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
"""Disassembler that Triton ships."""


@contextmanager
def compiler_settings(folder: str) -> Iterator[None]:
    """Set Inductor's ptxas, say whether to fuse, and put Triton's cache into a private, temporary folder of this build.

    Line information triples the size of a binary, and holds the path of the source, so that equal kernels would be
    different binaries. The code is equal without it.
    """
    values = {"TRITON_CACHE_DIR": folder, FP_FUSION_VARIABLE: str(int(fp_fusion(os.environ)))}
    if ptxas := current_ptxas():
        values[PTXAS_VARIABLE] = str(ptxas)
    with patch.dict(os.environ, values), patch.object(triton.knobs.compilation, "disable_line_info", True):
        yield


@contextmanager
def kept_ptx() -> Iterator[list[str]]:
    """Yield a list that receives the PTX of each kernel that is built in the block."""
    found: list[str] = []
    token = _ptx.set(found)
    try:
        yield found
    finally:
        _ptx.reset(token)


def write_cubin(binary: Any, file: Path, device: Device) -> Resources:  # noqa: ANN401 (Triton has no types)
    """Write the cubin of a compiled kernel and return what a block of it occupies.

    Raises:
        BuildError: the kernel wants memory for measuring itself.
    """
    facts = binary.metadata
    if facts.profile_scratch_size:
        raise BuildError(f"the binary wants {facts.profile_scratch_size} B to profile itself, which nothing asked for")
    file.write_bytes(binary.asm["cubin"])
    if (kept := _ptx.get()) is not None:
        kept.append(binary.asm["ptx"])
    registers, spill_bytes = registers_and_spills(file)
    return Resources(registers, facts.shared, spill_bytes, facts.num_warps * device.warp_size)


def registers_and_spills(cubin: Path) -> tuple[int, int]:
    """Return registers and bytes of local memory per thread."""
    usage = subprocess.run([CUOBJDUMP, "-res-usage", cubin], capture_output=True, text=True, check=True).stdout  # noqa: S603 (our own paths)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise BuildError(f"cuobjdump reports no resources: {usage.strip()[:200]}")
    return int(found[1]), int(found[2])
