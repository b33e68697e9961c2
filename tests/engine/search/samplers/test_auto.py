from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import Search, SourceTask
from gemmtune.engine.search.samplers.auto import AutoSampler

PARAMS = (Param("x", tuple(range(40))),)
FEASIBLE = tuple(Config({"x": x}) for x in range(40))
SEARCH = Search(PARAMS, FEASIBLE, (), budget=16, seed=0)
PAST = SourceTask(tuple(Trial(config, Status.OK, 1.0 + config.integer("x")) for config in FEASIBLE))


@pytest.mark.parametrize(
    ("search", "notice"),
    [
        (replace(SEARCH, budget=40), "exhaustive: the budget of 40 covers all 40 feasible configs"),
        (replace(SEARCH, objectives=2), "tpe: 2 objectives"),
        (replace(SEARCH, history=(PAST,)), "transfer: 1 other tasks to learn from"),
        (SEARCH, "transfer: 16 evaluations for 40 feasible configs"),
    ],
)
def test_auto_says_what_it_chose_and_why(search, notice):
    assert AutoSampler(search).notice == f"sampler auto chose {notice}"


def test_auto_leaves_very_large_sets_to_evolution():
    notice = AutoSampler(SEARCH, most_for_transfer=39).notice
    assert "chose evolution: 40 feasible configs are more than the 39" in notice


def test_auto_passes_the_history_to_the_chosen_sampler():
    assert AutoSampler(replace(SEARCH, history=(PAST,))).ask(1) == [FEASIBLE[0]]
