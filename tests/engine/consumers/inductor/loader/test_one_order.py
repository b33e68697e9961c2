"""Rows of a batch-invariant table serve every m, in graphs of both kinds."""

from gemmtune.engine.consumers.inductor.loader.loader_rows import ProductRow
from gemmtune.engine.consumers.inductor.loader.one_order import every_m, unstrided

END = 2**63 - 1
STATIC, DYNAMIC = (f"mm:bfloat16:nt:1x4096x4096:none:{kind}" for kind in ("static", "dynamic"))


def row(first, last):
    return ProductRow(first, last, "triton::mm", {"BLOCK_K": 64, "BLOCK_M": last})


def spread(rows):
    return {key: [(its.first, its.last, its.kwargs["BLOCK_M"]) for its in rows] for key, rows in every_m(rows).items()}


def test_ranges_of_a_dynamic_m_serve_both_kinds_from_the_first_m_to_any():
    whole = [(0, 16, 16), (17, 512, 512), (513, END, 4096)]
    assert spread({DYNAMIC: [row(2, 16), row(17, 512), row(513, 4096)]}) == {DYNAMIC: whole, STATIC: whole}


def test_a_row_for_one_m_stays_beside_the_ranges():
    found = spread({STATIC: [row(1, 1)], DYNAMIC: [row(2, 16), row(17, 64)]})
    ranges = [(0, 16, 16), (17, END, 64)]
    assert found == {STATIC: [(1, 1, 1), *ranges], DYNAMIC: ranges}


def test_rows_without_ranges_serve_the_m_below_them():
    ranges = [(0, 16, 16), (17, 128, 128), (129, END, 512)]
    found = spread({STATIC: [row(16, 16), row(128, 128), row(512, 512)]})
    assert found == {STATIC: [(16, 16, 16), (128, 128, 128), (512, 512, 512), *ranges], DYNAMIC: ranges}


def test_each_product_is_spread_by_itself():
    other = DYNAMIC.replace("4096x4096", "512x4096")
    found = spread({DYNAMIC: [row(2, 64)], other: [row(2, 8)]})
    assert found[DYNAMIC] == [(0, END, 64)]
    assert found[other] == [(0, END, 8)]


def test_one_row_of_a_product_has_no_stride_and_a_bias_that_is_a_matrix_too():
    biased, strided, dense = (
        f"{op}:bfloat16:nt:1x96x256:{bias}:static{stated}"
        for op, bias, stated in (
            ("addmm", "vector", ":lda=512:ldb=300"),
            ("mm", "none", ":lda=512"),
            ("mm", "none", ""),
        )
    )
    found = every_m({biased: [row(2, 64)], strided: [row(2, 16), row(17, 64)]})
    asked = biased.replace(":lda=512", "").replace("vector", "matrix")
    assert [(its.first, its.last) for its in found[unstrided(asked, 1)]] == [(1, 1)]
    assert every_m({dense: [row(2, 64)], strided: [row(2, 16)]})[dense] == [
        row(0, END)._replace(kwargs=row(2, 64).kwargs)
    ]
    assert unstrided(f"{dense}:silu.mul(matrix)", 1) == unstrided(f"{dense}:silu.mul(row)", 1) != dense


def test_rows_of_one_stride_serve_every_other_at_every_m():
    strided = "bmm:bfloat16:nt:8x96x256:none:static:lda=512:batch_stride_a=900"
    dense = strided.partition(":lda")[0]
    found = every_m({strided: [row(2, 16), row(17, 64)]})
    assert {key.replace("dynamic", "static") for key in found} == {strided, dense}
    assert {tuple((its.first, its.last) for its in rows) for rows in found.values()} == {((0, 16), (17, END))}
    for asked in (strided.replace("512", "768"), dense, f"{dense}:batch_stride_a=0"):
        assert [unstrided(asked, m) for m in (1, 2)] == [dense] * 2
    assert unstrided(f"{dense}:ldb=300", 2) == f"{dense}:ldb=300"
