"""What a build leaves: a file, its facts, and the toolchain that made it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Artifact", "Resources", "Toolchain"]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The versions a binary, and so its time, depends on."""

    versions: tuple[tuple[str, str], ...]
    """(package, version) pairs, sorted by package."""

    @property
    def text(self) -> str:
        """`torch 2.11.0+cu130, triton 3.6.0`."""
        return ", ".join(f"{package} {version}" for package, version in self.versions)

    @classmethod
    def parse(cls, text: str) -> Toolchain:
        """Read `text` back."""
        pairs = [part.rsplit(" ", 1) for part in text.split(", ") if part]
        return cls(tuple(sorted((p[0], p[1]) for p in pairs)))


@dataclass(frozen=True, slots=True)
class Resources:
    """What one block of the kernel occupies, read from the binary."""

    registers: int
    """32-bit registers a thread."""
    shared_bytes: int
    """Shared memory a block, static and dynamic."""
    spill_bytes: int
    """Local memory a thread, the binary's stack frame: registers that did not fit, and at times a few bytes more."""
    threads: int
    """Threads a block."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A built kernel. Small and picklable: the binary stays in its file."""

    key: str
    """Equal for tasks and configs that may share the binary."""
    space: str
    """The space that built it and can load it."""
    path: str
    """The binary's file; empty where the kernel is part of a library."""
    digest: str
    """SHA-256 of the binary; of its name where there is no file."""
    launch: tuple[tuple[str, str | int], ...]
    """What the space needs to launch it (entry name, grid, ...), as (name, value) pairs."""
    resources: Resources | None
    """What a block occupies; None for a library's kernel."""
    build_seconds: float
    """Wall time of rendering and compiling on one core."""
    toolchain: Toolchain
    """The versions that built it."""
