"""Numbers of a page's sections: lines as they are drawn, and the tables below them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Evidence, Status, Trial
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.report.campaign_record import CampaignRecord, Evaluation, ProblemRecord, best_so_far, lead, within
from gemmtune.engine.report.html import (
    change_pages,
    comparison_page,
    drawing,
    pair_section,
    range_section,
    roofline_section,
    row_sections,
    run_sections,
    search_sections,
    time_section,
)
from gemmtune.engine.report.html.param_effects import importances, pair_losses
from gemmtune.engine.seams import registry
from gemmtune.engine.studies.comparison import compare
from gemmtune.engine.tables.diff import Change, TableDiff

DEVICE = catalogue.device("H200")


@pytest.fixture
def drawn(monkeypatch):
    """The axes of each picture: its lines, scattered points and limits, in place of an SVG."""
    found = []

    def svg(figure, label):
        found.append(
            [
                SimpleNamespace(
                    lines=[[list(map(float, each)) for each in line.get_data()] for line in axes.get_lines()],
                    dots=[each.get_offsets().tolist() for each in axes.collections if hasattr(each, "get_offsets")],
                    bars=[bar.get_width() for bar in axes.patches],
                    ylim=axes.get_ylim(),
                    title=axes.get_title(),
                    scales=(axes.get_xscale(), axes.get_yscale()),
                    labels=(axes.get_xlabel(), axes.get_ylabel()),
                )
                for axes in figure.axes
            ]
        )
        return label

    monkeypatch.setattr(drawing, "svg", svg)
    return found


def labels(section):
    """Draw the pictures of a section and return their labels."""
    return [picture.svg() for picture in section.pictures]


def choice(space, time_ns, evidence=Evidence.MEASURED):
    config = Config({"BLOCK_M": 64}) if space == "triton_mm" else Config({})
    return Choice(space, config, time_ns, time_ns * 0.9, time_ns * 1.1, 8, evidence, "torch 2.13.0", "graph-cold-l2")


def row(m=16, best=5_000.0, base=10_000.0, evidence=Evidence.MEASURED, weight=1.0):
    baseline = choice("aten", base, evidence) if base else None
    first = choice("triton_mm", best, evidence)
    return Row(Problem(m, 32, 64, weight=weight), (first, *([baseline] if baseline else [])), baseline, 0.5, ())


def evaluation(score, second=0, block=64, clock=1980, reason="", status=Status.BUILD_FAILED):
    config = Config({"BLOCK_M": block, "BLOCK_N": 64})
    at = f"2026-11-26T10:00:{second:02}+00:00"
    return Evaluation("triton_mm", config, Status.OK if score else status, reason, score, at, clock if score else None)


def record(*problems, run=None, rows=None):
    table = Table(DEVICE, tuple(rows or (each.row for each in problems)), "latency")
    return CampaignRecord(table, registry.objective("latency"), problems, run)


FIRST = ProblemRecord(
    row(),
    (evaluation(None, 0), evaluation(8_000.0, 1, 32), evaluation(5_000.0, 3), evaluation(5_100.0, 6, 128)),
    None,
    4_000.0,
)
SECOND = ProblemRecord(row(32, 6_000.0, 0), (evaluation(6_000.0, 2), evaluation(9_000.0, 4, 32)), None, 6_000.0)


def test_regret_is_the_best_so_far_over_the_optimum_and_stays_after_the_last_evaluation(drawn):
    section = search_sections.regret(record(FIRST, SECOND))
    labels(section)
    [[axes]] = drawn
    first, second, middle = axes.lines
    assert first[1][1:] == pytest.approx([1, 0.25, 0.25])
    assert first[0] == [1, 2, 3, 4]
    assert second[1] == pytest.approx([1e-4] * 4)  # the floor of a logarithmic axis
    assert middle == [[1, 2, 3, 4], pytest.approx([1e-4, 0.5, 0.125, 0.125])]
    assert section.sheet.rows == [["16x32x64:bf16:nt", "25.00%"], ["32x32x64:bf16:nt", "0.00%"]]


def test_regret_has_a_column_per_power_of_two_from_8_on():
    long = replace(FIRST, evaluations=tuple(evaluation(4_000.0 + 100 * (20 - place)) for place in range(16)))
    section = search_sections.regret(record(long))
    assert section.sheet.headers == ["problem", "after 8", "after 16"]
    assert section.sheet.rows == [["16x32x64:bf16:nt", "32.50%", "12.50%"]]
    assert search_sections.regret(record(replace(FIRST, optimum=None))).sheet is None


def test_best_so_far_is_drawn_in_microseconds_over_evaluations_and_seconds(drawn):
    section = search_sections.best_over_time(record(FIRST, SECOND))
    labels(section)
    by_number, by_second = drawn
    best, baseline = by_number[0].lines
    assert best[0] == [1, 2, 3, 4]
    assert best[1][1:] == pytest.approx([8, 5, 5])
    assert baseline[1] == pytest.approx([10, 10])
    assert by_number[0].ylim == pytest.approx((5 * 0.97, 11))
    assert len(by_number[1].lines) == 1  # no baseline
    assert by_number[1].ylim == pytest.approx((6 * 0.97, 9))
    assert by_second[0].lines[0][0] == [0, 1, 3, 6]
    assert by_second[1].lines[0][0] == [2, 4]
    assert section.sheet.rows == [
        ["16x32x64:bf16:nt", "4", "3", "5.0", "2 of 3"],
        ["32x32x64:bf16:nt", "2", "1", "6.0", "1 of 2"],
    ]


def test_a_replay_has_no_picture_over_seconds_and_six_problems_at_most_have_panels(drawn):
    replayed = replace(FIRST, row=row(evidence=Evidence.ESTIMATED))
    many = [replace(replayed, row=row(m, evidence=Evidence.ESTIMATED)) for m in range(1, 8)]
    section = search_sections.best_over_time(record(*many))
    assert labels(section) == ["Best so far over evaluations of 6 problems"]
    [panels] = drawn
    assert len([axes for axes in panels if axes.lines]) == 6
    assert len(section.sheet.rows) == 7


def test_each_value_of_a_parameter_has_the_loss_of_its_best_config(drawn):
    section = search_sections.params(record(FIRST, SECOND))
    assert [(each[0], each[1], each[2]) for each in section.sheet.rows] == [
        ("BLOCK_M", "32", "2"),
        ("BLOCK_M", "64", "2"),
        ("BLOCK_M", "128", "1"),
    ]  # BLOCK_N has one value
    assert [each[3:] for each in section.sheet.rows] == [["55.0%", "0"], ["0.0%", "2"], ["2.0%", "0"]]
    labels(section)
    [[axes, *_]] = drawn
    assert axes.title == "BLOCK_M"
    assert axes.dots[0] == [[0, pytest.approx(0.6)], [0, pytest.approx(0.5)]]


def test_failures_are_counted_by_status_and_reason(drawn):
    broken = [
        evaluation(None, reason="ptxas\nmore"),
        evaluation(None, reason="x" * 161),
        evaluation(None, reason="ptxas"),
    ]
    broken.append(evaluation(None, reason="x" * 160, status=Status.RUN_FAILED))
    section = run_sections.failures(record(replace(FIRST, evaluations=(*broken, evaluation(1.0)))))
    assert section.sheet.rows == [
        ["build_failed", "2", "ptxas"],
        ["build_failed", "1", f"{'x' * 159}…"],
        ["run_failed", "1", "x" * 160],
    ]
    assert section.text.startswith("4 of 5 evaluations failed")
    labels(section)
    assert drawn[0][0].bars == [3, 1]
    assert "None of 2" in run_sections.failures(record(SECOND)).text
    assert "at hand" in run_sections.failures(record()).text


def load(seconds, queued=1, building=2, timing=3, busy=1, workers=2):
    return SimpleNamespace(seconds=seconds, queued=queued, building=building, timing=timing, busy=busy, workers=workers)


def test_a_timeline_has_the_load_and_the_clocks_after_each_measurement(drawn):
    run = SimpleNamespace(load=[load(0.0, 7), load(1.5, 6, 5, 4, 2)])
    section = run_sections.timeline(record(FIRST, run=run))
    labels(section)
    loads, clocks = drawn
    assert [line[1] for line in loads[0].lines] == [[2, 5], [3, 4], [7, 6], [1, 2]]
    assert loads[0].lines[0][0] == [0, 1.5]
    assert clocks[0].dots == [[[0, 1980], [2, 1980], [5, 1980]]]  # a failure has none
    assert section.sheet.rows == [["0.0", "7", "2", "3", "1 of 2"], ["1.5", "6", "5", "4", "2 of 2"]]


@pytest.mark.parametrize(("entries", "shown"), [(50, 50), (99, 99), (100, 50), (151, 51)])
def test_a_long_load_is_thinned_to_about_fifty_lines(entries, shown):
    run = SimpleNamespace(load=[load(float(second)) for second in range(entries)])
    assert len(run_sections.timeline(record(SECOND, run=run)).sheet.rows) == shown


def test_a_single_load_is_no_picture():
    quiet = replace(SECOND, evaluations=(evaluation(None),))
    assert not run_sections.timeline(record(quiet, run=SimpleNamespace(load=[load(0.0)]))).pictures


def test_leads_and_totals_weigh_only_rows_with_a_baseline():
    rows = (row(16, 5_000.0, 10_000.0, weight=3.0), row(32, 10_000.0, 5_000.0), row(64, 7_000.0, 0))
    found = record(rows=rows)
    assert [row.with_lead().lead for row in rows] == [1, -0.5, None]
    assert found.mean_lead == pytest.approx(0)  # 2 and 1/2
    assert record(rows=rows[:1]).mean_lead == pytest.approx(1)
    assert found.totals == (35_000, 25_000)
    assert record(rows=rows[2:]).mean_lead is None
    assert found.evidence == {Evidence.MEASURED}


def test_the_time_is_split_by_problem_before_and_after():
    rows = (row(16, 5_000.0, 10_000.0, weight=3.0), row(32, 10_000.0, 5_000.0), row(64, 7_000.0, 0))
    section = time_section.time_shares(record(rows=rows))
    before, after = section.bars.stacks
    assert [part.share for part in before.parts] == pytest.approx([30 / 35, 5 / 35])
    assert [part.share for part in after.parts] == pytest.approx([15 / 35, 10 / 35, 10 / 35])
    assert [part.kind for part in after.parts] == ["win", "loss", "saved"]  # both ship a kernel
    assert "Orange ships a kernel slower than" in section.text
    assert [part.row for part in after.parts] == ["row-1", "row-2", ""]
    assert (before.text, after.text) == ("35.0 µs", "25.0 µs, -28.6%")
    assert section.sheet.rows == [
        ["16x32x64:bf16:nt", "3", "30.0", "15.0", "15.0", "60.0%", "150.0%"],
        ["32x32x64:bf16:nt", "1", "5.0", "10.0", "-5.0", "40.0%", "-50.0%"],
    ]
    assert [bar.text for bar in section.bars.bars] == ["30.0 → 15.0 µs", "5.0 → 10.0 µs"]
    assert [(bar.whole, bar.part) for bar in section.bars.bars] == pytest.approx([(1, 0.5), (1 / 6, 1 / 3)])
    assert "without a measured baseline: 1 row" in section.text
    assert time_section.time_shares(record(rows=rows[2:])).bars is None


def test_problems_too_thin_to_see_are_one_part_of_the_stack():
    rows = (*(row(m, 10.0, 10.0) for m in range(1, 4)), row(16, 9_000.0, 10_000.0))
    before, _ = time_section.time_shares(record(rows=rows)).bars.stacks
    assert [part.name for part in before.parts] == ["16x32x64:bf16:nt", "3 smaller problems"]
    assert sum(part.share for part in before.parts) == pytest.approx(1)


def test_the_importance_of_a_parameter_is_what_its_values_explain_beyond_chance():
    """The score doubles with x and ignores y; z has one value, and no two configs share one of w."""
    of = [(Config({"x": x, "y": y, "z": 1, "w": 2 * x + y}), 10.0 * 2**x) for x in (0, 1) for y in (0, 1)]
    found = importances([of, [(config, 100 * score) for config, score in of]])
    assert found == pytest.approx({"x": 1, "y": 0})
    assert list(found) == ["x", "y"]
    assert importances([of[:1]]) == {}
    noisy = [(config, score * (1.1 if config["y"] else 1)) for config, score in of]
    assert 0.9 < importances([noisy])["x"] < 1


def test_a_pair_of_values_has_the_median_loss_of_its_best_config():
    of = [(Config({"x": x, "y": y, "z": z}), 10.0 + 10 * x + y + z) for x in (0, 1) for y in (0, 1) for z in (0, 1)]
    [xy] = pair_losses([of, of[:-2]], 1)
    assert {each.values: (each.loss, each.problems) for each in xy} == {
        (0, 0): (0, 2),
        (0, 1): (pytest.approx(0.1), 2),
        (1, 0): (pytest.approx(1.0), 2),
        (1, 1): (pytest.approx(1.1), 1),
    }
    assert xy[0].names == ("x", "y")


def test_a_pair_is_drawn_as_a_cell_per_pair_of_values_the_darker_the_closer(drawn):
    grown = [evaluation(5_000.0 + block, block=block) for block in (32, 64, 64, 128)]
    wide = [replace(each, config=Config({**each.config, "BLOCK_N": 32}), score=6_000.0) for each in grown]
    section = pair_section.param_pairs(record(replace(FIRST, evaluations=(*grown, *grown, *wide, *wide))))
    assert section.sheet.rows[0][:5] == ["BLOCK_N", "64", "BLOCK_M", "32", "1"]
    assert len(section.sheet.rows) == 6
    labels(section)
    assert drawn[0][0].title == "BLOCK_N over BLOCK_M"
    assert len(drawn[0][0].bars) == 6
    assert pair_section.param_pairs(record(SECOND)).sheet is None


def test_every_row_has_the_resources_of_the_kernel_that_ships():
    ships = replace(evaluation(5_000.0), config=Config({"BLOCK_M": 64}), resources=Resources(168, 49_152, 8, 128))
    section = row_sections.all_rows(record(replace(FIRST, evaluations=(ships, evaluation(4_000.0))), SECOND))
    columns = dict(zip(section.sheet.headers, zip(*section.sheet.rows, strict=True), strict=True))
    assert [columns[name] for name in ("registers", "shared KiB", "spills B")] == [
        ("168", "-"),
        ("48.0", "-"),
        ("8", "-"),
    ]
    assert section.sheet.ids == ["row-1", "row-2"]
    assert "registers" not in row_sections.all_rows(record(FIRST)).sheet.headers


def test_a_lead_has_the_ends_of_both_intervals():
    assert lead(row()) == pytest.approx((1, 9_000 / 5_500 - 1, 11_000 / 4_500 - 1))
    assert lead(row(base=0)) is None


def test_the_best_so_far_and_those_within_a_fraction():
    assert best_so_far([None, 3.0, 5.0, None, 2.0]) == [None, 3, 3, 3, 2]
    assert [within(FIRST, share) for share in (0.0, 0.019, 0.02, 0.6)] == [1, 1, 2, 3]
    assert within(replace(FIRST, evaluations=()), 0.02) == 0


def test_a_diff_has_a_line_per_row_and_its_shift(drawn):
    slower, faster, other = row(1, 6_000.0), row(2, 4_000.0), row(4, 9_000.0)
    found = TableDiff(
        (row(8),), (row(9),), (Change(row(1), slower),), (Change(row(4), other),), (Change(row(2), faster),), (), ()
    )
    before, after = (Table(DEVICE, (row(),) * number, "latency") for number in (3, 4))
    page = change_pages.diff_html(found, before, after, ("old.json", "new.json"))
    for part in (
        "old.json → new.json",
        "+20.0%",
        "-20.0%",
        "+80.0%",
        "5.0 (4.5–5.5)",
        "differ of 3 before and 4 after",
    ):
        assert part in page
    [[axes]] = drawn
    assert sorted(line[0][0] for line in axes.lines[:-1]) == pytest.approx([-0.2, 0.2, 0.8])
    assert [line[0][0] for line in axes.lines][-2] == pytest.approx(0.8)  # the largest shift on top


def test_at_most_sixty_rows_have_an_arrow(drawn):
    changes = tuple(Change(row(m), row(m, 5_000.0 + m)) for m in range(1, 63))
    found = TableDiff((), (), (), (), changes, (), ())
    empty = Table(DEVICE, (), "latency")
    change_pages.diff_html(found, empty, empty, ("a", "b"))
    shifts = [line[0][0] for line in drawn[0][0].lines[:-1]]
    assert len(shifts) == 60
    assert min(shifts) == pytest.approx(3 / 5_000)


def landscape(name):
    points = {
        Config({"x": x}): Point(Config({"x": x}), Status.OK, time) for x, time in enumerate((10.0, 20.0, 40.0, 80.0))
    }
    return Landscape(name, f"{name}.csv", (Param("x", (0, 1, 2, 3)),), points)


def searched(*times):
    return tuple(Trial(Config({"x": 0}), Status.OK, time) for time in times)


def test_a_roofline_is_logarithmic_with_a_point_per_row_and_a_line_per_roof(drawn):
    rows = (row(16), row(4096, 20_000.0, 30_000.0))
    section = roofline_section.roofs(record(rows=rows))
    labels(section)
    [[axes]] = drawn
    assert axes.scales == ("log", "log")
    speeds_of = [(float(cells[2]), float(cells[3])) for cells in section.sheet.rows]
    assert sorted(dot for dots in axes.dots for dot in dots) == [
        [pytest.approx(x, abs=0.06), pytest.approx(y, abs=0.06)] for x, y in sorted(speeds_of)
    ]
    problem = rows[0].problem
    assert speeds_of[0][0] == pytest.approx(problem.flops / problem.min_bytes, abs=0.06)
    assert section.sheet.rows[0][4] == f"{problem.min_bytes / 5_000:.0f}"
    assert [len(line[0]) for line in axes.lines] == [2] * len(axes.lines)
    assert axes.labels == ("flop per byte (each operand moved once)", "TFLOP/s")


def test_a_comparison_shows_each_samplers_regret_with_its_interval(drawn):
    fast, slow = (
        [[searched(20, 10, 10)] * 2] * 5,
        [[searched(80, *rest)] * 2 for rest in ((40, 20), (80, 20), (80, 80), (80, 80), (80, 40))],
    )
    found = compare([landscape("p"), landscape("q")], {"slow": slow, "fast": fast}, 3)
    page = comparison_page.comparison_html(found, {"batch": 1, "cold": True, "apart": True}, ["recorded 2026"])
    mean, each = drawn
    assert [line[1] for line in mean[0].lines] == [
        pytest.approx([7, 1 / 0.15 - 1, 1 / 0.3 - 1]),
        pytest.approx([1, 1e-4, 1e-4], abs=2e-4),
    ]
    assert [axes.title for axes in each if axes.lines] == ["p", "q"]
    assert "0.00% behind the optimum after 3 evaluations" in page
    assert "2 landscapes, budget 3, 5 seeds, batch 1, searches apart, cold · recorded 2026" in page
    goals, regret = comparison_page._goals(found), comparison_page._mean(found)
    assert goals.sheet.rows == [["slow", "> 3", "> 3", "0%", "0%"], ["fast", "2", "2", "100%", "100%"]]
    assert [each[0] for each in regret.sheet.rows] == ["slow", "fast"]
    assert regret.sheet.rows[1][1:] == ["1.000"]  # no interval of equal results
    assert regret.sheet.headers == ["sampler", "after 3"]
    assert [each[0] for each in comparison_page._scores(found).sheet.rows] == ["mean", "p", "q"]


@pytest.mark.parametrize("names", ["p", "pq", "pqrs"])
def test_a_figure_for_a_notebook_has_a_panel_per_landscape_and_one_of_their_mean(names):
    found = compare([landscape(name) for name in names], {"arm": [[searched(20, 10)] * len(names)] * 3}, 2)
    figure = comparison_page.curves_picture(found)
    panels = [axes for axes in figure.axes if axes.lines]
    assert [axes.get_title() for axes in panels] == (
        ["p"] if names == "p" else [f"mean of {len(names)} landscapes", *names]
    )
    assert (figure.get_layout_engine() is None) is (len(names) > 1)  # the margins of several panels are fixed
    assert figure.get_facecolor() == (1, 1, 1, 1)  # whoever saves it gets no transparent picture
    shown: Any = figure
    assert shown._repr_png_().startswith(b"\x89PNG")


def test_a_comparison_of_one_landscape_has_one_picture(drawn):
    found = compare([landscape("p")], {"arm": [[searched(20)]]}, 20)
    comparison_page.comparison_html(found, {"batch": 1, "cold": False, "apart": False}, [])
    assert len(drawn) == 1
    assert comparison_page._mean(found).sheet.headers == ["sampler", "after 16"]
    [card] = comparison_page._cards(found)
    assert card.value == "arm"
    assert card.meaning.startswith("found the best configs: 100.00% behind the optimum after 20")


def ranged(first, last, **losses):
    problem = Problem.parse(f"{last}x32x64:bf16:nt:dynamic_m=true")
    return RangeRow(problem, first, last, choice("triton_mm", 5_000.0), **losses)


@pytest.mark.parametrize(
    ("first", "last", "measured", "holes"),
    [
        (17, 256, (32, 256), [(65, 127)]),
        (17, 128, (32, 128), []),  # 65 to 63: each is within a factor of two
        (1, 1024, (64,), [(1, 31), (129, 1024)]),
        (17, 256, (), [(17, 256)]),
        (17, 17, (), []),
    ],
)
def test_sizes_beyond_a_factor_of_two_of_every_measured_one_are_holes(first, last, measured, holes):
    one = ranged(first, last, tuned=tuple((m, 0.0) for m in measured))
    assert range_section._holes(one) == holes


def test_ranges_are_drawn_with_what_was_measured_in_them(drawn):
    rows = tuple(replace(row(m), problem=Problem.parse(f"{m}x32x64:bf16:nt:dynamic_m=true")) for m in (256, 32))
    one = ranged(17, 256, tuned=((32, 0.01), (256, 0.0)), probed=((64, 0.035),), held_out=((40, 0.02),))
    table = Table(DEVICE, rows, "latency", ranges=(one,))
    section = range_section.m_ranges(CampaignRecord(table, registry.objective("latency")))
    [cells] = section.sheet.rows
    assert cells[1:6] == [("17–256", 17.0), "triton_mm", "3.50%", "32, 40, 64, 256", "-"]
    labels(section)
    [[axes]] = drawn
    assert [line[0] for line in axes.lines] == [[32, 256], [32, 256], [64], [40]]
    assert [line[1] for line in axes.lines] == [[5, 5], [10, 10], [pytest.approx(4.5)], [pytest.approx(4.5)]]
    assert range_section.m_ranges(record(FIRST)) is None
