"""Built kernels: the binary's file, its resources, and the toolchain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Versions that a binary, and so its time, depends on.

    Example:
        >>> import gemmtune as gt
        >>> gt.Toolchain((("torch", "2.13.0"), ("triton", "3.7.0"))).text
        'torch 2.13.0, triton 3.7.0'
    """

    versions: tuple[tuple[str, str], ...]
    """Pairs of package and version, sorted by package."""

    @property
    def text(self) -> str:
        """Versions as text, `torch 2.11.0+cu130, triton 3.6.0`."""
        return ", ".join(f"{package} {version}" for package, version in self.versions)

    @classmethod
    @lru_cache  # each task names its toolchain, and few differ
    def parse(cls, text: str) -> Toolchain:
        """Parse the text of a toolchain.

        Raises:
            ValueError: a part is no package and version.
        """
        pairs = [part.rsplit(" ", 1) for part in text.split(", ") if part]
        if wrong := next((pair[0] for pair in pairs if len(pair) < 2), None):
            raise ValueError(f"toolchain {wrong[:80]!r} is not 'package version, ...'")
        return cls(tuple(sorted((p[0], p[1]) for p in pairs)))


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources that the kernel needs, read from its binary."""

    registers: int
    """Number of 32-bit registers per thread."""
    shared_bytes: int
    """Shared memory per block, static and dynamic, in bytes."""
    spill_bytes: int
    """Local memory per thread in bytes: the binary's stack frame, mostly registers that did not fit."""
    threads: int
    """Number of threads per block."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """Built kernel. The record is small and picklable; the binary stays in its file.

    Example:
        >>> import gemmtune as gt
        >>> made_with = gt.Toolchain((("torch", "2.13.0"),))
        >>> gt.Artifact("mm", "mine", "", "0" * 64, (("grid", 8),), None, 0.5, made_with).launch
        (('grid', 8),)
    """

    key: str
    """Key that is equal for tasks and configs that may share the binary."""
    space: str
    """Name of the space that built the kernel and can load it."""
    path: str
    """Path of the binary's file; empty for a kernel of the vendor library."""
    digest: str
    """SHA-256 of the binary, or of the kernel's name without a file."""
    launch: tuple[tuple[str, str | int], ...]
    """Pairs of name and value that the space needs for a launch, such as entry name and grid."""
    resources: Resources | None
    """Resources that the kernel needs; None for a kernel of the vendor library."""
    build_seconds: float
    """Wall time of rendering and compiling on one core, in seconds."""
    toolchain: Toolchain
    """Versions that built the kernel."""


@dataclass(frozen=True, slots=True)
class KernelCode:
    """Kernel of one config as text."""

    script: str = ""
    """Python program that launches the kernel and checks its result; empty where the space writes none."""
    kernels: tuple[str, ...] = ()
    """Names on the GPU of the kernels that one call of the program launches."""
    ptx: str = ""
    """PTX of the kernels; empty where the compiler gives none."""
