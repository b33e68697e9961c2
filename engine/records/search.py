"""What a sampler searches."""

from __future__ import annotations

from dataclasses import dataclass

from gemmtune.engine.records.config import Config, Param

__all__ = ["Search"]


@dataclass(frozen=True, slots=True)
class Search:
    """The feasible set of one task, and the terms of the search."""

    params: tuple[Param, ...]
    """The parameters that span the space."""
    feasible: tuple[Config, ...]
    """Every config that passed the space's check, each once, in the order of enumeration."""
    seeds: tuple[Config, ...]
    """Feasible configs known to be good starting points, best guess first; may be empty."""
    budget: int
    """Evaluations the search may spend."""
    seed: int
    """Seed of every random choice."""
    objectives: int = 1
    """Scores a trial has; more than 1 for an objective of several parts."""
