"""The second round of a campaign for ranges of m: what is good at one m is measured at others of the same GEMM.

First what won at one m at the others that were tuned; then, at *probes*, the best of two neighbours that were tuned and
the vendor library. A probe is at 2^e or 3·2^e between the two: with the powers of two alone, ranges lost up to 17 % at
96 and 1536, and one was 2.7 % slower there than the library (H200, 2026-11-22). Only what was built for a neighbour is
measured there, so that a probe costs milliseconds of the GPU a config, where a problem that is tuned costs a search. It
gets no row. Then, inside of ranges that run a kernel, *spots*: the kernel beside the library, whose time goes up and
down between two probes (4096x4096: 12.8 µs at m = 24, 10.9 at 28, 13.0 at 32; a kernel that led at 24 and 32 was 11 %
behind at 28; H200, 2026-11-22). Last, what the ranges run at the m that are held out: their losses there are what these
are for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from itertools import pairwise

from gemmtune.engine.campaign.plan import BASELINE_SPACE, Plan
from gemmtune.engine.campaign.task_search import TaskSearch, prepare
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import RangeRow
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.search.feasible import feasible
from gemmtune.engine.tables.ranges import RangeLimits, build_ranges, of_one_gemm
from gemmtune.engine.tables.ranking import Ranking

__all__ = ["check_searches", "crossings", "probe_searches", "probes", "spot_searches", "spots"]

_OF_A_NEIGHBOUR = 5
"""Configs of a space that a probe takes over from each of its neighbours. Not the winners alone: at m = 32 tiles of 32
rows won on three of nine GEMMs, and at 16 they had come fourth or fifth (H200, 2026-11-22)."""


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


def probes(tuned: Iterable[Problem], held_out: Set[Problem] = frozenset()) -> dict[Problem, tuple[Problem, Problem]]:
    """Each probe with its neighbours: 2^e and 3·2^e strictly between two neighbouring m of one GEMM, without 1 and 3.

    What is held out stays unseen. A probe weighs as much as its lesser neighbour.
    """
    gemms: defaultdict[Problem, list[Problem]] = defaultdict(list)
    for problem in dict.fromkeys(tuned):
        gemms[of_one_gemm(problem)].append(problem)
    found: dict[Problem, tuple[Problem, Problem]] = {}
    for sizes in gemms.values():
        for less, more in pairwise(sorted(sizes, key=lambda problem: problem.m)):
            between = (replace(less, m=m) for m in _between(less.m, more.m))
            found |= {problem: (less, more) for problem in between if problem not in held_out}
    return found


def _between(less: int, more: int) -> list[int]:
    """Where to probe between two m, in order.

    Not at 3: with a dynamic m no range ends at 2. One that would reaches on to 3 if nothing was measured there; else 2
    may go to the next range, whose choice can be slower than the library at 2 (`ranges`).
    """
    powers = [1 << exponent for exponent in range(1, more.bit_length())]
    return sorted(m for power in powers for m in (power, 3 * power) if less < m < more)


def probe_searches(plan: Plan, searches: Sequence[TaskSearch], rankings: Iterable[Ranking]) -> list[TaskSearch]:
    """The searches at the probes between what was searched, the baseline of each first where it has one.

    A config is measured at a probe if the binary that was built for a neighbour is right there, too; where there is
    none such, as for kernels of a static m, there is no probe.
    """
    ranked = {ranking.problem: ranking for ranking in rankings}
    tasks = [search.task for search in searches if search.task.problem not in plan.held_out]
    sampler = registry.sampler("exhaustive")
    found = []
    for probe, neighbours in probes((task.problem for task in tasks), set(plan.held_out)).items():
        near = [ranked[problem] for problem in neighbours if problem in ranked]
        here = dict.fromkeys(replace(task, problem=probe) for task in tasks if task.problem in neighbours)
        baseline = {t: tuple(feasible(registry.space(t.space), t)) for t in here if t.space == BASELINE_SPACE}
        others = {t: tuple(_taken_over(t, near)) for t in here if t.space != BASELINE_SPACE}
        for task, few in (baseline | others).items():
            if few and any(others.values()):
                found.append(prepare(task, registry.space(task.space), few, sampler, len(few), plan.seed, len(few)))
    return found


def spots(tuned: Iterable[Problem]) -> set[Problem]:
    """Where ranges may be looked at: every second m below 16, then each eighth of an octave, between those tuned."""
    gemms: defaultdict[Problem, list[Problem]] = defaultdict(list)
    for problem in tuned:
        gemms[of_one_gemm(problem)].append(problem)
    found: set[Problem] = set()
    for sizes in gemms.values():
        by_m = sorted(sizes, key=lambda problem: problem.m)
        between = range(by_m[0].m + 1, by_m[-1].m)
        found |= {replace(by_m[0], m=m) for m in between if m % max(2, (1 << m.bit_length()) // 16) == 0}
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
    unseen = sorted(spots(search.task.problem for search in searches) - seen, key=lambda problem: problem.m)
    sampler = registry.sampler("exhaustive")
    found = []
    for row in _rows(plan, plan.ranges, rankings, probed):
        gemm, choice = of_one_gemm(row.problem), row.choice
        baseline = tasks.get((gemm, BASELINE_SPACE))
        if baseline is None or choice.space == BASELINE_SPACE:
            continue
        own = replace(tasks[gemm, choice.space], problem=row.problem)
        for spot in (each for each in unseen if of_one_gemm(each) == gemm and row.first <= each.m <= row.last):
            kernel, vendor = replace(own, problem=spot), replace(baseline, problem=spot)
            if _serves_too(choice.config, own, kernel):
                theirs = tuple(feasible(registry.space(BASELINE_SPACE), vendor))
                for task, few in ((vendor, theirs), (kernel, (choice.config,))):
                    found.append(prepare(task, registry.space(task.space), few, sampler, len(few), plan.seed, len(few)))
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
    sampler = registry.sampler("exhaustive")
    found = []
    for task in (search.task for search in searches if search.task.problem in plan.held_out):
        gemm, m, space = of_one_gemm(task.problem), task.problem.m, registry.space(task.space)
        serving = [row.choice for row in rows if of_one_gemm(row.problem) == gemm and row.first <= m <= row.last]
        own = dict.fromkeys(choice.config for choice in serving if choice.space == task.space)
        configs = tuple(config for config in own if space.check(task, config))
        if configs:
            found.append(prepare(task, space, configs, sampler, len(configs), plan.seed, len(configs)))
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


def _taken_over(task: Task, neighbours: Iterable[Ranking]) -> dict[Config, None]:
    """The best configs of the task's space at each neighbour, as far as their binaries serve the task."""
    found: dict[Config, None] = {}
    for near in neighbours:
        its = replace(task, problem=near.problem)
        own = sorted((c for c in near.contenders if c.choice.space == task.space), key=lambda c: (c.score, c.order))
        for config in (contender.choice.config for contender in own[:_OF_A_NEIGHBOUR]):
            if _serves_too(config, its, task):
                found[config] = None
    return found


def _serves_too(config: Config, task: Task, other: Task) -> bool:
    """Whether the binary of one task is that of another, and right there."""
    space = registry.space(task.space)
    return bool(space.check(other, config)) and space.artifact_key(task, config) == space.artifact_key(other, config)
