"""Measure what ranges of m need besides the searches, in rounds that build little or nothing.

| round    | where                                             | configs                                             |
|----------|---------------------------------------------------|-----------------------------------------------------|
| winners  | every tuned m                                     | the best config of every other tuned m of the GEMM  |
| probes   | 2^e and 3·2^e between neighbouring tuned m        | the best of both neighbours, and the vendor library |
| interior | eighths of an octave within ranges of a kernel    | the range's kernel, and the vendor library          |
| held out | m that are held out                               | what the ranges run there                           |

Probes and interior points are measured only where the executor measures. They get no row.
See experiments/tables for what each round finds.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.table import RangeRow
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.task_search import TaskSearch, exhaustive_search
from gemmtune.engine.search.enumeration import feasible_configs
from gemmtune.engine.tables.loss_limits import RangeLimits
from gemmtune.engine.tables.ranges import build_ranges
from gemmtune.engine.tables.ranking import Ranking

_PER_NEIGHBOUR = 5
"""Configs of a space that a probe takes from each neighbour; the winners alone miss the best (experiments/tables)."""


@dataclass(frozen=True, slots=True)
class RangeMeasurements:
    """Searches that were run for the ranges alone."""

    probe_searches: Sequence[TaskSearch] = ()
    """Finished searches at the probes."""
    interior_searches: Sequence[TaskSearch] = ()
    """Finished searches at the interior points of ranges."""

    @property
    def probed(self) -> frozenset[Workload]:
        """Problems that were probed."""
        return frozenset(search.task.problem for search in self.probe_searches)

    @property
    def interior(self) -> frozenset[Workload]:
        """Problems that were measured inside of ranges."""
        return frozenset(search.task.problem for search in self.interior_searches)


def measure_ranges(
    plan: Plan,
    limits: RangeLimits,
    searches: Sequence[TaskSearch],
    *,
    measures: bool,
    run: Callable[[Sequence[TaskSearch]], None],
    rankings: Callable[[Sequence[TaskSearch]], list[Ranking]],
) -> RangeMeasurements:
    """Run the rounds.

    Args:
        plan: what is tuned.
        limits: how the plan makes ranges.
        searches: the finished searches of the plan's tasks.
        measures: whether the executor measures; recordings hold no problem between the tuned ones.
        run: runs searches to their end.
        rankings: returns the rankings of the problems of these searches.
    """
    tasks = [search.task for search in searches]
    run(winner_searches(plan, tasks, rankings(searches)))
    found = RangeMeasurements()
    if measures:
        found = RangeMeasurements(probe_searches(plan, tasks, rankings(searches)))
        run(found.probe_searches)
        ranked = rankings((*searches, *found.probe_searches))
        found = replace(found, interior_searches=_interior_searches(plan, limits, tasks, ranked, found.probed))
        run(found.interior_searches)
    if plan.held_out:
        ranked = rankings((*searches, *found.probe_searches, *found.interior_searches))
        run(_held_out_searches(plan, limits, tasks, ranked, found))
    return found


def winner_searches(plan: Plan, tasks: Iterable[Task], rankings: Iterable[Ranking]) -> list[TaskSearch]:
    """Return a search per task over the best configs of its space at every tuned m of its GEMM."""
    winners: defaultdict[tuple[Workload, str], dict[Config, None]] = defaultdict(dict)
    for ranking in rankings:
        if ranking.problem not in plan.held_out:
            for name in plan.spaces:
                best = next((c.choice.config for c in ranking.contenders if c.choice.space == name), None)
                if best is not None:
                    winners[ranking.problem.series, name][best] = None
    found = []
    for task in tasks:
        if not task.is_baseline and task.problem not in plan.held_out:
            space = plan.plugins.spaces[task.space]
            configs = [c for c in winners[task.problem.series, task.space] if space.check(task, c)]
            if len(configs) > 1:
                found.append(_search(plan, task, configs))
    return found


def probe_problems(
    tuned: Iterable[Workload], held_out: Set[Workload] = frozenset()
) -> dict[Workload, tuple[Workload, Workload]]:
    """Return each probe with its neighbours: 2^e and 3·2^e strictly between two neighbouring m of one GEMM.

    Neither 1 nor 3 nor a held-out problem is probed. A probe has the weight of its lesser neighbour.
    """
    found: dict[Workload, tuple[Workload, Workload]] = {}
    for sizes in _by_series(dict.fromkeys(tuned)).values():
        for less, more in pairwise(sizes):
            between = (less.resized(size) for size in _probed_between(less.size, more.size))
            found |= {problem: (less, more) for problem in between if problem not in held_out}
    return found


def _probed_between(less: int, more: int) -> list[int]:
    """Return the m to probe between two others, in order.

    3 is left out: with a dynamic m no range ends at 2. A range that would end there reaches on to 3 if nothing was
    measured at 3. Otherwise 2 could go to the next range, whose choice may be slower than the vendor library there.
    """
    powers = [1 << exponent for exponent in range(1, more.bit_length())]
    return sorted(m for power in powers for m in (power, 3 * power) if less < m < more)


def probe_searches(plan: Plan, tasks: Iterable[Task], rankings: Iterable[Ranking]) -> list[TaskSearch]:
    """Return the searches at the probes, the baseline of each probe first where it has one.

    A config is measured at a probe if the binary built for a neighbour is correct there too. A probe without such a
    config is left out, as for kernels of a static m.
    """
    ranked = {ranking.problem: ranking for ranking in rankings}
    tuned = [task for task in tasks if task.problem not in plan.held_out]
    found = []
    for probe, neighbours in probe_problems((task.problem for task in tuned), set(plan.held_out)).items():
        near = [ranked[problem] for problem in neighbours if problem in ranked]
        here = dict.fromkeys(replace(task, problem=probe) for task in tuned if task.problem in neighbours)
        vendor = {task: _baseline(plan, task) for task in here if task.is_baseline}
        others = {task: _best_nearby(plan, task, near) for task in here if not task.is_baseline}
        if any(others.values()):
            found += [_search(plan, task, configs) for task, configs in (vendor | others).items() if configs]
    return found


def _best_nearby(plan: Plan, task: Task, neighbours: Iterable[Ranking]) -> tuple[Config, ...]:
    """Return the best configs of the task's space at each neighbour whose binaries serve the task."""
    found: dict[Config, None] = {}
    for near in neighbours:
        own = sorted((c for c in near.contenders if c.choice.space == task.space), key=lambda c: (c.score, c.order))
        for config in (contender.choice.config for contender in own[:_PER_NEIGHBOUR]):
            if _serves_too(plan, config, replace(task, problem=near.problem), task):
                found[config] = None
    return tuple(found)


