"""What other tasks teach about this one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Past, Search
from gemmtune.engine.search.coordinates import Reals, described, values_by_name
from gemmtune.engine.search.description import SIZES

__all__ = ["expectation"]

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


def expectation(search: Search, known: Reals) -> Reals | None:
    """The logarithm of time over best time that each feasible config may be expected to have; None where none teaches.

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
    lessons = [_memorable(past, _RECORDS // len(near)) for past in near]
    configs = [trial.config for trials, _ in lessons for trial in trials]
    of_pasts = np.vstack(
        [
            described(past.describe, [trial.config for trial in trials])
            for past, (trials, _) in zip(near, lessons, strict=True)
        ]
    )
    names = list(search.describe(search.feasible[0]))
    if any(
        name not in SIZES and np.ptp(there) == 0 and np.ptp(here) == 0 and there[0] != here[0]
        for name, there, here in zip(names, of_pasts.T, known.T, strict=True)
    ):
        return None
    slowness = np.concatenate([slow for _, slow in lessons])
    columns = np.hstack([_values([*configs, *search.feasible]), np.vstack([of_pasts, known])])
    columns = columns[:, np.ptp(columns, axis=0) > 0]
    from sklearn.ensemble import ExtraTreesRegressor  # a second to import, and many campaigns learn nothing

    model = ExtraTreesRegressor(_TREES, min_samples_leaf=_LEAF, max_features=_SHARE, random_state=search.seed % 2**32)
    expected: Reals = model.fit(columns[: len(configs)], slowness).predict(columns[len(configs) :])
    return expected


def _nearest(search: Search, pasts: Sequence[Past]) -> Sequence[Past]:
    """Not more than `_TASKS`, by the distance of the problems' logarithmic sizes; in their order where it is equal."""
    if len(pasts) <= _TASKS:
        return pasts
    here = search.describe(search.feasible[0])

    def distance(past: Past) -> float:
        there = past.describe(past.trials[0].config)
        return sum((here[name] - there[name]) ** 2 for name in SIZES if name in here)

    return sorted(pasts, key=distance)[:_TASKS]


def _any_works(trials: Sequence[Trial]) -> bool:
    return any(trial.score is not None for trial in trials)


def _memorable(past: Past, most: int) -> tuple[list[Trial], Reals]:
    """A task's best trials, as many evenly out of the rest, and how slow each is."""
    scores = np.array([math.inf if trial.score is None else trial.score for trial in past.trials])
    slowness: Reals = np.minimum(np.log(scores / scores.min()), _SLOW)
    order = np.argsort(slowness, kind="stable")
    if len(order) > most:
        best, rest = order[: most // 2], order[most // 2 :]
        order = np.concatenate([best, rest[np.linspace(0, len(rest) - 1, most - len(best)).astype(np.intp)]])
    return [past.trials[i] for i in order], slowness[order]


def _values(configs: Sequence[Config]) -> Reals:
    """The parameters' values, configs × parameters; texts by their place in the alphabet."""
    columns = []
    for values in values_by_name(configs).values():
        if isinstance(values[0], str):
            columns.append(np.unique(values, return_inverse=True)[1].astype(np.float64))
        else:
            columns.append(np.array(values, np.float64))
    return np.stack(columns, axis=1) if columns else np.empty((len(configs), 0))
