"""The second round of a campaign for ranges of m: what won at one m is measured at the others of the same GEMM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import BASELINE_SPACE
from gemmtune.engine.scheduling.task_search import TaskSearch, prepare
from gemmtune.engine.seams import registry
from gemmtune.engine.tables.ranges import of_one_gemm
from gemmtune.engine.tables.ranking import Ranking

__all__ = ["crossings"]


def crossings(plan: Plan, searches: Sequence[TaskSearch], rankings: Iterable[Ranking]) -> list[TaskSearch]:
    """One search for each task of a GEMM that was tuned at several m: over the space's best configs at each of them."""
    winners: defaultdict[tuple[Problem, str], dict[Config, None]] = defaultdict(dict)
    for ranking in rankings:
        if ranking.problem not in plan.held_out:
            for name in plan.spaces:
                best = next((c.choice.config for c in ranking.contenders if c.choice.space == name), None)
                if best is not None:
                    winners[of_one_gemm(ranking.problem), name][best] = None
    sampler = registry.sampler("exhaustive")
    found = []
    for search in searches:
        task = search.task
        if task.space == BASELINE_SPACE or task.problem in plan.held_out:
            continue
        space = registry.space(task.space)
        crossed = tuple(c for c in winners[of_one_gemm(task.problem), task.space] if space.check(task, c))
        if len(crossed) > 1:
            found.append(prepare(task, space, crossed, sampler, len(crossed), plan.seed, plan.batch))
    return found
