"""How a search that learns starts: from the seeds."""

from __future__ import annotations

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.search import Search

__all__ = ["opening"]


def opening(search: Search) -> list[Config]:
    """The seeds to evaluate first, best guess first, each once: at most a quarter of the budget, and at least one.

    A vendor's list may be as long as a small budget (Inductor's default list has 20 configs); a search that spent
    itself on it would only repeat what the vendor knows.
    """
    return list(dict.fromkeys(search.seeds))[: max(1, search.budget // 4)]
