"""What a sampler searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.measurement import Trial

__all__ = ["FeatureFunction", "Search", "SourceTask", "no_features"]

FeatureFunction = Callable[[Config], Mapping[str, float]]
"""What is known of a config of one task before it is built, as numbers; the same names for every config of a space."""


def no_features(config: Config) -> Mapping[str, float]:
    """Of any config: nothing but its parameters."""
    return {}


@dataclass(frozen=True, slots=True)
class SourceTask:
    """What was measured of another task of the same space."""

    trials: tuple[Trial, ...]
    """Outcomes that compare with each other: one task, protocol and toolchain. Failures are among them."""
    features: FeatureFunction = no_features
    """What is known of that task's configs."""


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
    """Seed of every random choice that is its own."""
    objectives: int = 1
    """Scores a trial has; more than 1 for an objective of several parts."""
    features: FeatureFunction = no_features
    """What is known of this task's configs."""
    campaign_seed: int = 0
    """Seed of what the searches of a campaign have in common: what they make of the same history."""
    history: tuple[SourceTask, ...] = ()
    """What other tasks taught, the oldest first. Part of the search: another history may ask other configs."""
