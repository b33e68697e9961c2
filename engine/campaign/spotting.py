"""Spots in ranges of m: what a range runs is measured between the sizes that it was made from.

Inside of ranges that run a kernel, the kernel beside the vendor library, whose time goes up and down between two probes
(4096x4096: 12.8 µs at m = 24, 10.9 at 28, 13.0 at 32; a kernel that led at 24 and 32 was 11 % behind at 28; H200,
2026-11-22): a range ends where its kernel loses. And what the ranges run at the m that are held out: their losses there
are what these are for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.probing import by_gemm, serves_too
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import RangeRow
from gemmtune.engine.records.task import BASELINE_SPACE
from gemmtune.engine.scheduling.task_search import TaskSearch, prepare_all
from gemmtune.engine.seams import registry
from gemmtune.engine.search.enumeration import feasible_configs
from gemmtune.engine.tables.ranges import RangeLimits, build_ranges, of_one_gemm
from gemmtune.engine.tables.ranking import Ranking

__all__ = ["check_searches", "spot_searches", "spots"]


def spots(tuned: Iterable[Problem]) -> set[Problem]:
    """Where ranges may be looked at: every second m below 16, then each eighth of an octave, between those tuned."""
    found: set[Problem] = set()
    for sizes in by_gemm(tuned).values():
        between = range(sizes[0].m + 1, sizes[-1].m)
        found |= {replace(sizes[0], m=m) for m in between if m % max(2, (1 << m.bit_length()) // 16) == 0}
    return found


def spot_searches(
    plan: Plan, searches: Sequence[TaskSearch], rankings: Sequence[Ranking], probed: Set[Problem]
) -> list[TaskSearch]:
    """The searches at the spots inside of ranges that run a kernel: over the baseline, and over that kernel.

    Args:
        plan: asks for ranges.
        searches: those of the campaign.
        rankings: what was found at the sizes that were tuned, probed or held out.
        probed: which of them were probed.
    """
    if plan.ranges is None:
        return []
    tasks = {(of_one_gemm(search.task.problem), search.task.space): search.task for search in searches}
    seen = {*plan.held_out, *(ranking.problem for ranking in rankings)}
    unseen = by_gemm(spots(search.task.problem for search in searches) - seen)
    found = []
    for row in _rows(plan, plan.ranges, rankings, probed):
        gemm, choice = of_one_gemm(row.problem), row.choice
        baseline = tasks.get((gemm, BASELINE_SPACE))
        if baseline is None or choice.space == BASELINE_SPACE:
            continue
        own = replace(tasks[gemm, choice.space], problem=row.problem)
        for spot in (each for each in unseen.get(gemm, ()) if row.first <= each.m <= row.last):
            kernel, vendor = replace(own, problem=spot), replace(baseline, problem=spot)
            if serves_too(choice.config, own, kernel):
                theirs = tuple(feasible_configs(registry.space(BASELINE_SPACE), vendor))
                found += [prepare_all(vendor, theirs, plan.seed), prepare_all(kernel, (choice.config,), plan.seed)]
    return found


def check_searches(
    plan: Plan,
    searches: Sequence[TaskSearch],
    rankings: Sequence[Ranking],
    probed: Set[Problem],
    spotted: Set[Problem],
) -> list[TaskSearch]:
    """The searches at the problems that are held out: over what serves them, whichever way the ranges end.

    Args:
        plan: asks for ranges.
        searches: those of the campaign.
        rankings: what was found at the sizes that were tuned, probed, looked at inside of ranges, or held out.
        probed: which of them were probed.
        spotted: which of them were looked at inside of ranges.
    """
    if plan.ranges is None:
        return []
    ways = (replace(plan.ranges, buckets=buckets) for buckets in (False, True))
    rows = [row for way in ways for row in _rows(plan, way, rankings, probed, spotted)]
    found = []
    for task in (search.task for search in searches if search.task.problem in plan.held_out):
        gemm, m, space = of_one_gemm(task.problem), task.problem.m, registry.space(task.space)
        serving = [row.choice for row in rows if of_one_gemm(row.problem) == gemm and row.first <= m <= row.last]
        own = dict.fromkeys(choice.config for choice in serving if choice.space == task.space)
        configs = tuple(config for config in own if space.check(task, config))
        if configs:
            found.append(prepare_all(task, configs, plan.seed))
    return found


def _rows(
    plan: Plan,
    limits: RangeLimits,
    rankings: Sequence[Ranking],
    probed: Set[Problem],
    spotted: Set[Problem] = frozenset(),
) -> tuple[RangeRow, ...]:
    held_out = frozenset(plan.held_out)
    return build_ranges(rankings, limits, margin=plan.margin, held_out=held_out, probed=probed, spotted=spotted)
