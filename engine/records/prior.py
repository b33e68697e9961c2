"""What an analytic model makes of a task before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gemmtune.engine.records.config import Config

__all__ = ["Prior"]


@dataclass(frozen=True, slots=True)
class Prior:
    """Times computed, not taken: they rank configs of one problem on one device, and only with times of one model."""

    times_ns: Mapping[Config, float] = field(default_factory=dict)
    """Estimated time of one launch, above 0, by config; a config of which the model has no opinion is missing."""
    model: str = ""
    """The model and its version, `nvidia-matmul-heuristics 0.1.0.27`; empty where no model was asked."""
    reason: str = ""
    """Why there are no times, for a person; empty where there are."""
