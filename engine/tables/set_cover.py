"""Greedy set cover with a limit on the mean loss: few configs that serve every problem."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.config import Config

_ROUNDING = 1e-9
"""Slack of a weighted mean against floating-point rounding, as a fraction."""

_Losses = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Demand:
    """A problem that one config has to serve."""

    weight: float
    """Factor of the problem's loss in the weighted mean."""
    losses: Mapping[Config, float]
    """Loss of every config that may serve the problem, as a fraction; 0 for one of them at least."""


def cover(demands: Sequence[Demand], mean: float, preferred: Set[Config] = frozenset()) -> list[Config]:
    """Return the config that serves each demand, in the order of `demands`.

    The choice is greedy, not always the fewest. Take the config that serves the most unserved problems until all are
    served, and add configs until the mean loss fits. Then drop those no longer needed, and exchange configs while that
    lowers the mean. Among equals take a preferred config, then the first by JSON. Only the arguments decide.
    """
    names = sorted({c for d in demands for c in d.losses}, key=lambda c: (c not in preferred, c.json))
    losses = np.array([[d.losses.get(c, np.inf) for d in demands] for c in names], np.float64)
    weights = np.array([d.weight for d in demands], np.float64)
    weights /= weights.sum()
    chosen = _greedy(losses, weights, mean)
    return [names[chosen[i]] for i in np.argmin(losses[chosen], axis=0)]


def _mean(losses: _Losses, weights: _Losses, chosen: Sequence[int]) -> float:
    """Return the weighted mean loss; infinite where a problem is not served."""
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
    return sorted(_exchanged(losses, weights, chosen))


def _exchanged(losses: _Losses, weights: _Losses, chosen: Sequence[int]) -> list[int]:
    """Replace one config at a time by another while that lowers the mean loss."""
    best, mean = list(chosen), _mean(losses, weights, chosen)
    while True:
        swaps = []
        for i in range(len(best)):
            rest = [*best[:i], *best[i + 1 :]]
            means = np.minimum(losses[rest].min(axis=0, initial=np.inf), losses) @ weights
            new = int(np.argmin(means))
            swaps.append((float(means[new]), [*rest, new]))
        least, swapped = min(swaps, key=lambda swap: swap[0])
        if least >= mean - _ROUNDING:
            return best
        best, mean = swapped, least
