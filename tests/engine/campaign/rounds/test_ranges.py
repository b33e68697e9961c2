"""A campaign for ranges measures between its tuned m, and its ranges follow what it finds there.

The kernels of this landscape are fastest where a tile has as many rows as the product; between two sizes both winners
can be slower than the library.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from math import log2
from types import MappingProxyType

import pytest

from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.measured_backend import measured_backend
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.rounds import ranges
from gemmtune.engine.campaign.rounds.ranges import interior_problems, probe_problems
from gemmtune.engine.campaign.verify import verify
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.final import Final, Finalist
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.report.campaign import campaign_report
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.store.database import Database
from gemmtune.engine.tables.loss_limits import LossLimits, RangeLimits

H200 = catalogue.device("H200")
pytestmark = pytest.mark.slow(8)

GEMM = Problem.parse("16x4096x14336:bf16:nt:dynamic_m=true")
TOOLS = Toolchain((("torch", "2.11.0"),))
LIBRARY_NS = 34_000.0
PROBES = [24, 32, 48, 96, 128, 192]
INTERIOR = [52, 56, 60, 104, 112, 120, 208, 224, 240]
"""Eighths of an octave inside of the ranges that run a kernel, but for what was tuned or probed."""


def at(*sizes):
    return tuple(replace(GEMM, m=m) for m in sizes)


PLAN = Plan(at(16, 64, 256), sampler="random", budget=40, ranges=RangeLimits())


def time_ns(problem, config):
    """31 µs with a tile of the product's rows, a quarter more for each power of two between; up to 2 % by the rest."""
    if not config:
        return LIBRARY_NS
    apart = abs(log2(config.integer("BLOCK_M")) - log2(problem.m))
    return 31_000.0 * (1 + 0.25 * apart + 0.02 * (int(config.digest[:4], 16) / 0xFFFF))


class Formula(Executor):
    """Measures what the landscape says to half a percent, and holds finals."""

    evidence = Evidence.MEASURED
    holds_finals = True
    parallel = 1

    def __init__(self, library):
        """The library's times where they are not as everywhere, in nanoseconds, by m."""
        self.library = library
        self.measured, self.finals, self._finished = [], [], []

    def toolchain(self, task):
        return TOOLS

    def protocol(self, task):
        return "graph-cold-l2"

    def submit(self, task, config):
        self.measured.append((task, config))
        found = self._estimate(task, config)
        self._finished.append(
            Measurement(
                task=task,
                config=config,
                status=Status.OK,
                evidence=self.evidence,
                protocol=self.protocol(task),
                toolchain=TOOLS,
                worker="formula",
                created_at="2026-11-22T12:00:00+00:00",
                samples_ns=(found.time_ns,) * 32,
                estimate=found,
            )
        )

    def hold_final(self, candidates):
        self.finals.append(candidates)
        by_time = sorted(candidates, key=lambda pair: time_ns(pair[0].problem, pair[1]))
        best = time_ns(by_time[0][0].problem, by_time[0][1])
        finalists = []
        for task, config in by_time:
            found = self._estimate(task, config)
            behind = found.time_ns / best - 1
            finalists.append(Finalist(task, config, TOOLS, found, (found.time_ns,) * 48, (behind, behind)))
        self._finished.append(Final(tuple(finalists), "graph-cold-l2", "formula", "2026-11-22T12:00:00+00:00", ()))

    def collect(self, timeout_seconds):
        finished, self._finished = self._finished, []
        return finished

    def load(self):
        return None

    def close(self):
        pass

    def _estimate(self, task, config):
        its = time_ns(task.problem, config)
        if not config:
            its = self.library.get(task.problem.m, its)
        return Estimate(its, its * 0.995, its * 1.005)


def campaign(folder, plan=PLAN, library=MappingProxyType({})):
    executor = Formula(library)
    backend = measured_backend(plan, H200, lambda spaces: executor)
    with Database.open(folder / "m.db") as database:
        result = execute(plan, backend, database, ())
    return result, executor


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return campaign(tmp_path_factory.mktemp("probed"))


def test_probes_are_at_2_and_3_times_2_to_the_e_strictly_between_neighbours_of_one_gemm():
    static = replace(GEMM, m=8, dynamic_m=False)
    assert {p.size: tuple(n.size for n in near) for p, near in probe_problems((*at(256, 2, 16), static)).items()} == {
        **dict.fromkeys((4, 6, 8, 12), (2, 16)),
        **dict.fromkeys((24, 32, 48, 64, 96, 128, 192), (16, 256)),
    }
    assert [p.size for p in probe_problems(at(48, 100, 1024, 1025))] == [64, 96, 128, 192, 256, 384, 512, 768]
    assert [p.size for p in probe_problems(at(1000, 2000))] == [1024, 1536]
    assert [p.size for p in probe_problems(at(64, 96, 128, 129))] == []


