"""Read the kernel of a cubin from its ELF sections, without a tool."""

import struct
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.seams.space import BuildError

_ELF = b"\x7fELF"
_CUDA = 190  # e_machine of device code
_WORD = 4  # the format of an .nv.info attribute whose value follows its header
# Attributes as `cuobjdump --dump-elf` names them: EIATTR_REGCOUNT, EIATTR_FRAME_SIZE, EIATTR_REQNTID.
_REGISTERS, _FRAME, _REQUIRED_THREADS = 0x2F, 0x11, 0x10
# From sm_90 on, the system keeps 1 KiB of shared memory per block, in front of the kernel's, and the kernel's section
# counts it: 1024 B for kernels of CuTe and Triton that declare only dynamic memory. It does not count towards the limit
# per block.
_RESERVED, _RESERVED_BYTES = ".nv.shared.reserved.0", 1024


class _Section(NamedTuple):
    data: bytes
    size: int
    info: int


def kernel_of(data: bytes) -> tuple[Resources, int]:
    """Return the resources of the one kernel of the first cubin in `data`, and the bytes of its machine code.

    The shared memory is the static one, without dynamic memory and without the memory that the system keeps. Bytes that
    spill are those of the stack frame.

    Raises:
        BuildError: there is no cubin or not one kernel, or it lacks its register count or its required block size.
    """
    sections = dict(_sections(data, _start(data)))
    whole = dict(_attributes(sections[".nv.info"].data)) if ".nv.info" in sections else {}
    names = [name.removeprefix(".text.") for name in sections if name.startswith(".text.")]
    names = [name for name in names if f".nv.info.{name}" in sections]
    if len(names) != 1:
        raise BuildError(f"the compiled object holds {len(names)} kernels, not one")
    (name,) = names
    code = sections[f".text.{name}"]
    own = {kind: words for (kind, _), words in _attributes(sections[f".nv.info.{name}"].data)}
    symbol = code.info & 0xFFFFFF  # the upper byte is not part of the index
    if (_REGISTERS, symbol) not in whole or _REQUIRED_THREADS not in own:
        reason = f"kernel {name[:80]} lacks its register count or its block size"
        raise BuildError(f"the compiled object cannot be read: {reason}")
    shared_bytes = sections[f".nv.shared.{name}"].size if f".nv.shared.{name}" in sections else 0
    resources = Resources(
        registers=whole[_REGISTERS, symbol][1],
        shared_bytes=max(0, shared_bytes - (_RESERVED_BYTES if _RESERVED in sections else 0)),
        spill_bytes=whole.get((_FRAME, symbol), (0, 0))[1],
        threads=prod(own[_REQUIRED_THREADS][:3]),
    )
    return resources, code.size


def _start(data: bytes) -> int:
    at = data.find(_ELF)
    while at >= 0:
        if len(data) >= at + 64 and struct.unpack_from("<H", data, at + 18)[0] == _CUDA:
            return at
        at = data.find(_ELF, at + 1)
    raise BuildError("the compiled object cannot be read: no cubin among the bytes")


def _sections(data: bytes, start: int) -> Iterator[tuple[str, _Section]]:
    """Yield the sections of the 64-bit little-endian ELF file at `start`, with their names."""
    (table,) = struct.unpack_from("<Q", data, start + 40)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", data, start + 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + table + i * entry_bytes) for i in range(count)]
    names = start + headers[names_index][4]
    for name, _, _, _, offset, size, _, info, _, _ in headers:
        end = data.index(b"\0", names + name)
        section = data[start + offset : start + offset + size]
        yield data[names + name : end].decode(), _Section(section, size, info)


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
