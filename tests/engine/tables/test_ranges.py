from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from gemmtune.engine.campaign.rounds.ranges import probe_problems
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice
from gemmtune.engine.tables.loss_limits import RangeLimits
from gemmtune.engine.tables.ranges import build_ranges, ranges_report
from gemmtune.engine.tables.ranking import Contender, Ranking

GEMM = Problem.parse("16x4096x4096:bf16:nt:dynamic_m=true")
ATEN = ("aten", Config({}))


def tile(block_m):
    return "triton_mm", Config({"BLOCK_M": block_m})


def ranking(m, times, weight=1.0):
    """Return the ranking of one m from choice to time in ns, with intervals of a ten-thousandth."""
    contenders = []
    for (space, config), time_ns in sorted(times.items(), key=lambda item: item[1]):
        choice = Choice(
            space, config, time_ns, time_ns * 0.9999, time_ns * 1.0001, 32, Evidence.MEASURED, "torch 2.11.0", "p"
        )
        contenders.append(Contender(choice, time_ns, 0, None))
    problem = replace(GEMM, m=m, weight=weight)
    baseline = next((c for c in contenders if c.choice.space == "aten"), None)
    return Ranking(problem, tuple(contenders), baseline, None)


def spans(rows):
    return [(row.first, row.last, row.choice.config) for row in rows]


SMALL, LARGE = tile(16), tile(128)
MEASURED = (
    ranking(16, {SMALL: 100.0, LARGE: 160.0, ATEN: 120.0}),
    ranking(64, {SMALL: 101.0, LARGE: 110.0, ATEN: 120.0}),
    ranking(1024, {SMALL: 400.0, LARGE: 200.0, ATEN: 230.0}),
    ranking(4096, {SMALL: 1500.0, LARGE: 790.0, ATEN: 900.0}),
)


def test_neighbours_that_one_choice_serves_share_a_range():
    small, large = build_ranges(MEASURED, RangeLimits())
    assert (small.choice.config, large.choice.config) == (SMALL[1], LARGE[1])
    assert (small.first, large.last) == (16, 4096)
    assert small.last + 1 == large.first
    assert small.tuned == ((16, 0.0), (64, 0.0))
    assert large.tuned == ((1024, 0.0), (4096, 0.0))


def test_a_range_ends_where_the_measured_losses_cross_at_a_power_of_two():
    """Between 64 and 1024 the small tile goes from 0 to 100 % behind, the large one from 8.9 % to 0."""
    small, _ = build_ranges(MEASURED, RangeLimits())
    assert small.last == 64  # 8 % of the way, in powers of two
    swapped = (MEASURED[0], ranking(64, {SMALL: 100.0, LARGE: 200.0, ATEN: 220.0}), *MEASURED[2:])
    assert build_ranges(swapped, RangeLimits())[0].last == 256  # half of the way


def test_a_choice_without_a_measurement_at_the_next_size_ends_at_its_own_m():
    unknown = (MEASURED[0], MEASURED[1], ranking(1024, {LARGE: 200.0, ATEN: 230.0}), MEASURED[3])
    assert build_ranges(unknown, RangeLimits())[0].last == 64


def test_a_choice_without_a_measurement_at_the_size_before_is_bounded_by_its_time_at_more_rows():
    """The large tile at 64 rows takes at most the 200 ns of its 1024: at most 98 % behind, so half of the way."""
    unknown = (MEASURED[0], ranking(64, {SMALL: 101.0, ATEN: 120.0}), *MEASURED[2:])
    assert build_ranges(unknown, RangeLimits())[0].last == 256


def test_nothing_is_served_beyond_what_was_tuned():
    rows = build_ranges(MEASURED, RangeLimits())
    assert (min(row.first for row in rows), max(row.last for row in rows)) == (16, 4096)


def test_a_loss_within_the_limit_is_accepted_for_fewer_ranges():
    close = (
        ranking(16, {SMALL: 100.0, LARGE: 101.0, ATEN: 120.0}),
        ranking(64, {SMALL: 130.0, LARGE: 100.0, ATEN: 120.0}),
    )
    (one,) = build_ranges(close, RangeLimits())
    assert (one.choice.config, one.tuned) == (LARGE[1], ((16, pytest.approx(0.01)), (64, 0.0)))
    assert len(build_ranges(close, RangeLimits(worst=0.005))) == 2


