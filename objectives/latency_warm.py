"""Rank configs by their latency on a warm L2, for inputs that were just written."""

from gemmtune.objectives.latency import Latency


class LatencyWarm(Latency):
    """Time of one launch in a CUDA graph, in nanoseconds, with inputs in L2 as far as they fit."""

    protocol = "graph-warm-l2"
