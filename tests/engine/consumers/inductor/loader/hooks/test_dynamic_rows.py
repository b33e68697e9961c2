"""Row of a graph with a dynamic m, and the guards that it needs, without compiling one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import sympy  # noqa: E402 (torch brings it)
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy  # noqa: E402

from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.hooks import dynamic_rows  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.loader_rows import ProductRow  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct  # noqa: E402

S, T = sympy.symbols("s t", integer=True, positive=True)
NO_END = 2**63 - 1
ROWS = (
    ProductRow(2, 16, "triton::mm", {}),
    ProductRow(17, 64, "triton::mm", {}),
    ProductRow(129, 256, "aten::mm", {}),
)


def lowered(monkeypatch, m, hint, least=0, most=NO_END, guarded=(), *, holds=True, frozen=False, aot=False):
    """Return the range of the row that serves all m of a graph, and the guards that are set."""
    set_guards = []
    shapes = SimpleNamespace(
        bound_sympy=lambda size: bound_sympy(size, dict.fromkeys((S, T), ValueRanges(least, most))),
        frozen=frozen,
        guards=[SimpleNamespace(expr=sympy.Ge(symbol, 5)) for symbol in guarded],
    )
    sizevars = SimpleNamespace(shape_env=shapes, evaluate_expr=lambda guard: set_guards.append(guard) or holds)
    monkeypatch.setattr(dynamic_rows, "V", SimpleNamespace(graph=SimpleNamespace(sizevars=sizevars, aot_mode=aot)))
    row = dynamic_rows.dynamic_row(LoweredProduct(m, hint, "mm", 64, PLAIN), ROWS)
    return row and (row.first, row.last), set_guards


@pytest.mark.parametrize(
    ("m", "hint", "row", "guards"),
    [
        (S, 5, (2, 16), [S <= 16]),
        (S, 16, (2, 16), [S <= 16]),
        (S, 17, (17, 64), [S >= 17, S <= 64]),
        (S, 64, (17, 64), [S >= 17, S <= 64]),
        (S, 65, None, [S >= 65]),
        (S, 129, (129, 256), [S >= 65]),  # ATen serves its range under the guards of the others
        (S, 256, (129, 256), [S >= 65]),
        (S, 257, None, [S >= 65]),
        (8 * S, 16, (17, 64), [S <= 8]),  # s = 2 is alone, and joins the next range
        (8 * S, 72, None, [S >= 9]),
        (4 * S, 16, (2, 16), [S <= 4]),
        (4 * S, 20, (17, 64), [S >= 5, S <= 16]),
        (4 * S + 1, 13, (2, 16), [S <= 3]),
        (4 * S + 1, 17, (17, 64), [S >= 4, S <= 15]),
        (4 * S + 2, 14, (2, 16), [S <= 3]),
        (S * T, 20, (17, 64), [S * T >= 17, S * T <= 64]),
        (S**2, 25, (17, 64), [S**2 >= 17, S**2 <= 64]),
    ],
)
def test_the_row_of_the_first_m_serves_within_guards_on_the_symbol(monkeypatch, m, hint, row, guards):
    assert lowered(monkeypatch, m, hint, least=2) == (row, guards)


def test_a_guard_that_does_not_hold_leaves_the_product_without_that_row(monkeypatch):
    assert lowered(monkeypatch, S, 20, holds=False)[0] is None


@pytest.mark.parametrize("how", [{"frozen": True}, {"aot": True}, {"most": 1000}])
@pytest.mark.parametrize(
    ("least", "most", "row"),
    [(2, 16, (2, 16)), (17, 64, (17, 64)), (17, 65, None), (16, 64, None), (1, 16, None), (130, 256, (129, 256))],
)
def test_where_m_may_not_be_guarded_a_row_serves_only_all_of_it(monkeypatch, how, least, most, row):
    assert lowered(monkeypatch, S, most, least=least, **{**how, "most": most}) == (row, [])


def test_a_range_that_ends_is_cut_further_only_where_guards_cut_it_already(monkeypatch):
    assert lowered(monkeypatch, S, 20, 2, 1000) == (None, [])
    assert lowered(monkeypatch, S, 20, 2, 1000, [T]) == (None, [])
    assert lowered(monkeypatch, S, 20, 2, 1000, [S]) == ((17, 64), [S >= 17, S <= 64])
    assert lowered(monkeypatch, S, 20, 17, 64, [S]) == ((17, 64), [])
    assert lowered(monkeypatch, 64 - S, 20, 2, guarded=[S]) == ((17, 64), [64 - S >= 17])