def test_a_choice_slower_than_the_vendor_library_serves_nothing():
    """At 64 the vendor library ships; the tile is 1 % slower, which is within the limit and not worth a kernel."""
    behind = (ranking(16, {SMALL: 100.0, ATEN: 120.0}), ranking(64, {SMALL: 101.0, ATEN: 100.0}))
    assert [row.choice.space for row in build_ranges(behind, RangeLimits())] == ["triton_mm", "aten"]


def test_a_choice_ahead_by_less_than_the_margin_may_join_its_own_range():
    """At 64 the tile leads by 1 %, too little for a row, but enough to join the range of 16."""
    ahead = (ranking(16, {SMALL: 100.0, ATEN: 120.0}), ranking(64, {SMALL: 99.0, ATEN: 100.0}))
    (one,) = build_ranges(ahead, RangeLimits())
    assert (one.choice.space, one.first, one.last) == ("triton_mm", 16, 64)


def test_among_as_few_ranges_those_of_the_least_weighted_loss_are_taken():
    """The middle size may join either side."""
    either = {SMALL: 101.0, LARGE: 100.0, ATEN: 150.0}
    sizes = (
        ranking(16, {SMALL: 100.0, LARGE: 200.0, ATEN: 150.0}),
        ranking(64, either),
        ranking(256, {SMALL: 200.0, LARGE: 100.0, ATEN: 150.0}),
    )
    assert [row.tuned for row in build_ranges(sizes, RangeLimits())] == [((16, 0.0),), ((64, 0.0), (256, 0.0))]


def test_a_held_out_size_does_not_shape_ranges_and_its_loss_is_reported():
    check = ranking(48, {SMALL: 150.0, LARGE: 100.0, ATEN: 120.0})
    rows = build_ranges((*MEASURED, check), RangeLimits(), held_out={check.problem})
    assert spans(rows) == spans(build_ranges(MEASURED, RangeLimits()))
    assert rows[0].held_out == ((48, pytest.approx(0.5)),)
    assert rows[1].held_out == ()


def test_a_held_out_size_without_a_measurement_of_the_choice_has_no_loss():
    check = ranking(48, {LARGE: 100.0, ATEN: 120.0})
    rankings, held_out = (*MEASURED, check), {check.problem}
    rows = build_ranges(rankings, RangeLimits(), held_out=held_out)
    assert rows[0].held_out == ()
    report = ranges_report(rows, rankings, held_out=held_out)
    assert [(each.loss, each.in_range) for each in report.held_out] == [(None, True)]


def test_beyond_the_greatest_m_the_report_counts_the_vendor_librarys_loss():
    check = ranking(8192, {LARGE: 1600.0, ATEN: 2000.0})
    rankings, held_out = (*MEASURED, check), {check.problem}
    report = ranges_report(build_ranges(rankings, RangeLimits(), held_out=held_out), rankings, held_out=held_out)
    ((found),) = report.held_out
    assert (found.space, found.loss, found.in_range) == ("aten", pytest.approx(0.25), False)


def test_a_probed_size_cuts_a_range_whose_choice_is_slower_than_the_vendor_library():
    """The large tile wins at 64 and takes 15 % longer than the vendor library at 32."""
    sizes = (
        ranking(16, {SMALL: 100.0, LARGE: 125.0, ATEN: 120.0}),
        ranking(64, {SMALL: 140.0, LARGE: 105.0, ATEN: 120.0}),
    )
    probe = ranking(32, {SMALL: 130.0, LARGE: 138.0, ATEN: 120.0})
    assert spans(build_ranges(sizes, RangeLimits())) == [(16, 32, SMALL[1]), (33, 64, LARGE[1])]
    small, library, large = build_ranges((*sizes, probe), RangeLimits(), probed={probe.problem})
    assert spans((small, library, large)) == [(16, 17, SMALL[1]), (18, 32, ATEN[1]), (33, 64, LARGE[1])]
    assert (library.tuned, library.probed, library.problem.size) == ((), ((32, 0.0),), 32)
    assert library.worst_loss == 0.0
    report = ranges_report((small, library, large), (*sizes, probe), probed={probe.problem})
    assert [(each.problem.size, each.space) for each in report.probed] == [(32, "aten")]
    assert [each.problem.size for each in report.tuned] == [16, 64]


