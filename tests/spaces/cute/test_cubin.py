"""Resources of a kernel, read from an ELF file of device code that is made here by hand."""

from __future__ import annotations

import struct

import pytest

from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.seams.space import BuildError
from gemmtune.spaces.cute.cubin import kernel_of

SYMBOL, OTHER = 7, 9
REGISTERS, FRAME, THREADS = 0x2F, 0x11, 0x10


def attribute(kind, *words):
    return struct.pack(f"<BBH{len(words)}I", 4, kind, 4 * len(words), *words)


def short(kind, value):
    """An attribute whose value lies in its header."""
    return struct.pack("<BBH", 3, kind, value)


def elf(sections, machine=190):
    """Return a 64-bit file of sections: name, content, size where there is no content, info."""
    names, headers, contents = b"\0", [], b""
    for name, content, size, info in [*sections, (".shstrtab", b"", 0, 0)]:
        at = len(names)
        names += name.encode() + b"\0"
        headers.append((at, 64 + len(contents), content, size or len(content), info))
        contents += content
    at, start, _, _, info = headers[-1]
    headers[-1] = (at, start, names, len(names), info)
    contents += names
    head = bytearray(64)
    head[:4] = b"\x7fELF"
    struct.pack_into("<H", head, 18, machine)
    struct.pack_into("<Q", head, 40, 64 + len(contents))
    struct.pack_into("<HHH", head, 58, 64, len(headers), len(headers) - 1)
    table = b"".join(struct.pack("<IIQQQQIIQQ", n, 1, 0, 0, o, s, 0, i, 0, 0) for n, o, _, s, i in headers)
    return bytes(head) + contents + table


def kernel(name="k", whole=None, own=None, shared=None, reserved=False):
    whole = attribute(REGISTERS, SYMBOL, 168) if whole is None else whole
    own = short(1, 3) + attribute(THREADS, 128, 2, 1) if own is None else own
    sections = [
        (".nv.info", whole, 0, 0),
        (f".nv.info.{name}", own, 0, 0),
        (f".text.{name}", b"\x90" * 640, 0, (168 << 24) | SYMBOL),
    ]
    sections += [(f".nv.shared.{name}", b"", shared, 0)] if shared is not None else []
    return sections + ([(".nv.shared.reserved.0", b"", 1024, 0)] if reserved else [])


@pytest.mark.parametrize(
    ("changes", "resources"),
    [
        ({}, Resources(168, 0, 0, 256)),
        ({"shared": 4096}, Resources(168, 4096, 0, 256)),
        ({"shared": 4096, "reserved": True}, Resources(168, 3072, 0, 256)),  # the system's part does not count
        ({"shared": 1000, "reserved": True}, Resources(168, 0, 0, 256)),
        ({"own": attribute(THREADS, 4, 3, 2, 99)}, Resources(168, 0, 0, 24)),
        (
            {"whole": attribute(FRAME, OTHER, 8) + attribute(FRAME, SYMBOL, 16) + attribute(REGISTERS, SYMBOL, 255)},
            Resources(255, 0, 16, 256),
        ),
        (
            {"whole": attribute(REGISTERS, OTHER, 32) + short(2, 5) + attribute(REGISTERS, SYMBOL, 40)},
            Resources(40, 0, 0, 256),
        ),
    ],
)
def test_a_kernel_has_its_registers_memory_and_threads(changes, resources):
    assert kernel_of(elf(kernel(**changes))) == (resources, 640)


def test_the_cubin_is_found_behind_the_hosts_own_object():
    host, device = elf([(".text", b"host", 0, 0)], machine=62), elf(kernel())
    assert kernel_of(host + b"\x7fELF" + device)[1] == 640
    assert kernel_of(b"x" * 33 + device + host)[1] == 640


def test_functions_without_information_are_no_kernels():
    sections = [*kernel(), (".text.helper", b"\x90" * 8, 0, OTHER)]
    assert kernel_of(elf(sections))[1] == 640


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no cubin among the bytes"),
        (elf(kernel(), machine=62), "no cubin among the bytes"),
        (elf(kernel())[:63], "no cubin among the bytes"),
        (elf([(".text", b"", 0, 0)]), "holds 0 kernels, not one"),
        (elf([*kernel("a"), *kernel("b")]), "holds 2 kernels, not one"),
        (elf(kernel(whole=b"")), "kernel k lacks its register count or its block size"),
        (elf(kernel(whole=attribute(REGISTERS, OTHER, 168))), "lacks its register count"),
        (elf(kernel(own=b"")), "lacks its register count or its block size"),
    ],
)
def test_an_object_that_tells_too_little_is_refused(data, reason):
    with pytest.raises(BuildError, match=reason):
        kernel_of(data)
