"""Content of a table's kernels and its checks. Needs the standard library alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from gemmtune.engine.seams.kernel_call import Argument, binder
from gemmtune.engine.tables.sealed import require_object, require_text, shortened

__all__ = ["KernelBinary", "difference", "parse_kernels"]

_KERNEL_NAME = re.compile(r"gemmtune_\w+_[0-9a-f]{16}", re.ASCII)
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
    packages: Mapping[str, str]
    """Versions of the packages that built it and that run it, by name."""


def parse_kernels(value: object) -> dict[str, KernelBinary]:
    """Check the kernels of a table.

    Raises:
        TypeError: a part has the wrong type; the message names kernel and field.
        ValueError: a part has another value than the exporter writes.
    """
    found = {}
    for name, entry in require_object("kernels", value).items():
        where = f"kernels.{shortened(name)}"
        fields = require_object(where, entry, {"object", "call", "layouts", "packages"})
        if _KERNEL_NAME.fullmatch(name) is None:
            raise ValueError(f"{where} is no name of a kernel")
        if not isinstance(fields["layouts"], str) or _OPERAND_LAYOUTS.fullmatch(fields["layouts"]) is None:
            raise ValueError(f"{where}.layouts={shortened(fields['layouts'])} is not two of n and t")
        if not isinstance(fields["object"], str) or not isinstance(fields["call"], list):
            raise TypeError(f"{where} has no text `object` and list `call`")
        binder(fields["call"])
        packages = require_object(f"{where}.packages", fields["packages"])
        for package, its in packages.items():
            require_text(f"{where}.packages.{shortened(package)}", its)
        found[name] = KernelBinary(name, fields["object"], fields["call"], fields["layouts"], packages)
    return found


def difference(kernel: KernelBinary, *, any_version: bool = False) -> str:
    """Return why the installed packages cannot run a kernel, `needs nvidia-cutlass-dsl 4.8.1, here is none`; or ``."""
    for package, theirs in sorted(kernel.packages.items()):
        try:
            ours = version(package)
        except PackageNotFoundError:
            return f"needs {package} {theirs}, here is none"
        if ours != theirs and not any_version:
            return f"needs {package} {theirs}, here is {ours}"
    return ""
