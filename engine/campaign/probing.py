"""Probes for ranges of m: between two m that were tuned, the best of both and the vendor library are measured.

A probe is at 2^e or 3·2^e between the two: with the powers of two alone, ranges lost up to 17 % at 96 and 1536, and one
was 2.7 % slower there than the library (H200, 2026-11-22). Only what was built for a neighbour is measured there, so
that a probe costs milliseconds of the GPU a config, where a problem that is tuned costs a search. It gets no row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from itertools import pairwise

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import BASELINE_SPACE, Task
from gemmtune.engine.scheduling.task_search import TaskSearch, prepare_all
from gemmtune.engine.seams import registry
from gemmtune.engine.search.enumeration import feasible_configs
from gemmtune.engine.tables.ranges import of_one_gemm
from gemmtune.engine.tables.ranking import Ranking

__all__ = ["by_gemm", "probe_searches", "probes", "serves_too"]

_OF_A_NEIGHBOUR = 5
"""Configs of a space that a probe takes over from each of its neighbours. Not the winners alone: at m = 32 tiles of 32
rows won on three of nine GEMMs, and at 16 they had come fourth or fifth (H200, 2026-11-22)."""


def probes(tuned: Iterable[Problem], held_out: Set[Problem] = frozenset()) -> dict[Problem, tuple[Problem, Problem]]:
    """Each probe with its neighbours: 2^e and 3·2^e strictly between two neighbouring m of one GEMM, without 1 and 3.

    What is held out stays unseen. A probe weighs as much as its lesser neighbour.
    """
    found: dict[Problem, tuple[Problem, Problem]] = {}
    for sizes in by_gemm(dict.fromkeys(tuned)).values():
        for less, more in pairwise(sizes):
            between = (replace(less, m=m) for m in _between(less.m, more.m))
            found |= {problem: (less, more) for problem in between if problem not in held_out}
    return found


def by_gemm(problems: Iterable[Problem]) -> dict[Problem, list[Problem]]:
    """The problems of each GEMM, which differ in m alone, in its order."""
    found: defaultdict[Problem, list[Problem]] = defaultdict(list)
    for problem in sorted(problems, key=lambda each: each.m):
        found[of_one_gemm(problem)].append(problem)
    return dict(found)


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
    found = []
    for probe, neighbours in probes((task.problem for task in tasks), set(plan.held_out)).items():
        near = [ranked[problem] for problem in neighbours if problem in ranked]
        here = dict.fromkeys(replace(task, problem=probe) for task in tasks if task.problem in neighbours)
        baseline = {t: tuple(feasible_configs(registry.space(t.space), t)) for t in here if t.space == BASELINE_SPACE}
        others = {t: tuple(_taken_over(t, near)) for t in here if t.space != BASELINE_SPACE}
        for task, few in (baseline | others).items():
            if few and any(others.values()):
                found.append(prepare_all(task, few, plan.seed))
    return found


def _taken_over(task: Task, neighbours: Iterable[Ranking]) -> dict[Config, None]:
    """The best configs of the task's space at each neighbour, as far as their binaries serve the task."""
    found: dict[Config, None] = {}
    for near in neighbours:
        its = replace(task, problem=near.problem)
        own = sorted((c for c in near.contenders if c.choice.space == task.space), key=lambda c: (c.score, c.order))
        for config in (contender.choice.config for contender in own[:_OF_A_NEIGHBOUR]):
            if serves_too(config, its, task):
                found[config] = None
    return found


def serves_too(config: Config, task: Task, other: Task) -> bool:
    """Whether the binary of one task is that of another, and right there."""
    space = registry.space(task.space)
    return bool(space.check(other, config)) and space.artifact_key(task, config) == space.artifact_key(other, config)
