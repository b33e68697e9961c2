"""Tiles of groups, and how they fill a GPU."""

from __future__ import annotations

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.spaces.grouped.tiling import Tiling

H200 = catalogue.device("H200")


def test_groups_of_rows_have_tiles_for_the_rows_that_are_there():
    product = Grouped.parse("grouped:rows:m64:g4:n256:k128:bf16:nt:routing=counts(10.0.50.4)")
    tiling = Tiling.of(product, (32, 64), 64)
    assert (tiling.rows, tiling.columns, tiling.depths) == ((1, 0, 2, 1), 4, (2, 2, 2, 2))
    assert (tiling.clusters, tiling.padding) == (16, 2.0)
    features = tiling.features(H200)
    assert (features["waves"], features["padding"]) == (0.0, 1.0)
    assert features["tiles of the largest group"] == 3.0


def test_groups_of_k_have_all_tiles_and_steps_for_their_share():
    product = Grouped.parse("grouped:inner:m64:g4:n256:k64:bf16:tn:routing=counts(0.64.0.0)")
    tiling = Tiling.of(product, (64, 128), 64, (1, 2))
    assert (tiling.rows, tiling.columns, tiling.depths) == ((1, 1, 1, 1), 1, (0, 1, 0, 0))
    assert tiling.padding == 1.0
    assert tiling.waves(H200) == 1


def test_a_group_with_everything_has_fewer_tiles_than_many_groups_with_a_row_each():
    one, many = (
        Tiling.of(Grouped.parse(f"grouped:rows:m64:g64:n1024:k128:bf16:nt:routing=counts({counts})"), (64, 128), 64)
        for counts in ("64" + ".0" * 63, "1" + ".1" * 63)
    )
    assert (one.clusters, many.clusters) == (8, 512)
    assert one.waves(H200) < many.waves(H200)
