"""The fewest configs that serve every problem: a facility-location problem, solved exactly where it is small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.config import Config

__all__ = ["Demand", "cover"]

_MOST_PAIRS = 1_000
"""Pairs of a config and a problem it may serve up to which the solver is asked: random ones take it 1 to 10 s there and
half a minute at twice as many (2 cores, HiGHS of scipy 1.17, 2026-11)."""
_MOST_NODES = 500
"""Nodes of its branch and bound after which its best answer counts, proved or not. A count, for a limit of time would
make the table depend on the host."""
_ROUNDING = 1e-9
"""Of a weighted mean, as floating point adds it up."""

_Losses = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Demand:
    """A problem that one config has to serve."""

    weight: float
    """How much its loss counts in the mean."""
    losses: Mapping[Config, float]
    """Every config that may serve it, with what that loses, as a fraction; one loses nothing."""


def cover(demands: Sequence[Demand], mean: float, favoured: Set[Config] = frozenset()) -> list[Config]:
    """The config that serves each demand, in their order: the fewest in all, and of so few those that lose least.

    The mean of the losses, weighted, is at most `mean`. Where it is small, a mixed-integer program (HiGHS) is solved,
    which is exact. Else, or where the solver stops before, greedy: the config that serves the most problems first, then
    those that lower the mean, then without what is no longer needed. Of configs that serve equally well the favoured
    one is taken, then the first by JSON. The result depends on nothing but the arguments and the solver's version.
    """
    names = sorted({c for d in demands for c in d.losses}, key=lambda c: (c not in favoured, c.json))
    losses = np.array([[d.losses.get(c, np.inf) for d in demands] for c in names], np.float64)
    useful = _undominated(losses)
    names, losses = [names[i] for i in useful], losses[useful]
    weights = np.array([d.weight for d in demands], np.float64)
    weights /= weights.sum()
    greedy = _greedy(losses, weights, mean)
    found = [_solved(losses, weights, mean, len(greedy)), greedy]
    chosen = min((f for f in found if f), key=lambda f: (len(f), _mean(losses, weights, f)))
    return [names[chosen[i]] for i in np.argmin(losses[chosen], axis=0)]


def _undominated(losses: _Losses) -> list[int]:
    """The rows that no other row equals or undercuts everywhere; of equal rows the first."""
    kept = []
    for i, row in enumerate(losses):
        as_good = (losses <= row).all(axis=1)
        better = as_good & (losses < row).any(axis=1)
        if not better.any() and not as_good[:i].any():
            kept.append(i)
    return kept


def _mean(losses: _Losses, weights: _Losses, chosen: Sequence[int]) -> float:
    """Infinite where a problem is not served."""
    return float(weights @ losses[list(chosen)].min(axis=0, initial=np.inf))


def _greedy(losses: _Losses, weights: _Losses, mean: float) -> list[int]:
    chosen: list[int] = []
    served = np.zeros(losses.shape[1], np.bool_)
    while not served.all():
        serves = np.isfinite(losses) & ~served
        lost = np.where(serves, losses, 0.0) @ weights
        chosen.append(int(np.lexsort((lost, -serves.sum(axis=1)))[0]))
        served |= serves[chosen[-1]]
    while _mean(losses, weights, chosen) > mean + _ROUNDING:
        best = losses[chosen].min(axis=0)
        chosen.append(int(np.argmin(np.minimum(best, losses) @ weights)))
    for config in list(chosen):
        rest = [c for c in chosen if c != config]
        if _mean(losses, weights, rest) <= mean + _ROUNDING:
            chosen = rest
    return sorted(chosen)


def _solved(losses: _Losses, weights: _Losses, mean: float, most: int) -> list[int]:
    """What the solver finds, `most` configs at most; nothing where the program is too large.

    One variable a config (is it in?) and one a pair (does it serve?); a pair's cost is its share of the mean, scaled so
    that all losses together cost half a config at most.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    config, problem = np.nonzero(np.isfinite(losses))
    configs, problems, pairs = *losses.shape, config.size
    if pairs > _MOST_PAIRS:
        return []
    pair = np.arange(pairs)
    lost = weights[problem] * losses[config, problem] / max(mean, _ROUNDING)
    ones = np.ones(pairs)
    total = configs + pairs
    once = coo_array((ones, (problem, configs + pair)), shape=(problems, total))
    only_if_in = coo_array(
        (np.concatenate([ones, -ones]), (np.tile(pair, 2), np.concatenate([configs + pair, config]))),
        shape=(pairs, total),
    )
    within = np.concatenate([np.zeros(configs), lost])
    solved = milp(
        np.concatenate([np.ones(configs), lost / 2]),
        integrality=np.concatenate([np.ones(configs), np.zeros(pairs)]),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(once.tocsr(), 1, 1),
            LinearConstraint(only_if_in.tocsr(), -np.inf, 0),
            LinearConstraint(within, -np.inf, 1),
            LinearConstraint(np.repeat([1.0, 0.0], [configs, pairs]), -np.inf, most),
        ],
        options={"node_limit": _MOST_NODES, "mip_rel_gap": 0.0},
    )
    chosen = [] if solved.x is None else [int(i) for i in np.flatnonzero(solved.x[:configs] > 0.5)]
    return chosen if _mean(losses, weights, chosen) <= mean + _ROUNDING else []
