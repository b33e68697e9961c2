"""Sizes that would be alone in their range: which neighbour serves them, and at what loss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice
from gemmtune.engine.tables.ranking import Contender, Ranking
from gemmtune.engine.tables.spans.lone_sizes import without_lone_sizes
from gemmtune.engine.tables.spans.segments import Segment, Size, key_of

GEMM = Problem.parse("16x4096x4096:bf16:nt:dynamic_m=true")
WORST = 0.05


def contender(name, time_ns):
    config = Config({} if name == "aten" else {"BLOCK_M": name})
    space = "aten" if name == "aten" else "triton_mm"
    choice = Choice(space, config, time_ns, time_ns, time_ns, 32, Evidence.MEASURED, "torch 2.13.0", "p")
    return Contender(choice, time_ns, 0, None)


def size(m, **times):
    """One size, with the times of choices; the fastest serves it, and `aten` is the baseline."""
    contenders = sorted((contender(*item) for item in times.items()), key=lambda each: each.score)
    baseline = next((each for each in contenders if each.choice.space == "aten"), None)
    best = contenders[0]
    losses = {key_of(each): each.score / best.score - 1 for each in contenders}
    ranking = Ranking(replace(GEMM, m=m), tuple(contenders), baseline, None)
    return Size(m, ranking, best, losses, probed=False, interior=False)


def key(name):
    return key_of(contender(name, 1.0))


def served(*segments):
    """Return name and span of each segment, and the sizes that it has, of segments as (name, size, ...)."""
    names = {key(name): name for name in ("a", "b", "c", "aten")}
    given = [Segment(tuple(sizes), key(name)) for name, *sizes in segments]
    found, spans = without_lone_sizes(given, WORST)
    return [
        (names[each.key], *span, [inside.m for inside in each.sizes]) for each, span in zip(found, spans, strict=True)
    ]


A = [size(8, a=100.0, b=150.0), size(16, a=100.0, b=150.0)]
B = [size(18, a=150.0, b=100.0), size(64, a=150.0, b=100.0)]


def test_segments_of_several_sizes_stay():
    assert served(("a", *A), ("b", *B)) == [("a", 8, 16, [8, 16]), ("b", 17, 64, [18, 64])]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        # The lone 17 joins the neighbour at which it loses less, up to twice the limit.
        ({"a": 104.0, "b": 103.0}, [("a", 8, 16, [8, 16]), ("b", 17, 64, [17, 18, 64])]),
        ({"a": 103.0, "b": 104.0}, [("a", 8, 17, [8, 16, 17]), ("b", 18, 64, [18, 64])]),
        ({"a": 110.0, "b": 120.0}, [("a", 8, 17, [8, 16, 17]), ("b", 18, 64, [18, 64])]),
        # Beyond it, a range cannot reach further either: 18 was measured. The lesser loss decides, whatever it is.
        ({"a": 130.0, "b": 120.0}, [("a", 8, 16, [8, 16]), ("b", 17, 64, [17, 18, 64])]),
        ({"a": 120.0, "b": 130.0}, [("a", 8, 17, [8, 16, 17]), ("b", 18, 64, [18, 64])]),
        ({"b": 120.0}, [("a", 8, 16, [8, 16]), ("b", 17, 64, [17, 18, 64])]),
        ({"a": 900.0}, [("a", 8, 17, [8, 16, 17]), ("b", 18, 64, [18, 64])]),
        # A neighbour slower than the baseline does not serve it.
        ({"a": 103.0, "b": 104.0, "aten": 103.5}, [("a", 8, 17, [8, 16, 17]), ("b", 18, 64, [18, 64])]),
        ({"a": 104.0, "b": 107.0, "aten": 103.5}, [("a", 8, 17, [8, 16, 17]), ("b", 18, 64, [18, 64])]),
        ({"a": 107.0, "b": 104.0, "aten": 106.0}, [("a", 8, 16, [8, 16]), ("b", 17, 64, [17, 18, 64])]),
    ],
)
def test_a_lone_size_joins_the_neighbour_that_loses_less(times, expected):
    assert served(("a", *A), ("c", size(17, c=100.0, **times)), ("b", *B)) == expected


def test_the_nearest_size_of_a_neighbour_joins_a_lone_one_where_that_loses_less():
    lone = size(17, a=150.0, b=150.0, c=100.0)
    left = [A[0], size(16, a=100.0, b=150.0, c=102.0)]
    right = [size(18, a=150.0, b=100.0, c=101.0), B[1]]
    assert served(("a", *A), ("c", lone), ("b", right[0], size(32, b=100.0), B[1])) == [
        ("a", 8, 16, [8, 16]),
        ("c", 17, 18, [17, 18]),
        ("b", 19, 64, [32, 64]),
    ]
    assert served(("a", A[0], size(12, a=100.0), left[1]), ("c", lone), ("b", *B))[1] == ("c", 13, 17, [16, 17])


@pytest.mark.parametrize(
    ("left", "lone", "right", "expected"),
    [
        # Nothing was measured at 18: the range reaches one further.
        ((8, 16), 17, (19, 64), [("a", 8, 16, [8, 16]), ("c", 17, 18, [17]), ("b", 19, 64, [19, 64])]),
        ((8, 16), 17, (32, 64), [("a", 8, 16, [8, 16]), ("c", 17, 18, [17]), ("b", 19, 64, [32, 64])]),
    ],
)
def test_a_lone_range_reaches_to_a_size_that_was_not_measured(left, lone, right, expected):
    sizes = [[size(m, a=100.0) for m in left], [size(lone, c=100.0)], [size(m, b=100.0) for m in right]]
    assert served(("a", *sizes[0]), ("c", *sizes[1]), ("b", *sizes[2])) == expected


@pytest.mark.parametrize(
    ("less", "expected"),
    [
        (62, [("a", 8, 62, [8, 62]), ("c", 63, 64, [64])]),
        (63, [("a", 8, 64, [8, 63, 64])]),  # 63 was measured: the neighbour serves 64, too
    ],
)
def test_the_last_range_begins_one_earlier_where_nothing_was_measured(less, expected):
    a = [size(8, a=100.0), size(less, a=100.0)]
    c = size(64, c=100.0, b=105.0)
    assert served(("a", *a), ("c", c)) == expected


def test_a_single_size_has_no_range():
    assert served(("a", size(16, a=100.0))) == []
    assert served(("a", size(2, a=100.0))) == []


def test_two_lone_sizes_of_one_choice_each_become_one_range():
    assert served(("a", size(16, a=100.0, b=104.0)), ("b", size(17, a=103.0, b=100.0))) == [("a", 16, 17, [16, 17])]
    assert served(("a", size(16, a=100.0, b=103.0)), ("b", size(17, a=104.0, b=100.0))) == [("b", 16, 17, [16, 17])]
