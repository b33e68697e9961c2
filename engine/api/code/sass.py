"""Disassemble the cubins of a built kernel."""

import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gemmtune.engine.records.errors import ToolchainMissing
from gemmtune.engine.toolchain.installed import install_command
from gemmtune.engine.toolchain.ptxas import triton_ptxas

_ELF, _CUDA = b"\x7fELF\x02", 190
"""First bytes of a 64-bit object file, and the machine number of those for NVIDIA GPUs."""
_TOOLS = (("nvdisasm", ("--print-code",)), ("cuobjdump", ("-sass",)))
"""Disassemblers with their options, the preferred one first."""


def sass_of(binary: bytes) -> str:
    """Return the machine code of every cubin in a file's bytes as text; empty without one.

    Raises:
        ToolchainMissing: neither disassembler is installed, or it refuses a cubin.
    """
    cubins = list(_cubins(binary))
    if not cubins:
        return ""
    tool, options = _tool()
    texts = []
    with tempfile.TemporaryDirectory() as folder:
        for cubin in cubins:
            file = Path(folder) / "kernel.cubin"
            file.write_bytes(cubin)
            done = subprocess.run([tool, *options, file], capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode:
                raise ToolchainMissing(f"{tool} does not read the binary: {done.stderr.strip()[:200]}")
            texts.append(done.stdout.strip())
    return "\n\n".join(dict.fromkeys(texts))


def _tool() -> tuple[str, tuple[str, ...]]:
    ptxas = triton_ptxas()
    for name, options in _TOOLS:
        bundled = ptxas and ptxas.with_name(name)
        if found := (str(bundled) if bundled and bundled.is_file() else shutil.which(name)):
            return found, options
    names = " or ".join(name for name, _ in _TOOLS)
    raise ToolchainMissing(f"no {names} to disassemble with: {install_command('triton')}, or put CUDA's into PATH")


def _cubins(binary: bytes) -> Iterator[bytes]:
    """Yield the object files for GPUs among bytes: a file of several cubins, or one that holds a cubin as data."""
    at = -1
    while (at := binary.find(_ELF, at + 1)) >= 0:
        if struct.unpack_from("<H", binary, at + 18) == (_CUDA,):
            yield binary[at : at + _size(binary, at)]


def _size(binary: bytes, at: int) -> int:
    """Return the bytes of the object file at a place: up to its last table."""
    segments, sections = struct.unpack_from("<QQ", binary, at + 32)
    segment_bytes, segment_count, section_bytes, section_count = struct.unpack_from("<4H", binary, at + 54)
    return int(max(segments + segment_bytes * segment_count, sections + section_bytes * section_count))
