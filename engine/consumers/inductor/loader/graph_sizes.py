"""Sizes of m that one compiled graph serves, as `guards` explains them and the loader guards them."""

from collections.abc import Sequence


def cut_sizes(ranges: Sequence[tuple[int, int]], least: int, greatest: int) -> list[tuple[int | None, int, int]]:
    """Cut the sizes of a graph at the ends of one product's ranges; no part has a single size, if there are more.

    Guards on a lone size would pin m, which torch refuses for a dimension marked dynamic. Another product of the graph,
    or an m that is a multiple of its size, may leave one. It joins the next part, the greatest size the one before.

    Args:
        ranges: first and last size of each range, in order and without overlap.
        least: least size of the graph.
        greatest: greatest size of the graph.

    Returns:
        Parts as (index of the range, or None between ranges; first size; last size), from `least` to `greatest`.
    """
    cut: list[tuple[int | None, int, int]] = []
    begin = least
    for index, (first, last) in enumerate(ranges):
        if max(first, begin) <= min(last, greatest):
            if first > begin:
                cut.append((None, begin, first - 1))
            cut.append((index, max(first, begin), min(last, greatest)))
            begin = cut[-1][2] + 1
    if begin <= greatest:
        cut.append((None, begin, greatest))
    parts: list[tuple[int | None, int, int]] = []
    begin = least
    for part, _, last in cut:
        if begin == last:
            continue
        if parts and parts[-1][0] == part:
            begin = parts.pop()[1]
        parts.append((part, begin, last))
        begin = last + 1
    if parts and begin <= greatest:
        part, first, _ = parts.pop()
        parts.append((part, first, greatest))
    return parts or cut
