"""Contract of a kind of workload: its texts, its operands on a device, and the results a right kernel gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.workload import Workload

if TYPE_CHECKING:
    import torch

_Work = TypeVar("_Work", bound=Workload)

_STEP = 64  # multiple that n and k of a GEMM timed beside are rounded to, as the vendor library's kernels like
_LEAST_ROWS = 16


class TensorSource(Protocol):
    """Source of operand tensors on one device; it scatters them in memory, so that launches can run on a cold L2."""

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""

    def normal(self, dtype: torch.dtype, shape: tuple[int, ...], name: str, scale: float = 1.0) -> torch.Tensor:
        """Return a contiguous tensor of normal values with the standard deviation `scale`; integers are rounded.

        Another name gets other values and other memory. Do not write to the tensor: its memory may hold operands of
        other workloads, too.
        """

    def own(self, dtype: torch.dtype, shape: tuple[int, ...], name: str) -> torch.Tensor:
        """Return a tensor of such values in memory of its own, which may be written to before it is returned."""

    def empty(self, dtype: torch.dtype, shape: tuple[int, ...], name: str) -> torch.Tensor:
        """Return a contiguous tensor for a kernel to write; another name gets other memory."""


class Operands(Protocol):
    """Arguments of one launch."""

    @property
    def arguments(self) -> tuple[object, ...]:
        """Arguments that a kernel of the workload is called with, in order, the outputs among them."""

    @property
    def outputs(self) -> tuple[torch.Tensor, ...]:
        """Tensors that a kernel must write completely and does not read; a check overwrites them beforehand."""


@runtime_checkable
class Restorable(Protocol):
    """Operands of kernels that also read their outputs, or write them in part."""

    def restore(self) -> None:
        """Give what a launch changes the values from before it; a check calls it behind overwriting the outputs."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Result that a right kernel gives in one output, with its tolerance."""

    values: torch.Tensor
    """Right values with the shape of the output: in float32, computed in float64 where rounding matters; or integers or
    complex numbers."""
    tolerance: float
    """Largest ‖out − values‖ / ‖values‖ that rounding alone may cause; 0 for an output that must be exact."""
    of_each: float = 0.0
    """Share of its own value that rounding may cost each element, beside a share of the root mean square; for outputs
    whose elements differ much in size."""
    least_rms: float = 0.0
    """Root mean square that the values count with at least, so that rounding near 0 is no large relative error."""
    of_row: float = 0.0
    """Share of the root mean square along the last axis that rounding may cost each element, in place of `of_each`; for
    outputs whose rows differ much in size."""


@dataclass(frozen=True, slots=True)
class DryLaunch:
    """Launch by the user's program with a table loaded, of which only the GPU's part was left out."""

    config: Config | None
    """Config that the program would run; None if it got to none."""
    reason: str = ""
    """Why that is not the table's config; empty if it is."""


class WorkloadKind(ABC, Generic[_Work]):
    """Plug-in of one kind of workload, registered under the entry points `gemmtune.workloads` by the kind's name.

    `parse`, `from_fields` and `timed_beside` need neither torch nor a GPU. The other methods run in the worker process
    that owns the GPU. An instance is stateless: its answers depend only on the arguments.
    """

    sizes: ClassVar[tuple[str, ...]] = ()
    """Fields that hold a size, an integer."""
    needed: ClassVar[tuple[str, ...]] = ()
    """Sizes that have no default."""
    listed: ClassVar[str] = ""
    """Field that `[[problem]]` of a campaign file may give several values of, such as the range size."""
    dry_consumer: ClassVar[str] = ""
    """Exporter whose files `launch_dry` loads; empty for a kind whose program gemmtune does not have."""

    def listed_in(self, fields: Mapping[str, object]) -> str:
        """Return the field that a `[[problem]]` of these fields may give several values of; `listed` by default."""
        return self.listed

    @abstractmethod
    def parse(self, text: str) -> _Work:
        """Return the workload of a canonical name, or of another text that a user may write for it.

        Raises:
            ProblemError: the text is malformed; the message says the value, the bound and the way out.
        """

    def expand(self, text: str) -> tuple[_Work, ...]:
        """Return every workload that a text stands for; by default the one of `parse`, which it raises like."""
        return (self.parse(text),)

    @abstractmethod
    def from_fields(self, fields: Mapping[str, str]) -> _Work:
        """Return the workload of `Workload.to_fields`; a missing field takes its default.

        Raises:
            ProblemError: a field is unknown, missing or malformed.
        """

    @abstractmethod
    def operands(self, workload: _Work, source: TensorSource, number: int) -> Operands:
        """Return operand set `number`, with values and memory of its own for every number.

        The names of its tensors begin with the workload's name and, from 1 on, the number.

        Raises:
            torch.OutOfMemoryError: the tensors do not fit.
        """

    @abstractmethod
    def expected(self, workload: _Work, operands: Operands) -> tuple[Expected, ...]:
        """Return the right result of each output, computed from the operands without a kernel that is tuned."""

    def rows_of(self, workload: _Work, operands: Operands) -> tuple[torch.Tensor, ...]:
        """Return views of the operands that have a row per row of the outputs, of shape (..., rows, any).

        The default returns none: no space has kernels whose bits are compared row by row.
        """
        return ()

    def timed_beside(self, workload: _Work) -> Problem:
        """Return the GEMM that the vendor library runs beside each launch, to correct times for drifting clocks.

        It should take about as long as the workload, and be limited by memory or arithmetic as the workload is. The
        default has the workload's bytes and arithmetic, as nearly as a product of bf16 matrices can.
        """
        return gemm_like(workload.flops, workload.min_bytes, workload.weight)

    def untuned(self, workload: _Work) -> Iterator[_Work]:
        """Yield the workload with each config that may run untuned, the first choice first; by default it alone.

        What runs untuned is the first that builds on the GPU, so the baseline is that one.
        """
        yield workload

    def launch_dry(self, workloads: Sequence[_Work], folder: Path, device: Device) -> tuple[DryLaunch, ...]:
        """Load a table into the user's program and launch each workload as the program does, without a GPU.

        Args:
            workloads: workloads of one program.
            folder: files of `dry_consumer` for a table that has a row per workload.
            device: GPU that the table is for.
        """
        raise NotImplementedError(f"{type(self).__name__} names dry_consumer={self.dry_consumer!r} alone")

    def draft(self, kernel: str) -> tuple[str, str]:
        """Return the name and the module's text of a first draft of the class that describes a kernel of a program.

        Raises:
            ProblemError: the text names no kernel, or one that cannot be described.
        """
        raise NotImplementedError(f"{type(self).__name__} describes no kernels by classes")


def gemm_like(flops: int, nbytes: int, weight: float = 1.0) -> Problem:
    """Return the bf16 GEMM of a square weight that has about this many operations and bytes."""
    side = max((nbytes / 2) ** 0.5, (flops / 2) ** (1 / 3))  # bytes of the weight alone, or a cube of the operations
    side = max(_STEP, round(side / _STEP) * _STEP)
    return Problem(m=max(_LEAST_ROWS, round(flops / (2 * side * side))), n=side, k=side, weight=weight)
