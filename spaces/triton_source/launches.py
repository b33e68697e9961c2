"""Launches of Triton kernels as data: arguments, constants, grid and options. Imports no torch and no Triton."""

from collections.abc import Mapping
from dataclasses import dataclass, field

_ALIGNED = 16
"""Bytes, and for an integer its divisor, that Triton compiles a kernel of its own for."""
_LARGEST_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Pointer:
    """Tensor among the arguments of a launchable."""

    dtype: str
    """Element type as Triton's signatures write it, `bf16`."""
    path: tuple[int, ...]
    """Position in the arguments, then keys into what stands there."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Device memory that the kernels own."""

    dtype: str
    """Element type as Triton's signatures write it, `fp32`."""
    nbytes: int
    """Size of the memory in bytes."""
    number: int = 0
    """Number of the memory; launches with equal numbers share it."""


Argument = Pointer | Workspace | int | None
"""Run-time argument of a kernel; None is compiled in."""


@dataclass(frozen=True, slots=True)
class Specialised:
    """Facts about a launch's arguments that Triton compiles in."""

    types: tuple[tuple[str, str], ...]
    """Pairs of argument and type, in order; `constexpr` for one that is compiled in."""
    constants: tuple[tuple[str, object], ...]
    """Pairs of argument and value for those that are compiled in."""
    aligned: tuple[str, ...]
    """Arguments that are multiples of 16."""

    @property
    def passed(self) -> tuple[str, ...]:
        """Names of the arguments that a launch passes, in order."""
        return tuple(name for name, type_ in self.types if type_ != "constexpr")


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One launch of one kernel."""

    function: str
    """Name of the kernel's function."""
    arguments: Mapping[str, Argument]
    """Run-time arguments by name, in the kernel's order."""
    constants: Mapping[str, object]
    """Arguments that the kernel declares constexpr; the text `tl.bfloat16` stands for Triton's type."""
    grid: tuple[int, int, int]
    """Blocks along each axis."""
    num_warps: int
    """Warps per block, each of 32 threads."""
    num_stages: int
    """Stages of the pipeline."""
    unaligned: frozenset[str] = field(default_factory=frozenset)
    """Integers that change from step to step, and are compiled as if nothing were known about them."""

    def specialised(self) -> Specialised:
        """Return what Triton's own launcher would compile in: ones, and whether 16 divides."""
        types: list[tuple[str, str]] = []
        constants: list[tuple[str, object]] = []
        aligned = []
        for name, value in self.arguments.items():
            if value is None or (value == 1 and name not in self.unaligned):
                types.append((name, "constexpr"))
                constants.append((name, value))
            elif isinstance(value, int):
                types.append((name, "i32" if value <= _LARGEST_INT32 else "i64"))
                aligned += [name] * (value % _ALIGNED == 0 and name not in self.unaligned)
            else:
                types.append((name, f"*{value.dtype}"))
                aligned.append(name)
        types += [(name, "constexpr") for name in self.constants]
        constants += self.constants.items()
        return Specialised(tuple(types), tuple(constants), tuple(aligned))
