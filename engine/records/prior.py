"""Prior estimates of an analytic model, before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gemmtune.engine.records.config import Config

__all__ = ["Prior"]


@dataclass(frozen=True, slots=True)
class Prior:
    """Estimated times of one task's configs; they rank only against times of one model, problem and device."""

    times_ns: Mapping[Config, float] = field(default_factory=dict)
    """Estimated time of one launch in ns, above 0, by config; a config that the model does not cover is missing."""
    model: str = ""
    """Model with its version, `nvidia-matmul-heuristics 0.1.0.27`; empty without a model."""
    reason: str = ""
    """Reason for people why there are no times; empty if there are."""