def test_a_range_includes_probed_sizes_at_which_its_choice_loses_little():
    probe = ranking(256, {SMALL: 180.0, LARGE: 142.0, ATEN: 160.0, tile(64): 141.0})
    rows = build_ranges((*MEASURED, probe), RangeLimits(), probed={probe.problem})
    assert [(row.first, row.last) for row in rows] == [(16, 64), (65, 4096)]
    assert rows[1].probed == ((256, pytest.approx(1 / 141)),)


@pytest.mark.parametrize(("aten", "ends"), [(140.0, [64, 4096]), (139.0, [64, 4096]), (137.0, [64, 192, 256, 4096])])
def test_a_range_includes_interior_sizes_at_which_its_kernel_keeps_the_limit(aten, ends):
    """The large tile takes 141 ns at 256. At a probed size, no choice slower than the vendor library serves."""
    spot = ranking(256, {LARGE: 141.0, ATEN: aten})
    sizes = (*MEASURED, ranking(192, {SMALL: 160.0, LARGE: 130.0, ATEN: 150.0}), spot)
    rows = build_ranges(sizes, RangeLimits(), interior={spot.problem})
    assert [row.last for row in rows] == ends
    (there,) = [row for row in rows if row.first <= 256 <= row.last]
    assert there.choice.space == ("aten" if len(ends) > 2 else "triton_mm")
    assert 256 in {m for m, _ in there.probed}
    assert 256 not in {m for m, _ in there.tuned}
    assert len(build_ranges(sizes, RangeLimits(), probed={spot.problem})) == 4


@pytest.mark.parametrize("cut", [24, 32, 48, 64, 96, 128, 192])
def test_between_two_probed_sizes_a_range_ends_at_the_lesser(cut):
    """The end does not depend on how little one choice loses above it, or how much the other loses below."""
    below, above = {SMALL: 100.0, LARGE: 150.0, ATEN: 190.0}, {SMALL: 103.0, LARGE: 100.0, ATEN: 190.0}
    sizes = [ranking(m, below if m <= cut else above) for m in (16, 24, 32, 48, 64, 96, 128, 192, 256)]
    rows = build_ranges(sizes, RangeLimits(), probed={each.problem for each in sizes[1:-1]})
    assert spans(rows) == [(16, cut, SMALL[1]), (cut + 1, 256, LARGE[1])]


def test_among_ends_of_equal_loss_a_power_of_two_is_taken():
    """Where the vendor library ships, a tile ahead by less than the margin loses nothing either."""
    small, library = {SMALL: 100.0, ATEN: 120.0}, {SMALL: 150.0, ATEN: 100.0}
    either = {SMALL: 99.0, ATEN: 100.0}

    def end(of_96, of_128):
        sizes = {48: small, 64: small, 96: of_96, 128: of_128, 192: library}
        rows = build_ranges([ranking(m, times) for m, times in sizes.items()], RangeLimits())
        assert [row.choice.config for row in rows] == [SMALL[1], ATEN[1]]
        return rows[0].last

    assert end(small, either) == 128
    assert end(either, library) == 64
    assert end(small, library) == 96


def test_probed_sizes_alone_make_no_range():
    probe = ranking(32, {SMALL: 100.0, ATEN: 120.0})
    assert build_ranges((MEASURED[0], probe), RangeLimits(), probed={probe.problem}) == ()


def test_a_choice_with_few_launches_does_not_serve_where_the_vendor_library_may_be_faster():
    """At 64 the tile is ahead of the vendor library by 1 % ∓ 4 %."""
    known = ranking(16, {SMALL: 100.0, ATEN: 120.0})
    guessed = ranking(64, {SMALL: 99.0, ATEN: 100.0})
    library, tile_ = guessed.baseline, guessed.fastest
    vague = replace(tile_, choice=replace(tile_.choice, low_ns=95.0, high_ns=103.0, samples=3))
    guessed = replace(guessed, contenders=(vague, library))
    assert [row.choice.space for row in build_ranges((known, guessed), RangeLimits())] == ["triton_mm", "aten"]


