"""Ask and tell with an evaluator of one's own."""

from __future__ import annotations

import pytest

import gemmtune as gt
from gemmtune.engine.search import enumeration

PARAMS = {"tile": (128, 16, 32, 64), "warps": (1, 2, 4, 8), "order": ("row", "column")}


def cost(config):
    return abs(config["tile"] - 64) + config["warps"] + (config["order"] == "row")


@pytest.mark.parametrize("sampler", ["random", "evolution", "transfer", gt.sampler("evolution", children=8)])
def test_a_loop_ends_at_the_budget_with_the_best_told(sampler):
    search = gt.AskTell(PARAMS, sampler, budget=11, seed=3)
    asked = []
    while configs := search.ask(4):
        asked += configs
        search.tell([None if config["warps"] == 8 else cost(config) for config in configs])
    assert len(set(asked)) == len(asked) == 11
    assert [trial.config for trial in search.trials] == asked
    works = [config for config in asked if config["warps"] < 8]
    assert search.best.score == min(map(cost, works)) == cost(search.best.config)
    again = gt.AskTell(PARAMS, sampler, budget=11, seed=3)
    assert again.ask(4) == asked[:4]


def test_only_valid_configs_are_asked_and_the_first_ones_first():
    first = {"tile": 32, "warps": 2, "order": "column"}
    search = gt.AskTell(PARAMS, "evolution", valid=lambda config: config["tile"] < 64, first=[first])
    asked = search.ask(16)
    assert asked[0] == gt.Config(first)
    assert {config["tile"] for config in asked} == {16, 32}


def test_a_parameter_that_does_not_count_is_not_searched():
    params = [
        gt.Param("pipelined", (False, True), ordered=False),
        gt.Param("stages", (2, 3, 4), where=("pipelined", (True,))),
        gt.Param("spread", (0, 1), where=("stages", (4,))),
    ]
    search = gt.AskTell(params, "exhaustive")
    assert [tuple(config.values()) for config in search.ask(99)] == [
        (False, 0, 2),
        (True, 0, 2),
        (True, 0, 3),
        (True, 0, 4),
        (True, 1, 4),
    ]  # pipelined, spread, stages


def test_what_cannot_be_searched_or_told_is_refused():
    with pytest.raises(gt.UsageError, match="no config is valid"):
        gt.AskTell(PARAMS, valid=lambda config: False)
    with pytest.raises(gt.UsageError, match=r"Config\(tile=1\) of first is no valid config"):
        gt.AskTell(PARAMS, first=[{"tile": 1}])
    for params, said in (
        ({}, "no parameter is given; a search needs at least one"),
        ({"a": 3}, r"parameter a: 3 is no sequence of values; write \(3,\)"),
        ({"a": ()}, "parameter a has no value; give at least one"),
        ({"a": (1, 1, 2)}, "parameter a has value 1 twice; give each value once"),
        ([gt.Param("a", (1, 1))], "parameter a has value 1 twice"),
        ({"a": (1.0, float("nan"))}, "parameter a: value nan is no finite number"),
        ({"a": (1, None)}, "parameter a: value None is no finite number, text or truth value"),
        ([gt.Param("a", (1, 2)), gt.Param("a", (3,))], "two params of one name among a, a; rename one"),
        ([gt.Param("a", (2, 1))], "parameter a is ordered and not ascending: 1 follows 2; sort its values, or say"),
        ([gt.Param("a", (1, 2), where=("b", (1,)))], r"has where=\('b', \(1,\)\); name another parameter and some"),
        (
            [gt.Param("a", (1, 2)), gt.Param("b", (1, 2), where="a")],
            "parameter b has where='a'; name another parameter",
        ),
    ):
        with pytest.raises(gt.UsageError, match=said):
            gt.AskTell(params, "random")
    with pytest.raises(gt.UsageError, match="named=5 is not of type"):
        gt.sampler(5)
    with pytest.raises(gt.UsageError, match="budget=0 is not an integer from 1 on"):
        gt.AskTell(PARAMS, budget=0)
    search = gt.AskTell(PARAMS, "random")
    search.ask(2)
    with pytest.raises(gt.UsageError, match="tell the scores of the last 2 configs first"):
        search.ask()
    for scores, said in (([1.0], "1 scores are told, and 2"), ([1.0, -2], "score=-2 is not a number above 0")):
        with pytest.raises(gt.UsageError, match=said):
            search.tell(scores)
    with pytest.raises(gt.UsageError, match="scores=5 is not of type"):
        search.tell(5)
    search.tell([1.0, None])
    assert [trial.status for trial in search.trials] == [gt.Status.OK, gt.Status.RUN_FAILED]


def test_a_large_space_of_few_valid_configs_is_not_enumerated(monkeypatch):
    monkeypatch.setattr(enumeration, "MOST_ENUMERATED", 4000)
    params = {f"p{number}": tuple(range(32)) for number in range(8)}
    search = gt.AskTell(params, "random", budget=64, valid=lambda config: config["p0"] == 3 and config["p1"] == 4)
    assert 0 < len(search.ask(64)) < 16  # one in 1,024 is valid
    with pytest.raises(gt.UsageError, match="no config is valid among those drawn of a large space; give one as first"):
        gt.AskTell(params, valid=lambda config: False)


@pytest.mark.parametrize("sampler", ["random", "evolution", "transfer", "tpe"])
def test_a_space_of_twenty_million_points_is_searched_without_being_enumerated(sampler):
    params = {f"p{number}": tuple(range(16)) for number in range(6)} | {"order": ("row", "column")}
    checked = []

    def valid(config):
        checked.append(config)
        return (config["p0"] + 1) * (config["p1"] + 1) <= 128 and config["p2"] % 2 == config["p3"] % 2

    def distance(config):
        return 1 + sum((config[f"p{number}"] - 9) ** 2 for number in range(6)) + (config["order"] == "row")

    search = gt.AskTell(params, sampler, budget=24, seed=1, valid=valid)
    while configs := search.ask(8):
        search.tell(map(distance, configs))
    asked = [trial.config for trial in search.trials]
    assert len(set(asked)) == 24
    assert all(map(valid, asked))
    assert len(checked) < 100_000
    assert search.best.score < (50 if sampler == "evolution" else 200)
