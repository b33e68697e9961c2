"""Rows of views for products whose strides are open."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow(5)
HEAD = "mm:bfloat16:nt:1x96x256:none:static"
STORED = "to(fp32)"


@pytest.fixture(scope="module")
def as_in_table():
    """Return a function that gives the key of a product as the rows of a table have it, by their keys and kernels."""
    pytest.importorskip("torch")
    from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN, ReadEpilogue
    from gemmtune.engine.consumers.inductor.loader.hooks.open_strides import as_in_table
    from gemmtune.engine.consumers.inductor.loader.loader_rows import ProductRow
    from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct
    from gemmtune.engine.records.epilogue.text import parse_epilogue

    def found(key, rows, epilogue="", is_open=True):
        read = ReadEpilogue(parse_epilogue(epilogue), frozenset()) if epilogue else PLAIN
        table = {each: [ProductRow(8, 8, "triton::mm", {}, kernel)] for each, kernel in rows.items()}
        return as_in_table(LoweredProduct(8, 8, key, 256, read, is_open), table).full_key

    return found


@pytest.mark.parametrize(
    ("seen", "rows", "taken"),
    [
        ("lda=8192", ("lda=4096", "lda=65536"), "lda=4096"),
        ("lda=60000", ("lda=4096", "lda=65536"), "lda=65536"),
        ("lda=8192", ("ldb=4096", "lda=4096:ldb=512"), "lda=8192"),  # other operands are views
        (
            "lda=8192:batch_stride_b=0",
            ("lda=4096:batch_stride_b=512", "lda=512:batch_stride_b=0"),
            "lda=512:batch_stride_b=0",
        ),
    ],
)
def test_the_row_with_the_nearest_strides_serves(as_in_table, seen, rows, taken):
    assert as_in_table(f"{HEAD}:{seen}", {f"{HEAD}:{each}": "" for each in rows}) == f"{HEAD}:{taken}"


def test_a_row_with_the_epilogue_comes_before_a_nearer_one_without(as_in_table):
    rows = {f"{HEAD}:lda=8192": "", f"{HEAD}:lda=4096:{STORED}": ""}
    assert as_in_table(f"{HEAD}:lda=8192", rows, STORED) == f"{HEAD}:lda=4096:{STORED}"
    assert as_in_table(f"{HEAD}:lda=9000", {f"{HEAD}:lda=8192": ""}, STORED) == f"{HEAD}:lda=8192:{STORED}"


def test_a_binary_serves_the_strides_alone_that_it_was_compiled_for(as_in_table):
    rows = {f"{HEAD}:lda=4096": "a_kernel"}
    assert as_in_table(f"{HEAD}:lda=8192", rows) == f"{HEAD}:lda=8192"


def test_fixed_strides_stay_as_they_are(as_in_table):
    assert as_in_table(f"{HEAD}:lda=8192", {f"{HEAD}:lda=4096": ""}, is_open=False) == f"{HEAD}:lda=8192"