def test_the_report_has_the_loss_at_a_held_out_size_beyond_an_edge():
    check = ranking(100, {SMALL: 150.0, LARGE: 100.0, ATEN: 120.0})
    swapped = (MEASURED[0], ranking(64, {SMALL: 100.0, LARGE: 200.0, ATEN: 220.0}), *MEASURED[2:], check)
    held_out = {check.problem}
    rows = build_ranges(swapped, RangeLimits(), held_out=held_out)
    report = ranges_report(rows, swapped, held_out=held_out)
    assert [each.loss for each in report.held_out] == [pytest.approx(0.5)]  # measured edges: the small tile to 256
    assert report.ranges == 2


def test_a_gemm_at_one_m_has_no_range():
    assert build_ranges(MEASURED[:1], RangeLimits()) == ()
    assert build_ranges(MEASURED[:2], RangeLimits(), held_out={MEASURED[0].problem}) == ()


def test_gemms_that_differ_in_more_than_m_have_ranges_of_their_own():
    static = tuple(replace(each, problem=replace(each.problem, dynamic_m=False)) for each in MEASURED)
    rows = build_ranges((*MEASURED, *static), RangeLimits())
    assert sorted(gemm(row.problem).dynamic_m for row in rows) == [False, False, True, True]


def test_the_order_of_the_rankings_does_not_matter():
    assert build_ranges(MEASURED[::-1], RangeLimits()) == build_ranges(MEASURED, RangeLimits())


# No graph of a dynamic m may serve a single size: torch refuses to compile it if the dimension was marked.


def measured_at_2_and_beyond(small_at_4, large_at_2):
    """Return rankings in which the small tile wins at 2 and the large one from 4 on."""
    return (
        ranking(2, {SMALL: 100.0, LARGE: 100.0 + large_at_2, ATEN: 110.0}),
        ranking(4, {SMALL: 100.0 + small_at_4, LARGE: 100.0, ATEN: 110.0}),
        ranking(64, {SMALL: 150.0, LARGE: 100.0, ATEN: 110.0}),
    )


def test_the_nearest_size_of_a_neighbour_joins_a_lone_size_if_that_loses_least():
    rows = build_ranges(measured_at_2_and_beyond(2.5, 6.0), RangeLimits())
    assert spans(rows) == [(2, 4, SMALL[1]), (5, 64, LARGE[1])]
    assert rows[0].tuned == ((2, 0.0), (4, pytest.approx(0.025)))


def test_3_is_not_probed_because_a_slower_kernel_would_then_serve_2():
    """With a probe at 3, the lone range of 2 has no unmeasured m to reach."""
    sizes = (
        ranking(2, {SMALL: 107.0, ATEN: 100.0}),
        ranking(4, {SMALL: 100.0, ATEN: 106.0}),
        ranking(16, {SMALL: 100.0, ATEN: 106.0}),
    )
    at_3 = ranking(3, {SMALL: 100.0, ATEN: 106.0})
    assert spans(build_ranges(sizes, RangeLimits())) == [(2, 3, ATEN[1]), (4, 16, SMALL[1])]
    assert spans(build_ranges((*sizes, at_3), RangeLimits(), probed={at_3.problem})) == [(2, 16, SMALL[1])]
    assert at_3.problem not in probe_problems([each.problem for each in sizes])


def test_a_lone_size_joins_its_neighbour_if_that_loses_least():
    rows = build_ranges(measured_at_2_and_beyond(5.0, 2.5), RangeLimits())
    assert spans(rows) == [(2, 64, LARGE[1])]
    assert rows[0].tuned[0] == (2, pytest.approx(0.025))


def test_a_lone_range_reaches_one_m_further_if_joining_loses_much():
    rows = build_ranges(measured_at_2_and_beyond(9.0, 9.0), RangeLimits())
    assert spans(rows) == [(2, 3, SMALL[1]), (4, 64, LARGE[1])]


def test_the_vendor_library_at_a_lone_2_is_not_replaced_by_a_slower_kernel():
    """At m = 2 the tile of 3 to 16 takes 7 % longer than the vendor library, as on an H200 (experiments/tables)."""
    sizes = (
        ranking(2, {SMALL: 107.0, ATEN: 100.0}),
        ranking(4, {SMALL: 100.0, ATEN: 103.0}),
        ranking(16, {SMALL: 100.0, ATEN: 106.0}),
    )
    assert spans(build_ranges(sizes, RangeLimits())) == [(2, 4, ATEN[1]), (5, 16, SMALL[1])]