def test_1_and_3_are_never_probed():
    assert [p.size for p in probe_problems(at(1, 8))] == [2, 4, 6]
    assert [p.size for p in probe_problems(at(2, 4))] == []


def test_a_held_out_m_is_not_probed_and_a_probe_has_the_weight_of_its_lesser_neighbour():
    heavy = replace(GEMM, m=64, weight=20.0)
    found = probe_problems((*at(16), heavy, *at(512)), set(at(128)))
    assert {p.size: p.weight for p in found} == {24: 1.0, 32: 1.0, 48: 1.0, 96: 20.0, 192: 20.0, 256: 20.0, 384: 20.0}


def test_a_probe_measures_the_best_of_both_neighbours_and_the_vendor_library(found):
    _, executor = found
    here = [(task, config) for task, config in executor.measured if task.problem == at(32)[0]]
    assert [task.space for task, _ in here[:1]] == ["aten"]
    tiles = sorted(config.integer("BLOCK_M") for _, config in here[1:])
    assert len(tiles) <= 10
    assert {tiles[0], tiles[-1]} == {16, 64}
    assert {task.problem.m for task, _ in executor.measured} == {16, 64, 256, *PROBES, *INTERIOR}


def test_no_range_runs_a_kernel_that_is_slower_than_the_library_at_a_probe(found):
    """Tiles of 16 and of 64 rows lose 14 % to the library at 32, where they lead it at 16 and 64; so at 24 and 48.

    At 128 a tile of 128 rows leads, which was among the best of a neighbour and won nowhere else: 96 and 192 are the
    library's.
    """
    result, _ = found
    assert [(row.first, row.last, row.choice.config.get("BLOCK_M")) for row in result.table.ranges] == [
        (16, 17, 16),  # not of 16 alone, for m is dynamic
        (18, 48, None),
        (49, 64, 64),
        (65, 96, None),
        (97, 128, 128),
        (129, 192, None),
        (193, 256, 256),
    ]
    for row in result.table.ranges:
        for m, loss in (*row.tuned, *row.probed):
            assert time_ns(at(m)[0], row.choice.config) <= LIBRARY_NS
            assert loss <= PLAN.ranges.worst
    assert sorted(m for row in result.table.ranges for m, _ in row.tuned) == [16, 64, 256]
    assert sorted(m for row in result.table.ranges for m, _ in row.probed) == sorted(PROBES + INTERIOR)


def test_interior_points_are_eighths_of_an_octave_between_the_outermost_tuned_m_of_one_gemm():
    assert sorted(point.size for point in interior_problems(at(2, 24))) == [4, 6, 8, 10, 12, 14, 16, 18, 20, 22]
    found = interior_problems(at(256, 100, 64))
    assert sorted(point.size for point in found) == [*range(72, 128, 8), *range(128, 256, 16)]
    assert interior_problems((*at(64), replace(GEMM, m=128, n=512))) == set()


def test_an_interior_point_measures_the_kernel_of_the_range_and_the_library(found):
    result, executor = found
    (row,) = [row for row in result.table.ranges if row.first <= 56 <= row.last]
    here = [(task.space, config) for task, config in executor.measured if task.problem == at(56)[0]]
    assert [(space, config) for space, config in here if config] == [("triton_mm", row.choice.config)]
    assert [space for space, config in here if not config] == ["aten"]


def test_a_range_is_cut_where_the_library_is_faster_inside_it(tmp_path, found):
    """At 60, between 56 and 64, where the kernel leads it by 4 and 9 %."""
    assert ranges_near_64(found[0]) == [(18, 48, None), (49, 64, 64)]
    cut, _ = campaign(tmp_path, library={60: 24_000.0})
    assert ranges_near_64(cut) == [(18, 48, None), (49, 56, 64), (57, 60, None), (61, 64, 64)]


def test_a_kernel_that_is_hardly_slower_inside_a_range_keeps_it(tmp_path, found):
    (row,) = [row for row in found[0].table.ranges if row.last == 64]
    almost = time_ns(at(60)[0], row.choice.config) / 1.015
    again, _ = campaign(tmp_path, library={60: almost})
    assert ranges_near_64(again) == ranges_near_64(found[0])


def ranges_near_64(result):
    return [(r.first, r.last, r.choice.config.get("BLOCK_M")) for r in result.table.ranges if 48 <= r.last <= 64]


def test_a_probe_has_no_row_no_finding_and_no_share_in_the_portfolio(tmp_path):
    plan = replace(PLAN, portfolio=LossLimits())
    result, _ = campaign(tmp_path, plan)
    assert [row.problem.m for row in result.table.rows] == [16, 256, 64]  # by name
    assert {f.problem.m for f in result.findings} == {16, 64, 256}
    assert {m.task.problem.m for m in result.measurements} == {16, 64, 256}
    assert {pick.problem.m for pick in result.portfolio.picks} <= {16, 64, 256}


