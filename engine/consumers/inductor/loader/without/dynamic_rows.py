"""Rows for a dynamic m, of which this table has none."""


def dynamic_row(_product: object, _rows: object) -> None:
    """Return None: no row serves a graph with a dynamic m."""
