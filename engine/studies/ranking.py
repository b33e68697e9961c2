"""Rank samplers over landscapes, and test each pair: what differs by more than chance, and by how much.

Sources: Demšar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7 (2006): mean ranks, Nemenyi's
critical difference, Wilcoxon's test over the data sets; Holm, Scandinavian Journal of Statistics 6 (1979).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.studies.intervals import mean_interval

LEAST_LANDSCAPES = 6
"""Fewest landscapes that can tell two samplers apart at 95 %: five have a two-sided p of 1/16 at best."""

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two samplers on the same landscapes and seeds."""

    arm: str
    """Sampler that found the better configs in the mean."""
    other: str
    """Sampler that it is compared with."""
    difference: float
    """Lead in optimum / best found after the whole budget, mean over landscapes and seeds."""
    low: float | None
    """Lower end of its 95 % interval, paired by seed; None where `mean_interval` has none."""
    high: float | None
    """Upper end of the interval; None where `low` is."""
    p: float | None
    """Wilcoxon's two-sided p over the landscapes, with Holm's correction; None below `LEAST_LANDSCAPES`."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Samplers in the order of their mean ranks over the landscapes."""

    ranks: Mapping[str, float]
    """Mean rank per sampler, 1 for the best on every landscape; equals share their ranks."""
    critical_difference: float
    """Difference of two mean ranks that is beyond chance at 95 % (Nemenyi)."""
    pairs: tuple[Pair, ...]
    """Every pair of samplers."""


def ranking(fractions: Mapping[str, _Floats]) -> Ranking | None:
    """Return the ranking by optimum / best found, shape (landscapes, seeds) per sampler; None for a single one."""
    if len(fractions) < 2:
        return None
    from scipy.stats import studentized_range  # takes a second to import

    means = {arm: of.mean(axis=1) for arm, of in fractions.items()}
    ranks = dict(zip(means, _ranks(np.array([*means.values()])).mean(axis=1).tolist(), strict=True))
    count, landscapes = len(fractions), len(next(iter(means.values())))
    critical = studentized_range.ppf(0.95, count, math.inf) * math.sqrt(count * (count + 1) / (12 * landscapes))
    ordered = sorted(fractions, key=lambda arm: (ranks[arm], -means[arm].mean()))
    couples = [sorted(each, key=lambda arm: -means[arm].mean()) for each in combinations(ordered, 2)]
    ps = _holm([_wilcoxon(means[a] - means[b]) for a, b in couples])
    pairs = tuple(_pair(a, b, fractions[a] - fractions[b], p) for (a, b), p in zip(couples, ps, strict=True))
    return Ranking({arm: ranks[arm] for arm in ordered}, float(critical), pairs)


def _pair(arm: str, other: str, leads: _Floats, p: float | None) -> Pair:
    low, high = (None if math.isnan(end) else float(end) for end in mean_interval(leads.mean(axis=0), len(leads)))
    return Pair(arm, other, float(leads.mean()), low, high, p)


def _ranks(means: _Floats) -> _Floats:
    """Return the rank of each sampler on each landscape, 1 for the largest mean, shape (samplers, landscapes)."""
    ahead = (means[:, np.newaxis] < means - 1e-12).sum(axis=1)
    level = (np.abs(means[:, np.newaxis] - means) <= 1e-12).sum(axis=1)
    ranks: _Floats = 1 + ahead + (level - 1) / 2
    return ranks


def _wilcoxon(differences: _Floats) -> float | None:
    if len(differences) < LEAST_LANDSCAPES:
        return None
    if not np.abs(differences).max() > 1e-12:
        return 1.0
    from scipy.stats import wilcoxon  # takes a second to import

    return float(wilcoxon(differences).pvalue)


def _holm(ps: Sequence[float | None]) -> list[float | None]:
    """Return the p values after Holm's correction for their number."""
    found: list[float | None] = [None] * len(ps)
    largest = 0.0
    known = sorted((p, place) for place, p in enumerate(ps) if p is not None)
    for done, (p, place) in enumerate(known):
        found[place] = largest = max(largest, min(1.0, p * (len(known) - done)))
    return found
