"""A seed asks the configs that it always asked: a recorded search is repeated, and samplers change on purpose alone."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import product
from zlib import crc32

import pytest

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import Search, SourceTask
from gemmtune.engine.search.samplers.auto import AutoSampler
from gemmtune.engine.search.samplers.evolution import EvolutionSampler
from gemmtune.engine.search.samplers.random import RandomSampler
from gemmtune.engine.search.samplers.transfer import TransferSampler

TILES = (16, 32, 64, 128, 256)
PARAMS = (
    Param("m", TILES),
    Param("n", TILES),
    Param("k", (16, 24, 32, 64)),
    Param("stages", (2, 3, 4, 5)),
    Param("order", ("row", "column", "snake"), ordered=False),
)
FEASIBLE = tuple(
    Config(dict(zip([param.name for param in PARAMS], values, strict=True)))
    for values in product(*(param.values for param in PARAMS))
    if (values[0] + values[1]) * values[2] * values[3] <= 60_000
)


class Task:
    """A GEMM in caricature whose best tile has `rows` rows and twice as many columns; the smallest tiles fail."""

    def __init__(self, rows, described=False):
        self.rows, self.described = rows, described

    def trial(self, config):
        m, n, k, stages = (config.integer(name) for name in ("m", "n", "k", "stages"))
        if m * n < 1024:
            return Trial(config, Status.WRONG_RESULT, None)
        off = abs(math.log2(m / self.rows)) + abs(math.log2(n / self.rows / 2)) + abs(stages - 4) / 2
        uneven = math.sin(m * 0.7 + n * 0.3 + k * 1.1 + stages * 2.3) / 8
        return Trial(config, Status.OK, 1e4 * math.exp(0.2 * off + (config["order"] != "snake") / 8 + uneven))

    def features(self, config):
        sizes = {"problem m": math.log2(self.rows * 40), "problem n": math.log2(self.rows * 70), "SMs": math.log2(132)}
        waves = math.log2(self.rows * self.rows / config.integer("m") / config.integer("n"))
        return sizes | ({"waves": waves} if self.described else {})

    def source(self, count):
        """Return trials of every 37th config, as a short search leaves them."""
        drawn = [FEASIBLE[37 * number % len(FEASIBLE)] for number in range(count)]
        return SourceTask(tuple(map(self.trial, drawn)), self.features)


SEEDS = tuple(FEASIBLE[number] for number in (300, 5, 700))
HERE = Task(64)
PLAIN = Search(PARAMS, FEASIBLE, (), 64, 3, features=HERE.features)
SEEDED = replace(PLAIN, seeds=SEEDS)
DESCRIBED = replace(SEEDED, features=Task(64, described=True).features)
HISTORY = replace(PLAIN, history=tuple(Task(rows).source(30 + rows) for rows in (32, 16, 128)))
WIDE = replace(PLAIN, history=tuple(Task(rows).source(6) for rows in range(20, 34)))


def asked(sampler, count, batch):
    """Return the positions of the configs that a search asks."""
    found = []
    while len(found) < count:
        those = sampler.ask(batch)
        sampler.tell([HERE.trial(config) for config in those])
        found += those
    return [FEASIBLE.index(config) for config in found]


SEQUENCES = [
    (RandomSampler, PLAIN, 40, 8, [583, 1071, 645, 489, 1043, 814], 2496027866),
    (AutoSampler, PLAIN, 40, 8, [591, 893, 94, 922, 1098, 207], 3898992421),
    (EvolutionSampler, PLAIN, 130, 3, [591, 893, 94, 198, 828, 759], 3091386565),
    (EvolutionSampler, SEEDED, 40, 8, [300, 5, 700, 894, 94, 198], 3261072820),
    (partial(EvolutionSampler, restart_after=9), PLAIN, 60, 3, [591, 893, 94, 198, 828, 759], 3635355627),
    (TransferSampler, DESCRIBED, 110, 5, [300, 5, 700, 914, 909, 90], 2347014497),
    (TransferSampler, HISTORY, 60, 3, [603, 418, 417, 366, 536, 602], 4207707474),
    (TransferSampler, WIDE, 30, 3, [159, 171, 147, 99, 381, 149], 3780523662),
]
"""Sampler, search, evaluations, configs per batch, the positions asked first, and the checksum of all of them."""


@pytest.mark.parametrize(("sampler", "search", "count", "batch", "first", "checksum"), SEQUENCES)
def test_a_seed_asks_what_it_always_asked(sampler, search, count, batch, first, checksum):
    found = asked(sampler(search), count, batch)
    assert found[:6] == first
    assert crc32(repr(found).encode()) == checksum, found
