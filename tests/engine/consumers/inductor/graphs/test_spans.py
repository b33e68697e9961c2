"""Bounds of an expression of open sizes are its least and its greatest value."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

import sympy  # noqa: E402 (torch needs it)
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod  # noqa: E402 (torch is there)
from torch.utils._sympy.value_ranges import ValueRanges  # noqa: E402 (torch is there)

import gemmtune as gt  # noqa: E402 (as above)
from gemmtune.engine.consumers.inductor.graphs.spans import bounds_of  # noqa: E402 (as above)

M, N = sympy.symbols("m n", integer=True, positive=True)


@pytest.mark.parametrize(
    "expression",
    [
        M,
        128 * M + 3,
        M - 3 * FloorDiv(M + 3, 4),
        M - 2 * FloorDiv(M, 3),
        Max(M - 64, 8) - FloorDiv(M, 2),
        Min(M, 40) * 2 - M,
        M - Mod(M, 16),
        M * N - M,
        FloorDiv(M * N, N) + N - M,
    ],
)
def test_bounds_are_the_least_and_the_greatest_value(expression):
    values = [int(expression.subs({M: m, N: n})) for m in range(8, 97) for n in range(2, 6)]
    assert bounds_of(expression, {M: ValueRanges(8, 96), N: ValueRanges(2, 5)}) == (min(values), max(values))


@pytest.mark.slow(10)
@pytest.mark.filterwarnings("ignore:::torch")
def test_the_last_of_four_chunks_has_a_fourth_of_the_rows():
    chunks = lambda x, w: tuple(each @ w for each in x.chunk(4))  # noqa: E731 (a function)
    (product,) = gt.capture(chunks, "bf16[m:8..4096,64]", "bf16[64,32]", device="H200").products
    assert (product.count, product.first, product.last) == (4, 2, 1024)
