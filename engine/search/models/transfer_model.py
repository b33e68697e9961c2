"""Prediction of a task's times from the measurements of other tasks, by trees."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.search import Search, SourceTask
from gemmtune.engine.search.models.coordinates import Reals, param_values
from gemmtune.engine.search.models.source_trials import fair_share, has_new_fact, select_trials, usable_sources
from gemmtune.engine.search.task_features import SIZE_PREFIX, feature_matrix

# Chosen on recorded landscapes, see experiments/search.
_TREES = 20
"""Number of trees in the forest."""
_LEAF = 3
"""Smallest number of trials in a leaf."""
_SHARE = 0.5
"""Share of the columns that each split chooses from, so that no column decides alone."""
_MAX_TRIALS = 2000
"""Number of trials to learn from, over all source tasks, unless each may contribute more."""
_LEAST_SHARE = 200
"""Trials that a source task may contribute in any case; else landscapes count for little beside many short searches."""
_MAX_TASKS = 250
"""Largest number of source tasks, the nearest in size; with more, each task has a forest of its own, in 0.3 s."""


def predict_slowness(search: Search, features: Reals) -> Reals | None:
    """Predict the slowness of each feasible config from the search's history, by extremely randomised trees.

    Source: Geurts, Ernst and Wehenkel, Machine Learning 63, 2006.

    There is no prediction where this task has a fact that is new to the history.

    Args:
        search: task to predict for, with its history.
        features: features of its feasible configs, shape (configs, features).

    Returns:
        Logarithm of each config's time over the best time, up to a constant, shape (configs,); None without a
        history that applies.
    """
    sources = usable_sources(search.history)
    if not sources or not search.feasible:
        return None
    sources = _nearest(search, sources)
    share = max(_LEAST_SHARE, fair_share([len(source.trials) for source in sources], _MAX_TRIALS))
    selected = [select_trials(source, share) for source in sources]
    trials = [trial for chosen, _ in selected for trial in chosen]
    of_each = [
        feature_matrix(source.features, [trial.config for trial in chosen])
        for source, (chosen, _) in zip(sources, selected, strict=True)
    ]
    source_features = np.vstack(of_each)
    names = list(search.features(search.feasible[0]))
    if has_new_fact(names, source_features, features):
        return None
    slowness = np.concatenate([slow for _, slow in selected])
    params = param_values([*(trial.config for trial in trials), *search.feasible])
    columns = np.hstack([params, np.vstack([source_features, features])])
    columns = columns[:, np.ptp(columns, axis=0) > 0]
    forest = _fit(columns[: len(trials)].tobytes(), slowness.tobytes(), search.campaign_seed)
    rows = np.ascontiguousarray(columns[len(trials) :], np.float32)  # the type that trees compare in
    first, *others = (predict(rows) for predict in forest)
    return sum(others, start=first) / _TREES


def _nearest(search: Search, sources: list[SourceTask]) -> list[SourceTask]:
    """Return at most `_MAX_TASKS` source tasks, the nearest by the logarithms of the problem sizes first."""
    if len(sources) <= _MAX_TASKS:
        return sources
    here = search.features(search.feasible[0])

    def distance(source: SourceTask) -> float:
        there = source.features(source.trials[0].config)
        return sum((here[name] - there[name]) ** 2 for name in here if name.startswith(SIZE_PREFIX))

    return sorted(sources, key=distance)[:_MAX_TASKS]


@lru_cache(maxsize=4)
def _fit(columns: bytes, targets: bytes, seed: int) -> Sequence[Callable[[NDArray[np.float32]], Reals]]:
    """Fit the trees to arrays in C order, once for all searches of a campaign with the same history."""
    import sklearn  # loads slowly, and many campaigns have no history
    from sklearn.ensemble import ExtraTreesRegressor

    known = np.frombuffer(targets)
    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):  # a tenth of the time
        model = ExtraTreesRegressor(_TREES, min_samples_leaf=_LEAF, max_features=_SHARE, random_state=seed % 2**32)
        model.fit(np.frombuffer(columns).reshape(len(known), -1), known)
    return [partial(tree.predict, check_input=False) for tree in model.estimators_]
