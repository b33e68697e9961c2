"""Drops, before it is built, what an analytic model expects to be slow."""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cache

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import UnknownPlugin
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.prior import Prior
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.pruner import Candidate, Pruner

__all__ = ["EXPLORED_SHARE", "KEPT_SHARE", "PriorPruner"]

KEPT_SHARE = 0.25
"""Of a task's estimated configs, the best by estimate that are kept; those as good as the last of them are kept too."""

EXPLORED_SHARE = 0.1
"""Of the others, how many are kept all the same, so that a model that is wrong can be found out."""


class PriorPruner(Pruner):
    """Keeps the best share by the estimates of the config's space, and a share of the rest that its digest draws."""

    def judge(self, candidate: Candidate, history: Sequence[Measurement]) -> Verdict:
        """No to what is neither among the best nor drawn; yes once it is built, and where there is no estimate."""
        times_ns, sorted_ns = _estimates(candidate.task)
        time_ns = times_ns.get(candidate.config)
        if candidate.artifact is not None or time_ns is None or _is_drawn(candidate.task, candidate.config):
            return Verdict.yes()
        kept = math.ceil(KEPT_SHARE * len(sorted_ns))
        faster = bisect_left(sorted_ns, time_ns)
        if faster < kept:
            return Verdict.yes()
        place = f"estimated at {time_ns / 1e3:.1f} µs, behind {faster} of {len(sorted_ns)} configs"
        return Verdict.no("estimate", f"{place}; the best {kept} are kept, and {EXPLORED_SHARE:.0%} of the others")


@cache
def _estimates(task: Task) -> tuple[Mapping[Config, float], Sequence[float]]:
    """The estimates of a task, and the same times in ascending order; nothing for a space that is not installed."""
    try:
        prior = registry.space(task.space).prior(task)
    except UnknownPlugin:
        prior = Prior()
    return prior.times_ns, sorted(prior.times_ns.values())


def _is_drawn(task: Task, config: Config) -> bool:
    """Draw from the config's digest and the task, so that each problem explores configs of its own."""
    draw = hashlib.sha256(f"{task.key}/{config.digest}".encode()).digest()
    return int.from_bytes(draw[:4], "big") < EXPLORED_SHARE * 2**32
