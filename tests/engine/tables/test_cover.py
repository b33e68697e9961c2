from __future__ import annotations

import itertools
import random

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.tables.portfolio import Demand, cover


def tile(number):
    return Config({"tile": number})


def demand(weight=1.0, **losses):
    return Demand(weight, {tile(int(name[1:])): loss for name, loss in losses.items()})


def tiles(demands, mean, *preferred):
    return [config["tile"] for config in cover(demands, mean, frozenset(map(tile, preferred)))]


def random_demands(seed):
    """Return eight problems with one best config each, and four other configs that serve some of them."""
    draw = random.Random(seed)
    demands = []
    for number in range(8):
        others = {tile(100 + i): draw.uniform(0, 0.02) for i in range(4) if draw.random() < 0.5}
        demands.append(Demand(draw.uniform(0.5, 3), {tile(number): 0.0, **others}))
    return demands


def mean_loss(demands, configs):
    lost = sum(d.weight * d.losses[c] for d, c in zip(demands, configs, strict=True))
    return lost / sum(d.weight for d in demands)


def fewest_by_trying_all(demands, mean):
    names = sorted({c for d in demands for c in d.losses}, key=lambda c: c.json)
    total = sum(d.weight for d in demands)
    for size in range(1, len(demands) + 1):
        for chosen in itertools.combinations(names, size):
            served = [[d.losses[c] for c in chosen if c in d.losses] for d in demands]
            if all(served) and sum(d.weight * min(s) for d, s in zip(demands, served, strict=True)) <= mean * total:
                return size
    raise AssertionError("each problem's own best always serves")


def test_one_config_serves_all_problems_if_its_mean_loss_is_within_the_limit():
    demands = [demand(t1=0.0, t9=0.01), demand(t2=0.0, t9=0.0), demand(t3=0.0, t9=0.02)]
    assert tiles(demands, 0.01) == [9, 9, 9]
    assert tiles(demands, 0.0099) == [9, 9, 3]  # one more is needed, and lowers the mean most there
    assert tiles(demands, 0.0) == [1, 9, 3]


def test_the_mean_loss_is_weighted():
    demands = [demand(1.0, t1=0.0, t9=0.02), demand(9.0, t9=0.0)]
    assert tiles(demands, 0.002) == [9, 9]
    assert tiles(demands, 0.00199) == [1, 9]


def test_cover_drops_configs_it_no_longer_needs():
    left, middle_left, middle_right, right = ({"t2": 0.0}, {"t1": 0.0, "t2": 0.0}, {"t1": 0.0, "t3": 0.0}, {"t3": 0.0})
    demands = [demand(**d) for d in (left, middle_left, middle_left, middle_right, middle_right, right)]
    assert tiles(demands, 0.005) == [2, 2, 2, 3, 3, 3]  # 1 was taken first because it serves four


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mean", [0.0, 0.002, 0.005, 0.02])
def test_cover_keeps_the_limit_with_one_config_more_than_the_fewest_at_most(seed, mean):
    demands = random_demands(seed)
    found = cover(demands, mean)
    assert mean_loss(demands, found) <= mean + 1e-9
    assert len(set(found)) <= fewest_by_trying_all(demands, mean) + 1


def test_among_equals_cover_takes_the_preferred_config_then_the_first_by_json():
    demands = [demand(t3=0.0, t4=0.0, t5=0.0), demand(t3=0.0, t4=0.0, t5=0.0)]
    assert tiles(demands, 0.0) == [3, 3]
    assert tiles(demands, 0.0, 5) == [5, 5]


def test_the_order_of_problems_and_configs_does_not_matter():
    demands = random_demands(7)
    expected = dict(zip(map(id, demands), cover(demands, 0.005), strict=True))
    for seed in range(3):
        random.Random(seed).shuffle(demands)
        turned = [Demand(d.weight, dict(reversed(d.losses.items()))) for d in demands]
        assert cover(turned, 0.005) == [expected[id(d)] for d in demands]
