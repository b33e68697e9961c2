"""Numbers in the texts of problems. Needs the standard library alone."""

import math


def number_text(value: float) -> str:
    """Return a number as texts have it: 2 for 2.0, and every digit of 0.1."""
    return str(int(value)) if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else repr(value)