def test_the_summary_counts_tuned_probed_and_held_out_m_apart(tmp_path):
    plan = replace(PLAN, held_out=at(40, 128))
    result, executor = campaign(tmp_path, plan)
    said = campaign_report(plan, H200, result).to_text()
    assert "at 3 tuned m" in said
    assert "at 11 probed m, between tuned ones" in said  # not 128, and so no interior points below it
    assert "at 2 held-out m" in said
    assert "2 problems held out, without a row" in said
    assert "nothing worked" not in said
    assert "128" not in {str(m) for row in result.table.ranges for m, _ in row.probed}
    searched = [task for task, _ in executor.measured if task.problem == at(128)[0] and task.space == "triton_mm"]
    assert len(searched) >= PLAN.budget


def test_the_kernel_of_a_range_is_measured_at_held_out_m_even_if_a_probe_chose_it(tmp_path):
    """112 lies in the range of the 128-row tile that the probe at 128 chose; 200 in that of the 256-row tile."""
    held_out = at(112, 200)
    result, executor = campaign(tmp_path, replace(PLAN, held_out=held_out))
    (probed,) = [row for row in result.table.ranges if row.last == 128]
    assert (held_out[0], probed.choice.config) in [(task.problem, config) for task, config in executor.measured]
    assert [m for row in result.table.ranges for m, _ in row.held_out] == [112, 200]
    assert None not in {each.loss for each in result.ranges.held_out}
    again, executor = campaign(tmp_path, replace(PLAN, held_out=held_out))
    assert (executor.measured, again.table) == ([], result.table)


def test_a_second_run_measures_nothing_and_gives_the_same_table(tmp_path):
    """With so few evaluations what was crossed would have its place in another final."""
    plan = replace(PLAN, budget=6)
    first, _ = campaign(tmp_path, plan)
    again, executor = campaign(tmp_path, plan)
    assert (executor.measured, executor.finals) == ([], [])
    assert again.table == first.table


@pytest.mark.parametrize("stage", ["probe_searches", "_interior_searches"])
def test_a_campaign_that_was_killed_between_the_rounds_ends_with_the_same_table(tmp_path, monkeypatch, found, stage):
    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ranges, stage, killed)
        with pytest.raises(KeyboardInterrupt):
            campaign(tmp_path)
    result, executor = campaign(tmp_path)
    assert result.table == found[0].table
    assert {task.problem.m for task, _ in executor.measured} == {
        *INTERIOR,
        *(PROBES if stage == "probe_searches" else []),
    }


def test_measurements_of_probes_do_not_change_what_samplers_ask(tmp_path):
    plan = replace(PLAN, sampler="transfer", budget=12)
    campaign(tmp_path, plan)
    with sqlite3.connect(tmp_path / "m.db") as connection:
        connection.execute("DELETE FROM asked")
    _, executor = campaign(tmp_path, plan)
    assert executor.measured == []


def verified(folder, table):
    with Database.open(folder / "later.db") as database:
        return verify(table, PLAN.margin, Formula({}), database, ())


def test_ranges_are_verified_at_probes_too_and_probes_get_no_row(tmp_path, found):
    table = found[0].table
    again = verified(tmp_path, table)
    assert again.holds
    sizes = [[check.problem.m for check in its.checks] for its in again.ranges]
    assert [sorted(each) for each in sizes] == [
        [16],
        [24, 32, 48],
        [52, 56, 60, 64],
        [96],
        [104, 112, 120, 128],
        [192],
        [208, 224, 240, 256],
    ]
    assert again.repaired.ranges == table.ranges
    assert {row.problem for row in again.repaired.rows} == {row.problem for row in table.rows}


def test_a_range_that_loses_at_a_probe_does_not_hold(tmp_path, found):
    table = found[0].table
    small, _, middle, *larger = table.ranges
    wide = replace(middle, first=17, probed=((32, 0.0),))
    again = verified(tmp_path, replace(table, ranges=(small, wide, *larger)))
    assert [its.holds for its in again.ranges] == [True, False, *[True] * 4]
    assert [(row.first, row.last, row.choice.config.get("BLOCK_M")) for row in again.repaired.ranges] == [
        (16, 17, 16),
        (18, 32, None),
        (33, 64, 64),
        *((row.first, row.last, row.choice.config.get("BLOCK_M")) for row in larger),
    ]


def test_kernels_of_a_static_m_are_not_probed(tmp_path):
    """A binary of theirs serves the m that was compiled in."""
    static = tuple(replace(problem, dynamic_m=False) for problem in PLAN.problems)
    result, executor = campaign(tmp_path, replace(PLAN, problems=static))
    assert {task.problem.m for task, _ in executor.measured} == {16, 64, 256}
    assert {row.probed for row in result.table.ranges} == {()}
    assert {row.problem.series for row in result.table.ranges} == {static[0].series}
