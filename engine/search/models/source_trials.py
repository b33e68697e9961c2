"""Choice of the trials of other tasks that a model learns from."""

import math
from collections.abc import Sequence

import numpy as np

from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import SourceTask
from gemmtune.engine.search.models.coordinates import Reals
from gemmtune.engine.search.task_features import SIZE_PREFIX

_MIN_TRIALS = 4
"""Smallest number of trials of a source task."""
_MAX_SLOWNESS = 3.0
"""Cap on the natural logarithm of a time over its task's best time; a failure counts as the cap."""


def usable_sources(history: Sequence[SourceTask]) -> list[SourceTask]:
    """Return the source tasks with enough trials, at least one of which has a score."""
    return [
        source
        for source in history
        if len(source.trials) >= _MIN_TRIALS and any(trial.score is not None for trial in source.trials)
    ]


def has_new_fact(names: Sequence[str], there: Reals, here: Reals) -> bool:
    """Return whether a feature is constant on this task and had one other value on all source tasks.

    No source task shows the effect of such a fact: another type, GPU or alignment. Problem sizes are exempt.

    Args:
        names: names of the features.
        there: features of configs of the source tasks, shape (configs, features).
        here: features of configs of this task, shape (configs, features).
    """
    return any(
        not name.startswith(SIZE_PREFIX) and np.ptp(others) == 0 and np.ptp(own) == 0 and others[0] != own[0]
        for name, others, own in zip(names, there.T, here.T, strict=True)
    )


def fair_share(sizes: Sequence[int], total: int) -> int:
    """Return the cap on each size that keeps their sum within `total`."""
    left = total
    for count, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        if size * count > left:
            return left // count
        left -= size
    return max(sizes)


def select_trials(source: SourceTask, most: int) -> tuple[list[Trial], Reals]:
    """Return at most `most` trials with their slowness: the best half, and others spread evenly over the rest."""
    scores = np.array([math.inf if trial.score is None else trial.score for trial in source.trials])
    slowness: Reals = np.minimum(np.log(scores / scores.min()), _MAX_SLOWNESS)
    order = np.argsort(slowness, kind="stable")
    if len(order) > most:
        best, rest = order[: most // 2], order[most // 2 :]
        order = np.concatenate([best, rest[np.linspace(0, len(rest) - 1, most - len(best)).astype(np.intp)]])
    return [source.trials[i] for i in order], slowness[order]
