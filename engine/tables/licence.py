"""Licences of exported files: lines at the head of each module, and notices of what was compiled into binaries."""

from collections.abc import Iterable
from importlib.metadata import distribution

SPDX = "# SPDX-FileCopyrightText: 2026 gemmtune authors\n# SPDX-License-Identifier: Apache-2.0\n"
"""Lines that every exported module begins with."""

LICENCES = "NOTICE"
"""Name of the file of `notices`."""
_BINARIES = """\
The table beside this file holds object files. NVIDIA's CUTLASS DSL (nvidia-cutlass-dsl) compiled them from kernels of
gemmtune (Apache-2.0, Copyright 2026 gemmtune authors), and from sources of the packages whose licences follow, if any.
The licence of NVIDIA's DSL does not say who may distribute what it compiles.
"""


def notices(packages: Iterable[str]) -> str:
    """Return the text to ship with compiled kernels: their origin, and the licence files of the packages.

    Args:
        packages: installed packages whose sources were compiled, in any order.

    Raises:
        PackageNotFoundError: one is not installed.
    """
    parts = [_BINARIES]
    for package in map(distribution, sorted(set(packages))):
        files = [file for file in package.files or [] if "licenses" in file.parts]
        title = f"{package.name} {package.version}"
        parts += [f"{title}\n{'-' * len(title)}\n\n{file.read_text().strip()}\n" for file in files]
    return "\n".join(parts)
