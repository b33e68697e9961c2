"""Rows for products whose strides or batch are open."""

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
    from gemmtune.engine.consumers.inductor.loader.hooks.open_sizes import as_in_table
    from gemmtune.engine.consumers.inductor.loader.loader_rows import ProductRow
    from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct
    from gemmtune.engine.records.epilogue.text import parse_epilogue

    def found(key, rows, epilogue="", is_open=True, **more):
        read = ReadEpilogue(parse_epilogue(epilogue), frozenset()) if epilogue else PLAIN
        table = {each: [ProductRow(8, 8, "triton::mm", {}, kernel)] for each, kernel in rows.items()}
        return as_in_table(LoweredProduct(8, 8, key, 256, read, is_open, **more), table).full_key

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


@pytest.fixture
def at_batch(as_in_table):
    """Return a function that gives the key of a product with an open batch, and the batches that its graph serves."""
    from torch._dynamo.source import ConstantSource
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch.fx import symbolic_trace
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    def found(hint, *batches, aot=False):
        shapes = ShapeEnv()
        batch = shapes.create_symbol(hint, ConstantSource("batch"), DimDynamic.DYNAMIC)
        graph = GraphLowering(symbolic_trace(lambda x: x), shape_env=shapes)
        graph.aot_mode = aot
        with V.set_graph_handler(graph):
            rows = {f"bmm:bfloat16:nn:{each}x32x64:none:static": "" for each in batches}
            key = as_in_table(f"bmm:bfloat16:nn:{hint}x32x64:none:static", rows, is_open=False, batch=batch)
            bounds = shapes.bound_sympy(batch)
        return int(key.split(":")[3].partition("x")[0]), int(bounds.lower), min(10_000, bounds.upper)

    return found


@pytest.mark.parametrize(
    ("hint", "served"),
    [(3, (4, 2, 8)), (8, (4, 2, 8)), (9, (16, 9, 32)), (64, (64, 33, 64)), (65, (65, 65, 10_000))],
)
def test_the_rows_of_the_nearest_batch_serve_up_to_the_largest(at_batch, hint, served):
    assert at_batch(hint, 4, 16, 64) == served


def test_a_graph_that_checks_no_guards_has_a_row_of_a_batch_alone_that_serves_all(at_batch):
    assert at_batch(8, 4, 16, aot=True) == (8, 2, 10_000)


def test_without_rows_the_batch_is_left_open(at_batch):
    assert at_batch(8) == (8, 2, 10_000)
