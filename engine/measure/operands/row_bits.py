"""Compare the bits of rows: each at several places, among several neighbours, and at every size. Imports torch."""

import hashlib

import torch

from gemmtune.engine.measure.operands.operands import PlainSource
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import kind_of
from gemmtune.engine.seams.space import Launchable

_ROWS = 4
"""Rows of operands whose results are compared; one of the others stands everywhere between."""
_PLACES = 16
"""Places that a row is put to at once; among up to 16 rows it is at each."""


class RowBits:
    """Operands of one workload in which each row of its series stands at several places.

    Nothing in them depends on the size but the number of rows, so that the digests of different sizes compare.
    """

    def __init__(self, workload: Workload, device: torch.device) -> None:
        """Make the operands.

        Raises:
            torch.OutOfMemoryError: the operands do not fit.
        """
        kind, source, series = kind_of(workload.kind), _SeriesSource(workload, device), workload.bits_series
        self._operands = kind.operands(workload, source, 0)
        self._targets = kind.rows_of(workload, self._operands)
        self._rows = [kind.rows_of(series, kind.operands(series, source, number)) for number in range(_ROWS)]
        places = {number * (workload.size - 1) // (_PLACES - 1) for number in range(_PLACES)}
        self._places = torch.tensor(sorted(places), device=device)

    def digest(self, kernel: Launchable) -> tuple[str, str]:
        """Launch a kernel with each row among two kinds of neighbours, and wait.

        Returns:
            The digest of the results' bits, and why there is none: a row that differs by its place or neighbours.
        """
        found = hashlib.sha256()
        for number in range(_ROWS):
            first: list[torch.Tensor] = []
            for neighbour in (number + 1, number + 2):
                for target, other, row in zip(
                    self._targets, self._rows[neighbour % _ROWS], self._rows[number], strict=True
                ):
                    target.copy_(other.expand_as(target))
                    target[..., self._places, :] = row
                kernel(*self._operands.arguments)
                checked = (output[..., self._places, :] for output in self._operands.outputs)
                results = [each.contiguous().view(torch.uint8) for each in checked]  # so NaN equals NaN, and -0 no 0
                first = first or [result[..., :1, :].clone() for result in results]
                for result, expected in zip(results, first, strict=True):
                    if differing := int((result != expected).any(dim=-1).sum()):
                        rows = result[..., 0].numel()
                        return "", f"{differing} of {rows} equal rows differ in their bits, by place or neighbours"
            for expected in first:
                found.update(expected.cpu().numpy().tobytes())
        return found.hexdigest()[:16], ""


class _SeriesSource(PlainSource):
    """Source of tensors whose values depend on the series, the operand and its shape, whatever the size."""

    def __init__(self, workload: Workload, device: torch.device) -> None:
        super().__init__(device)
        self._name, self._series = workload.name, workload.bits_series.name

    def normal(self, dtype: torch.dtype, shape: tuple[int, ...], name: str, scale: float = 1.0) -> torch.Tensor:
        """Return a contiguous tensor of normal values; those of B are equal at every size."""
        return super().normal(dtype, shape, name.replace(self._name, self._series, 1), scale)

    def own(self, dtype: torch.dtype, shape: tuple[int, ...], name: str) -> torch.Tensor:
        """Return a tensor of normal values, which may be written to; equal at every size as those of `normal` are."""
        return super().own(dtype, shape, name.replace(self._name, self._series, 1))
