"""Numbers in the texts of problems. Needs the standard library alone."""

import math
from sys import float_info


def number_text(value: float) -> str:
    """Return a number as texts have it: 2 for 2.0, and every digit of 0.1."""
    return str(int(value)) if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else repr(value)


def number_of(text: str) -> float:
    """Return the number that a text spells; raises ValueError for a finite one above the largest float, 1.8e308."""
    if math.isinf(value := float(text)) and "inf" not in text:
        raise ValueError(f"{text[:20]} is above the largest number, {float_info.max:.1e}: write inf")
    return value
