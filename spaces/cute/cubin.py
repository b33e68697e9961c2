"""Read the kernels of a cubin from its ELF sections, without a tool."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

__all__ = ["CubinError", "Kernel", "kernels"]

_ELF = b"\x7fELF"
_CUDA = 190  # e_machine of device code
_WORD = 4  # the format of an .nv.info attribute whose value follows its header
# Attributes as `cuobjdump --dump-elf` names them: EIATTR_REGCOUNT, EIATTR_FRAME_SIZE, EIATTR_REQNTID.
_REGISTERS, _FRAME, _REQUIRED_THREADS = 0x2F, 0x11, 0x10
# From sm_90 on, the system keeps 1 KiB of shared memory per block, in front of the kernel's, and the kernel's section
# counts it: 1024 B for kernels of CuTe and Triton that declare only dynamic memory. It does not count towards the limit
# per block.
_RESERVED, _RESERVED_BYTES = ".nv.shared.reserved.0", 1024


class CubinError(Exception):
    """The bytes hold no cubin, or a cubin that lacks required attributes."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Resources of one kernel of a cubin."""

    name: str
    """Symbol of the kernel in the cubin."""
    registers: int
    """32-bit registers per thread at launch."""
    threads: int
    """Threads per block, which the kernel requires."""
    static_shared_bytes: int
    """Bytes of shared memory per block, without dynamic memory and without the memory that the system keeps."""
    frame_bytes: int
    """Bytes of local memory per thread, the stack frame: registers that did not fit."""
    code_bytes: int
    """Bytes of machine code."""


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    data: bytes
    size: int
    info: int


def kernels(data: bytes) -> tuple[Kernel, ...]:
    """Return the kernels of the first cubin in `data`: a cubin, or a file that contains one uncompressed.

    Raises:
        CubinError: there is no cubin, or a kernel lacks its register count or its required block size.
    """
    sections = {section.name: section for section in _sections(data, _start(data))}
    found = []
    whole = dict(_attributes(sections[".nv.info"].data)) if ".nv.info" in sections else {}
    for section in sections.values():
        name = section.name.removeprefix(".text.")
        if name == section.name or f".nv.info.{name}" not in sections:
            continue
        own = {kind: value for (kind, _), value in _attributes(sections[f".nv.info.{name}"].data)}
        symbol = section.info & 0xFFFFFF  # the upper byte is not part of the index
        if (_REGISTERS, symbol) not in whole or _REQUIRED_THREADS not in own:
            raise CubinError(f"kernel {name[:80]} lacks its register count or its block size")
        shared_bytes = sections[f".nv.shared.{name}"].size if f".nv.shared.{name}" in sections else 0
        found.append(
            Kernel(
                name=name,
                registers=whole[_REGISTERS, symbol][1],
                threads=prod(own[_REQUIRED_THREADS][:3]),
                static_shared_bytes=max(0, shared_bytes - (_RESERVED_BYTES if _RESERVED in sections else 0)),
                frame_bytes=whole.get((_FRAME, symbol), (0, 0))[1],
                code_bytes=section.size,
            )
        )
    return tuple(found)


def _start(data: bytes) -> int:
    at = data.find(_ELF)
    while at >= 0:
        if len(data) >= at + 64 and struct.unpack_from("<H", data, at + 18)[0] == _CUDA:
            return at
        at = data.find(_ELF, at + 1)
    raise CubinError("no cubin among the bytes")


def _sections(data: bytes, start: int) -> Iterator[_Section]:
    """Yield the sections of the 64-bit little-endian ELF file at `start`."""
    (table,) = struct.unpack_from("<Q", data, start + 40)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", data, start + 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + table + i * entry_bytes) for i in range(count)]
    names = start + headers[names_index][4]
    for name, _, _, _, offset, size, _, info, _, _ in headers:
        end = data.index(b"\0", names + name)
        yield _Section(data[names + name : end].decode(), data[start + offset : start + offset + size], size, info)


def _attributes(info: bytes) -> Iterator[tuple[tuple[int, int], tuple[int, ...]]]:
    """Yield ((attribute, first word), words) of an .nv.info section; in `.nv.info` itself, that word is a symbol."""
    at = 0
    while at + 4 <= len(info):
        form, kind, length = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _WORD:
            words = struct.unpack_from(f"<{length // 4}I", info, at)
            yield (kind, words[0] if words else 0), words
            at += length
