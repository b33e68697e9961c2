"""Pruner that drops configs whose estimated time is slow, before they are built."""

import hashlib
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cache

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import UnknownPlugin
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.search import Prior
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.pruner import Candidate, Pruner

KEPT_SHARE = 0.25
"""Share of a task's estimated configs that are kept, the fastest by estimate, and ties of the last of them."""

EXPLORED_SHARE = 0.1
"""Share of the other configs that are kept as well, so that a wrong model shows."""


class PriorPruner(Pruner):
    """Pruner that keeps the fastest share by the space's prior, and a share of the rest drawn by digest."""

    def judge(self, candidate: Candidate, history: Sequence[Measurement]) -> Verdict:
        """Drop a config that is neither among the fastest nor drawn; keep it once built, or without an estimate."""
        times_ns, sorted_ns = _estimates(candidate.task)
        time_ns = times_ns.get(candidate.config)
        drawn = hashlib.sha256(f"{candidate.task.key}/{candidate.config.digest}".encode()).digest()[:4]
        is_drawn = int.from_bytes(drawn, "big") < EXPLORED_SHARE * 2**32  # other configs of each problem
        if candidate.artifact is not None or time_ns is None or is_drawn:
            return Verdict.yes()
        kept, faster = math.ceil(KEPT_SHARE * len(sorted_ns)), bisect_left(sorted_ns, time_ns)
        if faster < kept:
            return Verdict.yes()
        rank = f"estimated at {time_ns / 1e3:.1f} µs, behind {faster} of {len(sorted_ns)} configs"
        return Verdict.no("estimate", f"{rank}; the best {kept} are kept, and {EXPLORED_SHARE:.0%} of the others")


@cache
def _estimates(task: Task) -> tuple[Mapping[Config, float], Sequence[float]]:
    """Return a task's estimated times by config, and in ascending order; both empty if its space is not installed."""
    try:
        prior = registry.space(task.space).prior(task)
    except UnknownPlugin:
        prior = Prior()
    return prior.times_ns, sorted(prior.times_ns.values())