def test_a_lone_size_between_measured_sizes_goes_to_the_neighbour_that_loses_less():
    sizes = (
        ranking(2, {SMALL: 100.0, LARGE: 120.0, ATEN: 190.0}),
        ranking(3, {SMALL: 150.0, LARGE: 100.0, ATEN: 190.0}),
        ranking(4, {SMALL: 120.0, LARGE: 150.0, tile(64): 100.0, ATEN: 190.0}),
        ranking(16, {SMALL: 150.0, LARGE: 150.0, tile(64): 100.0, ATEN: 190.0}),
    )
    rows = build_ranges(sizes, RangeLimits())
    assert all(max(row.first, 2) < row.last for row in rows)
    assert [(row.first, row.last) for row in rows] == [(2, 3), (4, 16)]
    assert rows[0].worst_loss == pytest.approx(0.2)


def test_a_lone_size_joins_an_unmeasured_choice_only_if_nothing_else_is_possible():
    sizes = (
        ranking(2, {SMALL: 100.0, ATEN: 120.0}),
        ranking(3, {LARGE: 100.0, ATEN: 120.0}),
        ranking(64, {LARGE: 9.0}),
    )
    (row,) = build_ranges(sizes, RangeLimits())
    assert (row.first, row.last, row.tuned) == (2, 64, ((3, 0.0), (64, 0.0)))


def test_the_last_range_begins_one_earlier_rather_than_with_one_size():
    sizes = (
        ranking(16, {SMALL: 100.0, LARGE: 110.0, ATEN: 190.0}),
        ranking(32, {SMALL: 100.0, LARGE: 110.0, ATEN: 190.0}),
        ranking(65, {SMALL: 109.0, LARGE: 100.0, ATEN: 190.0}),
    )
    (_, small_last, _), (large_first, large_last, _) = spans(build_ranges(sizes, RangeLimits()))
    assert (small_last + 1, large_last) == (large_first, 65)
    assert large_first < 65


def test_a_first_range_from_3_on_begins_at_2():
    sizes = (ranking(3, {SMALL: 100.0, ATEN: 120.0}), ranking(16, {SMALL: 100.0, ATEN: 120.0}))
    assert spans(build_ranges(sizes, RangeLimits())) == [(2, 16, SMALL[1])]


def test_m_of_1_and_2_make_no_range_of_a_dynamic_m():
    """Dynamo compiles m = 1 for itself."""
    sizes = (ranking(1, {SMALL: 100.0, ATEN: 120.0}), ranking(2, {SMALL: 100.0, ATEN: 120.0}))
    assert build_ranges(sizes, RangeLimits()) == ()


def test_ranges_of_a_static_m_may_have_one_size():
    static = [
        replace(each, problem=replace(each.problem, dynamic_m=False)) for each in measured_at_2_and_beyond(2.5, 6.0)
    ]
    assert spans(build_ranges(static, RangeLimits())) == [(2, 2, SMALL[1]), (3, 64, LARGE[1])]


def test_no_range_of_a_dynamic_m_has_one_size_for_any_measurements():
    for seed in range(30):
        random = Random(seed)
        choices = [SMALL, LARGE, tile(64), ATEN]
        sizes = [
            ranking(m, {c: random.uniform(90, 130) for c in (*random.sample(choices[:3], random.randint(1, 3)), ATEN)})
            for m in sorted(random.sample(range(1, 40), random.randint(2, 12)))
        ]
        rows = build_ranges(sizes, RangeLimits())
        assert all(max(row.first, 2) < row.last for row in rows), seed
        assert all(one.last + 1 == other.first for one, other in pairwise(rows)), seed
        assert all(row.tuned and row.first <= row.problem.size <= row.last for row in rows), seed
        assert not rows or rows[0].first != 3, seed
        measured = {m for row in rows for m, _ in row.tuned}
        assert all(row.first <= m <= row.last for row in rows for m, _ in row.tuned), seed
        assert measured <= {each.problem.m for each in sizes}, seed


def test_a_limit_below_0_is_refused():
    with pytest.raises(UsageError, match=r"ranges\.worst=-0\.1 is not a number from 0 on"):
        RangeLimits(worst=-0.1)
