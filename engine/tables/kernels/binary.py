"""CuTe kernels that a table carries, and their checks. Needs the standard library alone."""

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from gemmtune.engine.seams.kernel_call import RUNTIME_PACKAGES, Argument
from gemmtune.engine.tables.sealed import require_object, require_text, shortened

_LARGEST_BYTES = 2**26  # of an object file; the largest take a few 100 kB
_FIELDS = ("object", "call", "layouts", "epilogue")


class KernelBinary(NamedTuple):
    """A kernel's object file and what its launch needs."""

    name: str
    """Name that tells it from every other kernel."""
    template: str
    """Name of its space, as a row has it."""
    packed: str
    """Object file, compressed by zlib, in base 64."""
    call: Sequence[Argument]
    """Arguments of its function, see `binder`."""
    layouts: str
    """Layouts of A and B that it reads, as in a problem's name."""
    epilogue: Any
    """Epilogue that it computes, in its consumer's form."""
    packages: Mapping[str, str]
    """Versions of the packages that built it and that run it, by name."""


def packed(binary: bytes) -> str:
    """Return an object file as text."""
    return base64.b64encode(zlib.compress(binary, 9)).decode()


def unpacked(text: str) -> bytes:
    """Return the object file of a text from `packed`; raises ValueError for another text, or too large a file."""
    inflater = zlib.decompressobj()
    try:
        binary = inflater.decompress(base64.b64decode(text, validate=True), _LARGEST_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not inflater.eof:
        raise ValueError(f"it ends early, or has more than {_LARGEST_BYTES} bytes")
    return binary


def kernel_name(space: str, binary: bytes, call: Sequence[Argument], layouts: str, epilogue: object) -> str:
    """Return the name of a kernel, which tells it from every other one by a digest of what runs.

    The epilogue is what the table has, JSON.
    """
    digest = hashlib.sha256(binary + json.dumps([call, layouts, epilogue], sort_keys=True).encode()).hexdigest()
    return f"gemmtune_{space}_{digest[:16]}"


def parse_kernels(value: object) -> dict[str, KernelBinary]:
    """Return the kernels of a table; the digest in each one's name tells whether all that runs is as it was exported.

    Raises:
        TypeError, ValueError: a part has the wrong type or value; the message names kernel and field.
    """
    found = {}
    for name, entry in require_object("kernels", value).items():
        where = f"kernels.{shortened(name)}"
        fields = require_object(where, entry, {*_FIELDS, "packages"})
        text, call, layouts, epilogue = (fields[each] for each in _FIELDS)
        try:
            binary = unpacked(text)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{where}: its `object` is damaged: {error}") from None
        space = name.removeprefix("gemmtune_").rpartition("_")[0]
        if kernel_name(space, binary, call, layouts, epilogue) != name or not space.isidentifier():
            raise ValueError(f"{where} is not the name of its object, call, layouts, epilogue: export the table again")
        packages = require_object(f"{where}.packages", fields["packages"])
        for package in (*RUNTIME_PACKAGES, *packages):
            require_text(f"{where}.packages.{shortened(package)}", packages.get(package))
        found[name] = KernelBinary(name, f"cute::{space}", text, call, layouts, epilogue, packages)
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
