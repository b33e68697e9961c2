"""Row that serves a graph with a dynamic m, and the guards that keep the m of other rows out. Needs torch alone."""

from collections.abc import Sequence
from typing import Any

import sympy
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from gemmtune.engine.consumers.inductor.loader.graph_sizes import cut_sizes
from gemmtune.engine.consumers.inductor.loader.loader_rows import ProductRow
from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct

_LEAST = 2  # Dynamo compiles m = 0 and m = 1 for themselves
_NO_END = 2**63 - 1


def dynamic_row(product: LoweredProduct, rows: Sequence[ProductRow]) -> ProductRow | None:
    """Return the row that serves all m of a graph with a dynamic m; guard m if needed and possible.

    A span that ATen serves is guarded, too, so that another m compiles its Triton row.
    """
    tuned = [row for row in rows if not row.is_aten]
    sizevars = V.graph.sizevars
    bounds = sizevars.shape_env.bound_sympy(product.m)
    if _may_guard(product.m, ends=bounds.upper < _NO_END):
        row, guards = _row_and_guards(product, tuned)
        row = row if all(sizevars.evaluate_expr(guard) for guard in guards) else None
    else:
        parts = cut_sizes([(row.first, row.last) for row in tuned], _LEAST, _NO_END)
        serving = [index for index, first, last in parts if first <= bounds.lower and bounds.upper <= last]
        row = tuned[serving[0]] if serving and serving[0] is not None else None
    return row or next((row for row in rows if row.is_aten and row.first <= product.hint <= row.last), None)


def _row_and_guards(product: LoweredProduct, rows: Sequence[ProductRow]) -> tuple[ProductRow | None, list[Any]]:
    """Return the row that serves the first m, if any, and the guards that exclude the m of other rows.

    Where m follows from one symbol s, as 128·s does, ranges and guards are of s: from 129 to 256 torch would pin s = 2.
    """
    bound = V.graph.sizevars.shape_env.bound_sympy
    symbols = sorted(product.m.free_symbols, key=str)
    step, offset = _steps(product.m, symbols)
    size = symbols[0] if step else product.m
    step = step or 1
    least, greatest = int(max(0, bound(size).lower)), int(min(_NO_END, bound(size).upper))
    hint = (product.hint - offset) // step
    ranges = [(-((offset - row.first) // step), (row.last - offset) // step) for row in rows]
    parts = (part for part in cut_sizes(ranges, least, greatest) if part[1] <= hint <= part[2])
    index, first, last = next(parts, (None, least, greatest))
    guards = [sympy.Ge(size, first)] if first > least else []
    guards += [sympy.Le(size, last)] if last < greatest else []
    return None if index is None else rows[index], guards


def _steps(m: sympy.Expr, symbols: Sequence[sympy.Symbol]) -> tuple[int, int]:
    """Return (128, 64) for 128·s + 64; (0, 0) for an expression of another form."""
    if len(symbols) == 1 and m.is_polynomial(*symbols):
        *factor, offset = sympy.Poly(m, *symbols).all_coeffs()
        if len(factor) == 1 and factor[0].is_Integer and offset.is_Integer and factor[0] > 0:
            return int(factor[0]), int(offset)
    return 0, 0


def _may_guard(m: sympy.Expr, *, ends: bool) -> bool:
    """Return whether m may be guarded.

    AOTInductor checks no guards, and an unbacked size has no value to guard. Narrowing a range that the user marked,
    where m ends without a guard, raises ConstraintViolationError.
    """
    shapes = V.graph.sizevars.shape_env
    if V.graph.aot_mode or shapes.frozen or free_unbacked_symbols(m):
        return False
    guarded = {symbol for guard in shapes.guards for symbol in guard.expr.free_symbols}
    return not ends or bool(m.free_symbols & guarded)
