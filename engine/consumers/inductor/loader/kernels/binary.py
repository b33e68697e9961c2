"""Content of a table's kernels and its checks. Needs the standard library alone."""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from gemmtune.engine.records.epilogue.text import parse_epilogue
from gemmtune.engine.seams.kernel_call import RUNTIME_PACKAGES, Argument, binder
from gemmtune.engine.tables.sealed import require_object, require_text, shortened

_KERNEL_NAME = re.compile(r"gemmtune_(\w+)_[0-9a-f]{16}", re.ASCII)
_LARGEST_BYTES = 2**26  # of an object file; the largest take a few 100 kB
_OPERAND_LAYOUTS = re.compile(r"[nt]{2}", re.ASCII)


class KernelBinary(NamedTuple):
    """A kernel's object file and what its launch needs."""

    name: str
    """Name among Inductor's extern kernels."""
    packed: str
    """Object file, compressed by zlib, in base 64."""
    call: Sequence[Argument]
    """Arguments of its function, see `binder`."""
    layouts: str
    """Layouts of A and B that it reads, as in a problem's name."""
    epilogue: str
    """Text of the epilogue that it computes; `none` without one."""
    packages: Mapping[str, str]
    """Versions of the packages that built it and that run it, by name."""


def packed(binary: bytes) -> str:
    """Return an object file as text."""
    return base64.b64encode(zlib.compress(binary, 9)).decode()


def unpacked(text: str) -> bytes:
    """Return the object file of a text from `packed`.

    Raises:
        ValueError: the text is something else, or the file is too large.
    """
    inflater = zlib.decompressobj()
    try:
        binary = inflater.decompress(base64.b64decode(text, validate=True), _LARGEST_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not inflater.eof:
        raise ValueError(f"it ends early, or has more than {_LARGEST_BYTES} bytes")
    return binary


def kernel_name(space: str, binary: bytes, call: Sequence[Argument], layouts: str, epilogue: str) -> str:
    """Return the name of a kernel, which tells it from every other one by a digest of what runs."""
    digest = hashlib.sha256(binary + json.dumps([call, layouts, epilogue]).encode()).hexdigest()
    return f"gemmtune_{space}_{digest[:16]}"


def parse_kernels(value: object) -> dict[str, KernelBinary]:
    """Check the kernels of a table.

    Raises:
        TypeError: a part has the wrong type; the message names kernel and field.
        ValueError: a part has another value than the exporter writes.
    """
    found = {}
    for name, entry in require_object("kernels", value).items():
        where = f"kernels.{shortened(name)}"
        fields = require_object(where, entry, {"object", "call", "layouts", "epilogue", "packages"})
        of_space = _KERNEL_NAME.fullmatch(name)
        if of_space is None:
            raise ValueError(f"{where} is no name of a kernel")
        layouts, call, epilogue = fields["layouts"], fields["call"], fields["epilogue"]
        if not isinstance(layouts, str) or _OPERAND_LAYOUTS.fullmatch(layouts) is None:
            raise ValueError(f"{where}.layouts={shortened(layouts)} is not two of n and t")
        if not isinstance(fields["object"], str) or not isinstance(epilogue, str) or not isinstance(call, list):
            raise TypeError(f"{where} has no texts `object` and `epilogue` and list `call`")
        try:
            parse_epilogue(epilogue)
        except ValueError:
            raise ValueError(f"{where}.epilogue={shortened(epilogue)} is no epilogue") from None
        try:
            binder(call, int)
            binary = unpacked(fields["object"])
        except (TypeError, ValueError) as error:
            raise type(error)(f"{where}: its `object` or `call` is damaged: {error}") from None
        if kernel_name(of_space[1], binary, call, layouts, epilogue) != name:
            raise ValueError(f"{where} is not the name of its object, call, layouts, epilogue: export the table again")
        packages = require_object(f"{where}.packages", fields["packages"])
        if lost := [package for package in RUNTIME_PACKAGES if package not in packages]:
            raise ValueError(f"{where}.packages has no version of {lost[0]}, which runs its object")
        for package, its in packages.items():
            require_text(f"{where}.packages.{shortened(package)}", its)
        found[name] = KernelBinary(name, fields["object"], call, layouts, epilogue, packages)
    return found


def difference(kernel: KernelBinary, *, any_version: bool) -> str:
    """Return why the installed packages cannot run a kernel, `needs nvidia-cutlass-dsl 4.8.1, here is none`; or ``."""
    for package, theirs in sorted(kernel.packages.items()):
        try:
            ours = version(package)
        except PackageNotFoundError:
            return f"needs {package} {theirs}, here is none"
        if ours != theirs and not any_version:
            return f"needs {package} {theirs}, here is {ours}"
    return ""
