"""Loader of a gemmtune table for cutlass.operators. Needs nvidia-cutlass-operators; tested with 0.3.0.

    import cutlass.operators as ops
    import gemmtune_cutlass                                  # registers the heuristic "gemmtune"

    heuristic = ops.get_heuristic("gemmtune")()              # once: it reads cute_table.json beside this file
    operators = ops.get_operators(args, target_sm="90a", heuristic=heuristic, limit=1)

A problem with a row gets the row's operator alone, which is found by its class and design, never by its name. Any other
problem is ranked by `fallback`, or keeps the discovery order, as does a problem whose operator the call's filters left
out. Each such problem is logged once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cutlass.operators as ops

from gemmtune.engine.consumers.cute.table_loader import CuteTable, Key, dtype_name, layout_of

if TYPE_CHECKING:
    from cutlass.operators import Heuristic, Operator, RuntimeArguments, TargetSm

__all__ = ["TableHeuristic"]


@ops.register_heuristic("gemmtune")
class TableHeuristic(ops.Heuristic):  # type: ignore[misc] # its package ships no types
    """Heuristic that ranks operators by a table."""

    def __init__(
        self, path: str | Path | None = None, *, fallback: Heuristic | None = None, exact: bool = False
    ) -> None:
        """Read a table.

        Args:
            path: file of the table, by default `cute_table.json` beside this file.
            fallback: heuristic for problems without a row; None keeps the discovery order.
            exact: whether m is never rounded up.

        Raises:
            OSError: the file cannot be read.
            TypeError: a part of the file has the wrong type.
            ValueError: the file is not JSON, of another schema, edited after it was written, or has an invalid row.
        """
        source = Path(__file__).with_name("cute_table.json") if path is None else Path(path)
        self._table = CuteTable(source, "cute_gemm", exact=exact)
        self._fallback = fallback

    def rank(
        self,
        args: RuntimeArguments | None,
        operators: list[Operator],
        *,
        target_sm: TargetSm | str | None = None,
        limit: int | None = None,
    ) -> list[Operator]:
        """Return the row's operator alone; without one, the operators as `fallback` ranks them.

        Args:
            args: the operands; None ranks without a problem.
            operators: candidates in discovery order.
            target_sm: architecture that will run the operator; None is the table's.
            limit: number of operators wanted, for `fallback`.
        """
        key = _key(args)
        if key is not None and not self._is_other_arch(target_sm):
            row = self._table.row(key, _gpu(args))
            found = [] if row is None else [operator for operator in operators if _is(operator, row["operator"])]
            if len(found) == 1:
                return found
            if row is not None:
                self._table.log(f"{key.text}: {len(found)} of {len(operators)} candidates are the row's operator")
        if self._fallback is None:
            return operators
        ranked: list[Operator] = self._fallback.rank(args, operators, target_sm=target_sm, limit=limit)
        return ranked

    def _is_other_arch(self, target_sm: TargetSm | str | None) -> bool:
        """Return whether the operators are for another architecture than the table's."""
        target = ops.TargetSm.ensure(target_sm)
        if target is None or target.cc == self._table.compute_capability:
            return False
        self._table.warn(f"the table is for sm_{self._table.compute_capability}; for sm_{target} no row applies")
        return True


def _key(args: RuntimeArguments | None) -> Key | None:
    """Return the problem; None for batches, epilogues, and scaled or strided operands, which no row describes."""
    if not isinstance(args, ops.GemmArguments) or args.epilogue is not None:
        return None
    operands = (args.A, args.B, args.out)
    if any(type(operand).__name__ != "DenseTensor" or len(operand.shape) != 2 for operand in operands):
        return None
    a, b, out = (layout_of(operand.stride) for operand in operands)
    if a is None or b is None or out != "n":
        return None
    m, n, k, _ = args.problem_size
    a_dtype, b_dtype, out_dtype = (dtype_name(operand.dtype) for operand in operands)
    return Key(m, n, k, a_dtype, b_dtype, out_dtype, dtype_name(args.accumulator_type), a + b)


def _gpu(args: ops.GemmArguments) -> str | None:
    """Return torch's name of the GPU that holds the operands; None on a CPU, and for other frameworks' tensors.

    The private attribute is read because the public `runtime_tensor` raises for a fake tensor.
    """
    device = getattr(getattr(args.A.tensor, "_runtime_tensor", None), "device", None)
    if getattr(device, "type", None) != "cuda":
        return None
    import torch

    return torch.cuda.get_device_name(device)


def _is(operator: Operator, wanted: Mapping[str, Any]) -> bool:
    """Return whether an operator has the row's class and every design value of the row."""
    if type(operator).__name__ != wanted["class"]:
        return False
    design = operator.metadata.design
    return all(_agrees(getattr(design, name, None), value) for name, value in wanted["design"].items())


def _agrees(found: object, wanted: object) -> bool:
    """Compare a design value with the row's.

    | row's value | agrees with |
    |---|---|
    | shape | a shape that begins with these extents. The class sets a tile's k. |
    | scheduler | an instance of a class of this name. |
    | flag off, or no scheduler | any false value, also if the design lacks it. |
    """
    if isinstance(wanted, list):
        return isinstance(found, tuple) and list(found[: len(wanted)]) == wanted
    if isinstance(wanted, str):
        return type(found).__name__ == wanted
    return found == wanted if wanted else not found
