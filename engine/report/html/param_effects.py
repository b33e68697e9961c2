"""Effects of a space's parameters on the score: the importance of each, and the losses of pairs of values."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum, log
from statistics import median

from gemmtune.engine.records.config import Config, Value

Scored = Sequence[Sequence[tuple[Config, float]]]
"""Configs of one space with their scores, for each problem."""


@dataclass(frozen=True, slots=True)
class PairLoss:
    """Loss of one pair of values."""

    names: tuple[str, str]
    """Names of both parameters."""
    values: tuple[Value, Value]
    """Values of both parameters."""
    problems: int
    """Number of problems in which the pair was evaluated."""
    loss: float
    """Median over those problems of the best config with the pair, behind the problem's best, as a fraction."""


def importances(scored: Scored) -> dict[str, float]:
    """Return the share of the log score's variance within problems that each parameter explains, the largest first.

    A value's effect is the mean over its configs within one problem. What as many values would explain by chance is
    subtracted (epsilon squared). A parameter with one value per problem, or with no two configs of a value, is left
    out. The sampler picks the configs, so that a share is of what was evaluated, not of the whole space.
    """
    centred = [_centred(of) for of in scored if len(of) > 1]
    total = fsum(y * y for of in centred for _, y in of)
    found = {}
    for name in dict.fromkeys(name for of in centred for config, _ in of for name in config) if total else ():
        cells: defaultdict[tuple[int, Value], list[float]] = defaultdict(list)
        for problem, of in enumerate(centred):
            for config, y in of:
                if name in config:
                    cells[problem, config[name]].append(y)
        problems = len({problem for problem, _ in cells})
        values, rest = len(cells) - problems, sum(map(len, cells.values())) - len(cells)
        if values and rest > 0:
            between = fsum(fsum(ys) ** 2 / len(ys) for ys in cells.values())
            found[name] = max(0.0, (between - values * (total - between) / rest) / total)
    return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


def pair_losses(scored: Scored, most: int) -> list[list[PairLoss]]:
    """Return the losses of each pair of values, for the `most` pairs of parameters with the largest importances."""
    weights = importances(scored)
    pairs = sorted(combinations(weights, 2), key=lambda pair: -(weights[pair[0]] + weights[pair[1]]))
    return [_losses(pair, scored) for pair in pairs[:most]]


def _centred(of: Sequence[tuple[Config, float]]) -> list[tuple[Config, float]]:
    logs = [log(score) for _, score in of]
    mean = fsum(logs) / len(logs)
    return [(config, y - mean) for (config, _), y in zip(of, logs, strict=True)]


def _losses(names: tuple[str, str], scored: Scored) -> list[PairLoss]:
    losses: defaultdict[tuple[Value, Value], list[float]] = defaultdict(list)
    for of in scored:
        best: dict[tuple[Value, Value], float] = {}
        for config, score in of:
            if all(name in config for name in names):
                values = config[names[0]], config[names[1]]
                best[values] = min(score, best.get(values, score))
        least = min((score for _, score in of), default=0.0)
        for values, score in best.items():
            losses[values].append(score / least - 1)
    return [PairLoss(names, values, len(of), median(of)) for values, of in losses.items()]
