"""Find the known name that a mistyped one stands for."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question for a message, `did you mean budget? `; empty where no known name is near.

    Neither case nor `-` and `_` count.
    """
    of_folded = {_folded(each): each for each in known}
    near = get_close_matches(_folded(name)[:100], of_folded, 1)
    return f"did you mean {of_folded[near[0]]}? " if near else ""


def _folded(name: str) -> str:
    return name.casefold().replace("-", "_")