def interior_problems(tuned: Iterable[Workload]) -> set[Workload]:
    """Return where ranges may be measured inside: every second m below 16, then each eighth of an octave."""
    found: set[Workload] = set()
    for sizes in _by_series(tuned).values():
        between = range(sizes[0].size + 1, sizes[-1].size)
        found |= {sizes[0].resized(n) for n in between if n % max(2, (1 << n.bit_length()) // 16) == 0}
    return found


def _interior_searches(
    plan: Plan, limits: RangeLimits, tasks: Sequence[Task], rankings: Sequence[Ranking], probed: Set[Workload]
) -> list[TaskSearch]:
    """Return the searches inside of ranges that run a kernel: over the baseline, and over that kernel."""
    by_series = {(task.problem.series, task.space): task for task in tasks}
    seen = {*plan.held_out, *(ranking.problem for ranking in rankings)}
    unseen = _by_series(interior_problems(task.problem for task in tasks) - seen)
    found = []
    for row in _rows(plan, limits, rankings, probed):
        series, choice = row.problem.series, row.choice
        baseline = row.problem.baseline_space
        if (series, baseline) not in by_series or choice.space == baseline:
            continue
        kernel = by_series[series, choice.space]
        for problem in (each for each in unseen.get(series, ()) if row.first <= each.size <= row.last):
            vendor = replace(by_series[series, baseline], problem=problem)
            there = replace(kernel, problem=problem)
            if _serves_too(plan, choice.config, replace(kernel, problem=row.problem), there):
                found += [_search(plan, vendor, _baseline(plan, vendor)), _search(plan, there, (choice.config,))]
    return found


def _held_out_searches(
    plan: Plan, limits: RangeLimits, tasks: Iterable[Task], rankings: Sequence[Ranking], measured: RangeMeasurements
) -> list[TaskSearch]:
    """Return the searches at the held-out problems, over what serves them."""
    rows = _rows(plan, limits, rankings, measured.probed, measured.interior)
    found = []
    for task in tasks:
        if task.problem in plan.held_out:
            series, size, space = task.problem.series, task.problem.size, plan.plugins.spaces[task.space]
            serving = [row.choice for row in rows if row.problem.series == series and row.first <= size <= row.last]
            own = dict.fromkeys(choice.config for choice in serving if choice.space == task.space)
            configs = [config for config in own if space.check(task, config)]
            if configs:
                found.append(_search(plan, task, configs))
    return found


def _search(plan: Plan, task: Task, configs: Sequence[Config]) -> TaskSearch:
    return exhaustive_search(task, plan.plugins.spaces[task.space], configs, plan.scores)


def _baseline(plan: Plan, task: Task) -> tuple[Config, ...]:
    return tuple(feasible_configs(plan.plugins.spaces[task.space], task))


def _rows(
    plan: Plan,
    limits: RangeLimits,
    rankings: Sequence[Ranking],
    probed: Set[Workload],
    interior: Set[Workload] = frozenset(),
) -> tuple[RangeRow, ...]:
    held_out = frozenset(plan.held_out)
    return build_ranges(rankings, limits, margin=plan.margin, held_out=held_out, probed=probed, interior=interior)


def _by_series(problems: Iterable[Workload]) -> dict[Workload, list[Workload]]:
    """Return the problems of each series, which differ in the range size alone, sorted by it."""
    found: defaultdict[Workload, list[Workload]] = defaultdict(list)
    for problem in sorted(problems, key=lambda each: each.size):
        found[problem.series].append(problem)
    return dict(found)


def _serves_too(plan: Plan, config: Config, task: Task, other: Task) -> bool:
    """Return whether the config's binary for one task is its binary for another, and correct there."""
    space = plan.plugins.spaces[task.space]
    return bool(space.check(other, config)) and space.artifact_key(task, config) == space.artifact_key(other, config)
