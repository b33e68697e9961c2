"""Latency of one launch on a warm L2: what counts where the inputs were just written."""

from __future__ import annotations

from gemmtune.objectives.latency import Latency

__all__ = ["LatencyWarm"]


class LatencyWarm(Latency):
    """Time of one launch in a CUDA graph, the inputs coming from L2 as far as they fit."""

    protocol = "graph-warm-l2"
