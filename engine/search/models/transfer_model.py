"""What other tasks teach about this one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search, SourceTask
from gemmtune.engine.search.models.coordinates import Reals, feature_matrix, numbers
from gemmtune.engine.search.models.trees import predicted
from gemmtune.engine.search.task_features import SIZES

__all__ = ["lesson"]

# Chosen by experiments/search/choose.py.
_TREES = 20
_LEAF = 3
_SHARE = 0.5
"""Of the columns, how many a split may choose from: no one of them decides alone, which guards against what all past
tasks share and this one does not."""
_RECORDS = 2000
"""Outcomes learned from, over all tasks; more take longer and teach no more."""
_SLOW = 3.0
"""Natural logarithm of how many times slower than its task's best a config may look; so slow is a failure too."""
_LEAST = 8
"""Outcomes under which a task has not taught anything."""
_TASKS = 125
"""Tasks learned from, the nearest in size: of more, each would have too few outcomes among those."""


def lesson(search: Search, known: Reals) -> Reals | None:
    """What other tasks teach of each feasible config: the logarithm of its time over the best, up to a shift, or None.

    No lesson is drawn where something is so here that was otherwise in all of the past, and never varied there (the
    type, the GPU, how the rows are aligned): what it changes, nobody has seen. Sizes are no such thing, for the space's
    features carry their effect.

    Trees, because they neither mind the units of a column nor extrapolate: on a task outside of all that was seen they
    say what the nearest ones would.

    Args:
        search: the task, with its history.
        known: what is known of each of its feasible configs, configs × names.
    """
    pasts = [past for past in search.history if len(past.trials) >= _LEAST and _any_works(past.trials)]
    if not pasts or not search.feasible:
        return None
    near = _nearest(search, pasts)
    share = _share([len(past.trials) for past in near], _RECORDS)
    lessons = [_memorable(past, share) for past in near]
    trials = [trial for those, _ in lessons for trial in those]
    of_each = [
        feature_matrix(past.features, [trial.config for trial in those])
        for past, (those, _) in zip(near, lessons, strict=True)
    ]
    of_pasts = np.vstack(of_each)
    names = list(search.features(search.feasible[0]))
    if any(
        name not in SIZES and np.ptp(there) == 0 and np.ptp(here) == 0 and there[0] != here[0]
        for name, there, here in zip(names, of_pasts.T, known.T, strict=True)
    ):
        return None
    slowness = np.concatenate([slow for _, slow in lessons])
    params = numbers([*(trial.config for trial in trials), *search.feasible])
    columns = np.hstack([params, np.vstack([of_pasts, known])])
    columns = columns[:, np.ptp(columns, axis=0) > 0]
    before, here = columns[: len(trials)], columns[len(trials) :]
    return predicted(before, slowness, here, trees=_TREES, leaf=_LEAF, share=_SHARE, seed=search.campaign_seed)


def _nearest(search: Search, pasts: Sequence[SourceTask]) -> Sequence[SourceTask]:
    """Not more than `_TASKS`, by the distance of the problems' logarithmic sizes; in their order where it is equal."""
    if len(pasts) <= _TASKS:
        return pasts
    here = search.features(search.feasible[0])

    def distance(past: SourceTask) -> float:
        there = past.features(past.trials[0].config)
        return sum((here[name] - there[name]) ** 2 for name in SIZES if name in here)

    return sorted(pasts, key=distance)[:_TASKS]


def _share(sizes: Sequence[int], most: int) -> int:
    """How many of each may stay, for all to be no more than `most`: what small ones leave goes to the rest."""
    left = most
    for count, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        if size * count > left:
            return left // count
        left -= size
    return max(sizes)


def _any_works(trials: Sequence[Trial]) -> bool:
    return any(trial.score is not None for trial in trials)


def _memorable(past: SourceTask, most: int) -> tuple[list[Trial], Reals]:
    """A task's best trials, as many evenly out of the rest, and how slow each is."""
    scores = np.array([math.inf if trial.score is None else trial.score for trial in past.trials])
    slowness: Reals = np.minimum(np.log(scores / scores.min()), _SLOW)
    order = np.argsort(slowness, kind="stable")
    if len(order) > most:
        best, rest = order[: most // 2], order[most // 2 :]
        order = np.concatenate([best, rest[np.linspace(0, len(rest) - 1, most - len(best)).astype(np.intp)]])
    return [past.trials[i] for i in order], slowness[order]
