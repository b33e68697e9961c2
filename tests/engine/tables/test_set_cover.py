from __future__ import annotations

import itertools
import random

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.tables import set_cover as module
from gemmtune.engine.tables.set_cover import Demand, cover


def tile(number):
    return Config({"tile": number})


def demand(weight=1.0, **losses):
    return Demand(weight, {tile(int(name[1:])): loss for name, loss in losses.items()})


def tiles(demands, mean, *favoured):
    return [config["tile"] for config in cover(demands, mean, frozenset(map(tile, favoured)))]


def drawn(seed):
    """Eight problems with a best config each, and four others that serve some of them."""
    draw = random.Random(seed)
    demands = []
    for number in range(8):
        others = {tile(100 + i): draw.uniform(0, 0.02) for i in range(4) if draw.random() < 0.5}
        demands.append(Demand(draw.uniform(0.5, 3), {tile(number): 0.0, **others}))
    return demands


def mean_of(demands, configs):
    lost = sum(d.weight * d.losses[c] for d, c in zip(demands, configs, strict=True))
    return lost / sum(d.weight for d in demands)


def best_by_trying_all(demands, mean):
    """The size and the mean loss of the best answer."""
    names = sorted({c for d in demands for c in d.losses}, key=lambda c: c.json)
    for size in range(1, len(demands) + 1):
        means = []
        for chosen in itertools.combinations(names, size):
            served = [
                min((d.losses[c], c.json) for c in chosen if c in d.losses) for d in demands if {*chosen} & {*d.losses}
            ]
            if len(served) == len(demands):
                total = sum(d.weight * loss for d, (loss, _) in zip(demands, served, strict=True))
                means.append(total / sum(d.weight for d in demands))
        if means and min(means) <= mean:
            return size, min(means)
    raise AssertionError("each problem's own best always serves")


def test_one_config_that_serves_all_is_taken_if_its_mean_is_within_the_limit():
    demands = [demand(t1=0.0, t9=0.01), demand(t2=0.0, t9=0.0), demand(t3=0.0, t9=0.02)]
    assert tiles(demands, 0.01) == [9, 9, 9]
    assert tiles(demands, 0.0099) == [9, 9, 3]  # one more is needed, and lowers the mean most there
    assert tiles(demands, 0.0) == [1, 9, 3]


def test_the_mean_is_weighted():
    demands = [demand(1.0, t1=0.0, t9=0.02), demand(9.0, t9=0.0)]
    assert tiles(demands, 0.002) == [9, 9]
    assert tiles(demands, 0.00199) == [1, 9]


def test_where_greed_needs_three_the_solver_finds_two(monkeypatch):
    # Tiles 1 and 2 serve a half each, 7 of 14; 3, 4 and 5 serve 8, 4 and 2 across the halves and look better each time.
    across = [3] * 4 + [4] * 2 + [5]
    demands = [Demand(1.0, {tile(half): 0.0, tile(other): 0.0}) for half in (1, 2) for other in across]
    assert tiles(demands, 0.005) == [1] * 7 + [2] * 7
    monkeypatch.setattr(module, "_MOST_PAIRS", 0)
    assert tiles(demands, 0.005) == across * 2


def test_greed_drops_what_it_no_longer_needs(monkeypatch):
    monkeypatch.setattr(module, "_MOST_PAIRS", 0)
    left, middle_left, middle_right, right = ({"t2": 0.0}, {"t1": 0.0, "t2": 0.0}, {"t1": 0.0, "t3": 0.0}, {"t3": 0.0})
    demands = [demand(**d) for d in (left, middle_left, middle_left, middle_right, middle_right, right)]
    assert tiles(demands, 0.005) == [2, 2, 2, 3, 3, 3]  # 1 was taken first, for it serves four


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mean", [0.0, 0.002, 0.005, 0.02])
def test_the_answer_is_the_best_there_is(seed, mean):
    demands = drawn(seed)
    found = cover(demands, mean)
    size, least = best_by_trying_all(demands, mean)
    assert (len(set(found)), mean_of(demands, found)) == (size, pytest.approx(least, abs=1e-7))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mean", [0.0, 0.002, 0.005, 0.02])
def test_greed_keeps_the_limit_too_and_needs_few(seed, mean, monkeypatch):
    demands = drawn(seed)
    monkeypatch.setattr(module, "_MOST_PAIRS", 0)
    found = cover(demands, mean)
    assert mean_of(demands, found) <= mean + 1e-9
    assert len(set(found)) <= best_by_trying_all(demands, mean)[0] + 1


def test_of_equals_the_favoured_is_taken_then_the_first():
    demands = [demand(t3=0.0, t4=0.0, t5=0.0), demand(t3=0.0, t4=0.0, t5=0.0)]
    assert tiles(demands, 0.0) == [3, 3]
    assert tiles(demands, 0.0, 5) == [5, 5]


def test_the_order_of_problems_and_configs_does_not_matter():
    demands = drawn(7)
    expected = dict(zip(map(id, demands), cover(demands, 0.005), strict=True))
    for seed in range(3):
        random.Random(seed).shuffle(demands)
        turned = [Demand(d.weight, dict(reversed(d.losses.items()))) for d in demands]
        assert cover(turned, 0.005) == [expected[id(d)] for d in demands]
