"""Grouped products: operands whose rows spread over groups, and the products of all groups in float64.

Types, values and tolerances are those of the GEMM of one group, `Grouped.of_one_group`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import Layout
from gemmtune.engine.records.grouped.product import Form, Grouped
from gemmtune.engine.seams.workload import Expected, Operands, TensorSource, WorkloadKind, gemm_like
from gemmtune.spaces.gemm.kind import scales, spreads_of, tolerance_of

if TYPE_CHECKING:
    import torch

_MOST_BESIDE = 8192
"""Largest sizes of the GEMM that is timed beside a product: 128 MiB of weight, which no L2 holds."""


@dataclass(frozen=True, slots=True)
class GroupedOperands:
    """Tensors of one grouped product, with the shapes of `Grouped.shapes`."""

    a: torch.Tensor
    """Left operand, with the product's type and layout."""
    b: torch.Tensor
    """Right operand, with the product's type and layout."""
    out: torch.Tensor
    """Output in the product's `out_dtype`, row-major, with the last of `Grouped.shapes`."""
    offs: torch.Tensor | None
    """End of each group's rows, or of its part of k, in int32, shape (groups,); None where nothing is cut."""
    scales: tuple[torch.Tensor, ...] = ()
    """Scales of e4m3 in fp32: of each row of A, shape (m,), and of each group and column of B, shape (groups, n)."""

    @property
    def arguments(self) -> tuple[torch.Tensor, ...]:
        """Arguments of a kernel's call, in the order of `Grouped.argument_names`."""
        return (self.a, self.b, self.out, *self.scales, *(() if self.offs is None else (self.offs,)))

    @property
    def outputs(self) -> tuple[torch.Tensor, ...]:
        """Output of the kernel."""
        return (self.out,)


class GroupedKind(WorkloadKind[Grouped]):
    """Products of every group in one launch."""

    sizes: ClassVar[tuple[str, ...]] = ("m", "groups", "n", "k")
    needed: ClassVar[tuple[str, ...]] = ("m", "groups", "n", "k")

    def listed_in(self, fields: Mapping[str, object]) -> str:
        """Return `k` for groups of k, and `m` for others."""
        return "k" if fields.get("form") == Form.INNER else "m"

    def parse(self, text: str) -> Grouped:
        """Return the product of its text; see `Grouped.parse`."""
        return Grouped.parse(text)

    def from_fields(self, fields: Mapping[str, str]) -> Grouped:
        """Return the product of text fields; see `Grouped.from_fields`."""
        return Grouped.from_fields(fields)

    def operands(self, workload: Grouped, source: TensorSource, number: int) -> GroupedOperands:
        """Return normal A and B with scales that make e4m3 standard-normal; every set has the rows of `counts`."""
        import torch

        name = f"{workload.name}#{number}" if number else workload.name
        dtype, out_dtype = (getattr(torch, each.torch_name) for each in (workload.dtype, workload.out_dtype))
        (of_a, of_b, of_out), spreads = workload.shapes, spreads_of(workload.of_one_group)

        def operand(shape: tuple[int, ...], layout: Layout, which: str) -> torch.Tensor:
            if layout is Layout.N:
                return source.normal(dtype, shape, f"{name} {which}", spreads[which])
            return source.normal(dtype, (*shape[:-2], shape[-1], shape[-2]), f"{name} {which}", spreads[which]).mT

        offs = None
        if workload.form is not Form.BATCHED:
            ends = torch.tensor(list(accumulate(workload.counts)), dtype=torch.int32)
            offs = source.own(torch.int32, (workload.groups,), f"{name} offs").copy_(ends)
        return GroupedOperands(
            a=operand(of_a, workload.a_layout, "a"),
            b=operand(of_b, workload.b_layout, "b"),
            out=source.empty(out_dtype, of_out, f"{name} out"),
            offs=offs,
            scales=tuple(
                scales(source, shape, f"{name} {operand.name}", spreads[operand.name])
                for operand, shape in zip(workload.epilogue.operands, (of_out[:1], (of_b[0], of_b[-1])), strict=False)
            ),
        )

    def expected(self, workload: Grouped, operands: Operands) -> tuple[Expected, ...]:
        """Return the products in float64, group by group; a group without rows gives nothing, or zeros."""
        import torch

        assert isinstance(operands, GroupedOperands)
        a, b = operands.a, operands.b
        values = torch.empty(workload.shapes[2], dtype=torch.float32, device=a.device)
        first = 0
        for group, count in enumerate(workload.counts):
            part = slice(first, first + count)
            first += count
            if workload.form is Form.ROWS:
                product = a[part].double() @ b[group].double()
                if operands.scales:
                    of_rows, of_columns = operands.scales
                    product *= of_rows[part, None].double() * of_columns[group].double()
                values[part] = product.float()
            elif workload.form is Form.INNER:
                values[group] = (a[:, part].double() @ b[part].double()).float()
            else:
                values[group] = (a[group].double() @ b[group].double()).float()
        tolerance = tolerance_of(workload.of_one_group, workload.out_dtype)
        # Sums over a large group's part of k are larger than those over a small one's; scales differ, too.
        of_each = tolerance if workload.form is Form.INNER or operands.scales else 0.0
        terms = workload.k / workload.groups if workload.form is Form.INNER else workload.k
        return (Expected(values, tolerance, of_each, 1.0 if operands.scales else terms**0.5),)

    def timed_beside(self, workload: Grouped) -> Problem:
        """Return a bf16 GEMM with about the operations and bytes of the product, at most 8192 in each size."""
        flops, nbytes = 2 * _MOST_BESIDE**3, 2 * _MOST_BESIDE**2
        return gemm_like(min(workload.flops, flops), min(workload.min_bytes, nbytes), workload.weight)
