from __future__ import annotations

from dataclasses import replace

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.rounds.ranges import winner_searches
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice
from gemmtune.engine.records.task import Task
from gemmtune.engine.tables.loss_limits import RangeLimits
from gemmtune.engine.tables.ranking import Contender, Ranking

GEMM = Problem.parse("16x4096x4096:bf16:nt:dynamic_m=true")
TILES = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}
SMALL, LARGE = Config(TILES), Config({**TILES, "BLOCK_M": 128})


def ranking(m, *configs):
    """Make the ranking of a problem at one m: the vendor library, then configs, the best first."""
    best = (("aten", Config({})), *(("triton_mm", config) for config in configs))
    choices = [Choice(s, c, 10.0, 9.0, 11.0, 8, Evidence.MEASURED, "torch 2.11.0", "p") for s, c in best]
    contenders = tuple(Contender(choice, choice.time_ns, place, None) for place, choice in enumerate(choices))
    return Ranking(replace(GEMM, m=m), contenders, contenders[0], None)


def winners(rankings, held_out=()):
    plan = Plan(ranges=RangeLimits(), held_out=tuple(held_out))
    tasks = [Task(r.problem, catalogue.device("H200"), space) for r in rankings for space in ("aten", "triton_mm")]
    return {s.task.problem.size: set(s.next_batch()) for s in winner_searches(plan, tasks, rankings)}


def test_the_best_of_each_m_is_measured_at_every_m():
    """The library is measured already."""
    assert winners([ranking(16, SMALL), ranking(256, LARGE, SMALL)]) == {m: {SMALL, LARGE} for m in (16, 256)}


def test_a_config_that_a_static_m_rules_out_is_not_measured_there():
    """A tile of 128 rows is no config for 16 of them, where they are compiled in."""
    static = [
        replace(r, problem=replace(r.problem, dynamic_m=False)) for r in (ranking(16, SMALL), ranking(256, LARGE))
    ]
    assert winners(static) == {256: {SMALL, LARGE}}


def test_held_out_problems_neither_give_nor_get_winners():
    other = Config({**TILES, "num_warps": 2})
    found = winners([ranking(128, SMALL), ranking(256, LARGE), ranking(192, other)], [replace(GEMM, m=192)])
    assert found == {m: {SMALL, LARGE} for m in (128, 256)}


def test_a_gemm_at_one_m_has_no_winner_searches():
    assert winners([ranking(256, LARGE, SMALL)]) == {}
