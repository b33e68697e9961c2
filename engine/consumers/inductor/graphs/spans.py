"""Least and greatest value of an expression of open sizes. Imports torch."""

import heapq
from collections.abc import Mapping
from typing import Any

from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

_MOST_PARTS = 400  # of the ranges; each part takes about 1 ms


def bounds_of(expression: Any, ranges: Mapping[Any, Any]) -> tuple[int, int]:  # noqa: ANN401 (sympy's)
    """Return the least and the greatest value of an expression whose symbols lie in finite ranges.

    Torch's own bounds take each occurrence of a symbol for itself: they give the last of four chunks of m rows, m less
    three chunks, nearly m rows. So the ranges are halved, where the bound is furthest, until it is a value.
    """
    return -_greatest(-expression, ranges), _greatest(expression, ranges)


def _greatest(expression: Any, ranges: Mapping[Any, Any]) -> int:  # noqa: ANN401 (as above)
    parts = [(-_bound(expression, ranges), 0, dict(ranges))]
    for number in range(1, _MOST_PARTS, 2):
        bound, _, part = parts[0]
        corners = [{symbol: getattr(span, side) for symbol, span in part.items()} for side in ("lower", "upper")]
        ends = [{symbol: ValueRanges(end, end) for symbol, end in corner.items()} for corner in corners]
        if any(_bound(expression, end) == -bound for end in ends):
            break
        heapq.heappop(parts)
        widest = max(part, key=lambda symbol: part[symbol].upper - part[symbol].lower)
        low, high = part[widest].lower, part[widest].upper
        middle = (low + high) // 2
        for place, half in enumerate((ValueRanges(low, middle), ValueRanges(middle + 1, high))):
            halved = {**part, widest: half}
            heapq.heappush(parts, (-_bound(expression, halved), number + place, halved))
    return -parts[0][0]


def _bound(expression: Any, ranges: Mapping[Any, Any]) -> int:  # noqa: ANN401 (as above)
    return int(bound_sympy(expression, dict(ranges)).upper)
