from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.search.encoding import Encoding

PARAMS = (
    Param("tile", (16, 32, 64, 128)),
    Param("warps", (4,)),
    Param("kind", ("n", "t", "c"), ordered=False),
    Param("stages", (1, 2, 3)),
)
FEASIBLE = tuple(
    Config({"tile": tile, "warps": 4, "kind": kind, "stages": stages})
    for tile, kind, stages in product((16, 64, 128), ("n", "t", "c"), (1, 2, 3))
    if (tile, kind) != (64, "t")
)


def config(tile, kind, stages):
    return Config({"tile": tile, "warps": 4, "kind": kind, "stages": stages})


@pytest.fixture
def encoding():
    return Encoding(PARAMS, FEASIBLE)


def test_values_that_never_occur_have_no_level_and_single_values_no_axis(encoding):
    assert encoding.names == ("tile", "kind", "stages")
    assert encoding.sizes == (3, 3, 3)
    assert encoding.ordered.tolist() == [True, False, True]
    assert encoding.points[encoding.position(config(128, "t", 3))].tolist() == [2, 1, 2]


def test_find_is_the_inverse_of_points_and_none_for_infeasible_points(encoding):
    assert [encoding.find(point) for point in encoding.points] == list(range(len(FEASIBLE)))
    assert encoding.find(np.array([1, 1, 0], np.int16)) is None


def test_find_all_is_find_of_each_point_of_whatever_integers_and_order_in_memory(encoding):
    every = np.array(list(np.ndindex(encoding.sizes)))
    found = [encoding.find(point) for point in every]
    assert None in found
    assert sorted(position for position in found if position is not None) == list(range(len(FEASIBLE)))
    assert encoding.find_all(every) == found
    assert encoding.find_all(np.asfortranarray(every, np.int16)) == found
    assert encoding.find_all(every[:0]) == []


def test_steps_count_levels_where_ordered_and_changes_where_not(encoding):
    origin = encoding.points[encoding.position(config(16, "n", 1))]
    there = [encoding.position(config(128, "c", 3)), encoding.position(config(16, "c", 1))]
    assert encoding.steps(origin, there).tolist() == [5, 1]


def test_nearest_is_the_point_itself_while_it_is_free(encoding):
    free = np.ones(len(FEASIBLE), bool)
    assert encoding.nearest(encoding.points[7], free) == 7


def test_nearest_of_several_is_the_first_of_the_set(encoding):
    free = np.ones(len(FEASIBLE), bool)
    # (64, t, 2) is infeasible; one step away are (16, t, 2), (64, n, 2), (64, c, 2) and (128, t, 2).
    off = np.array([1, 1, 1], np.int16)
    order = []
    for _ in range(4):
        position = encoding.nearest(off, free)
        order.append(FEASIBLE[position])
        free[position] = False
    assert order == [config(16, "t", 2), config(64, "n", 2), config(64, "c", 2), config(128, "t", 2)]


def test_nearest_of_nothing_is_an_error(encoding):
    with pytest.raises(ValueError, match="no config is left"):
        encoding.nearest(encoding.points[0], np.zeros(len(FEASIBLE), bool))


def test_neighbours_are_one_level_or_one_category_away_and_feasible(encoding):
    around = encoding.neighbours(encoding.position(config(64, "n", 2)))
    assert [FEASIBLE[i] for i in around] == [
        config(16, "n", 2),
        config(64, "n", 1),
        config(64, "n", 3),
        config(64, "c", 2),
        config(128, "n", 2),
    ]


def test_an_infeasible_config_has_no_position(encoding):
    with pytest.raises(KeyError):
        encoding.position(config(64, "t", 1))


def test_one_config_has_no_axes_and_is_always_the_nearest():
    encoding = Encoding(PARAMS, FEASIBLE[:1])
    assert encoding.sizes == ()
    assert encoding.find(np.empty(0, np.int16)) == 0
    assert encoding.find_all(np.empty((2, 0), np.int16)) == [0, 0]
    assert encoding.nearest(np.empty(0, np.int16), np.ones(1, bool)) == 0
    assert encoding.neighbours(0).tolist() == []


def test_each_of_eighteen_thousand_configs_of_fifteen_params_is_nearest_to_itself_while_free():
    rng = np.random.default_rng(0)
    levels = np.unique(rng.integers(0, 6, (18_000, 15)), axis=0)
    params = tuple(Param(f"p{i}", tuple(range(6))) for i in range(15))
    encoding = Encoding(params, [Config({f"p{i}": int(value) for i, value in enumerate(row)}) for row in levels])
    free = np.ones(len(levels), bool)
    for position in range(20):
        assert encoding.nearest(encoding.points[position], free) == position
        free[position] = False
        assert encoding.nearest(encoding.points[position], free) != position
