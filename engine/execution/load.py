"""What an executor has to do at one moment, for who watches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["Gauged", "Load"]


@dataclass(frozen=True, slots=True)
class Load:
    """Numbers of configs, and the workers."""

    queued: int
    """Wait for a builder."""
    building: int
    """Are being built, or are with a builder that will take them next."""
    timing: int
    """Are built, and are being timed or wait for it."""
    workers: Mapping[str, bool]
    """Name to whether it has something at hand to time; without those that were lost."""


@runtime_checkable
class Gauged(Protocol):
    """An executor that can say so; one that answers at once has nothing to say."""

    def load(self) -> Load:
        """What it has to do now."""
