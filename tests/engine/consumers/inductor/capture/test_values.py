"""A capture without the GPU goes on where a model reads what follows from sizes and integers, and refuses the rest."""

from __future__ import annotations

import random

import numpy as np
import pytest

import gemmtune as gt

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

pytestmark = [pytest.mark.slow(30), pytest.mark.filterwarnings("ignore:::torch")]  # torch warns of itself

MASK, IDS, ROWS, WEIGHT = "bool[4,16]", "int64[4,16]%50", "bf16[4,16,64]", "bf16[64,128]"


def rows_by_count(call, *inputs):
    found = gt.capture(call, *inputs, device="H200")
    return {product.problem.m: product.count for product in found.products}


def branch(mask, x, w):
    return x @ w if mask.all().item() else (x @ w) @ w.T


def selected(mask, x, w):
    mask = mask & (torch.arange(16, device=mask.device) < 5)
    return x[mask] @ w


def picked(mask, x, w):
    mask = (mask & (torch.arange(16, device=mask.device) < 5))[..., None].expand(x.shape)
    return x.masked_select(mask).view(-1, 64) @ w


def scattered(mask, x, w):
    rows = torch.zeros(64, 64, dtype=x.dtype, device=x.device)
    rows[mask.flatten()] = x.reshape(-1, 64)
    return rows @ w


def counted(ids, x, w):
    lengths = (ids < 50).sum(-1)
    return x[:, : int(lengths.max()) // 2].reshape(-1, 64) @ w


def repeated(ids, x, w):
    return x[0].repeat_interleave((ids[0] < 50).long() * 3, 0) @ w


def written(_mask, x, w):
    sizes = torch.empty(2, 2, dtype=torch.long, device=x.device)
    for row in range(2):
        sizes[row, 0], sizes[row, 1] = 3, row + 1
    return x[0, : int((sizes[:, 0] * sizes[:, 1]).sum())] @ w


def changed(mask, x, w):
    view = mask.view(-1)
    view[3:] = False
    return x[mask] @ w


@pytest.mark.parametrize(
    ("call", "first", "rows"),
    [
        (branch, MASK, 64),
        (selected, MASK, 20),
        (picked, MASK, 20),
        (scattered, MASK, 64),
        (counted, IDS, 32),
        (repeated, IDS, 48),
        (written, MASK, 9),
        (changed, MASK, 3),
    ],
)
def test_what_follows_from_integers_is_known(call, first, rows):
    assert rows_by_count(call, first, ROWS, WEIGHT) == {rows: 1}


def finite(_mask, x, w):
    y = x @ w
    if not torch.isfinite(y).all() or torch.isinf(y).any():
        y = y.clamp(-1, 1) @ w.T
    return y


def test_unknown_numbers_are_taken_for_finite_and_each_read_is_named():
    found = gt.capture(finite, MASK, ROWS, WEIGHT, device="H200")
    assert [(product.problem.m, product.count) for product in found.products] == [(64, 1)]
    assert {(each.operation, each.count) for each in found.unseen} == {("whether numbers are finite", 2)}
    assert all(each.reason.endswith("and captured as if all are") for each in found.unseen)


def in_bins(_mask, x, w):
    rows = torch.bincount((x @ w).argmax(-1), minlength=8)
    return rows.to(x.dtype).outer(rows) @ w[:8]


def test_counts_of_unknown_integers_have_the_least_number_of_bins_and_are_named():
    found = gt.capture(in_bins, MASK, ROWS, WEIGHT, device="H200")
    assert [product.problem.m for product in found.products] == [64, 8]
    line = in_bins.__code__.co_firstlineno + 1
    (work,) = found.unseen
    assert f"test_values.py, line {line}, and captured as minlength" in work.reason


def of_weights(mask, x, w):
    mask[(x @ w).sum(-1) > 0] = False  # from here on the mask is the weights'
    return x[mask] @ w


def of_a_view(mask, x, w):
    mask.view(-1).copy_((x.reshape(-1, 64) @ w)[:, 0] > 0)
    return x[mask] @ w


@pytest.mark.parametrize("call", [of_weights, of_a_view])
def test_what_depends_on_weights_is_refused(call):
    with pytest.raises(gt.UsageError, match="reads values of tensors"):
        gt.capture(call, MASK, ROWS, WEIGHT, device="H200")


class Windowed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.tensor([3, 5]))
        self.weight = torch.nn.Parameter(torch.empty(64, 128))

    def forward(self, x):
        return x[: int(self.window.sum())] @ self.weight


def test_a_small_buffer_keeps_its_values():
    assert rows_by_count(Windowed(), "fp32[16,64]") == {8: 1}


@pytest.mark.parametrize(("kind", "gates"), [(torch.nn.GRUCell, 3), (torch.nn.LSTMCell, 4)])
def test_products_of_a_recurrent_cell_are_captured(kind, gates):
    found = gt.capture(kind(64, 128).bfloat16(), "bf16[16,64]", device="H200")
    sizes = {(each.problem.n, each.problem.k): each.count for each in found.products}
    assert sizes == {(gates * 128, 64): 1, (gates * 128, 128): 1}


def thinned(x, w):
    kept = x @ w
    return kept * torch.rand(()).item()


def test_a_number_that_chance_draws_is_named_with_its_line_and_inputs_are_none():
    found = gt.capture(thinned, "bf16[16,64]", WEIGHT, device="H200")
    line = thinned.__code__.co_firstlineno + 2
    [drawn] = [each for each in found.unseen if each.operation == "a number drawn at random"]
    assert drawn.reason.endswith(f"test_values.py, line {line}, and captured as one draw")
    assert drawn.count == 1
    assert not gt.capture(counted, IDS, ROWS, WEIGHT, device="H200").unseen


def some_rows(x, w):
    return x[: 2 * random.randint(2, 6)] @ w if np.random.rand() < 2 else x


def masked(x, w):
    kept = torch.rand(16) < 0.5
    return x[kept.to(x.device)] @ w


@pytest.mark.parametrize(("call", "draws"), [(some_rows, 2), (masked, 1)])
def test_numbers_of_python_numpy_and_torch_that_decide_sizes_are_named_by_line(call, draws):
    found = gt.capture(call, "bf16[16,64]", WEIGHT, device="H200")
    [drawn] = [each for each in found.unseen if each.operation == "a number drawn at random"]
    line = call.__code__.co_firstlineno + (1 if call is some_rows else 2)
    assert drawn.reason.endswith(f"test_values.py, line {line}, and captured as one draw")
    assert drawn.count == draws


@torch.library.custom_op("gemmtune_values::fill", mutates_args=("rows",))
def fill(rows: torch.Tensor) -> None:
    rows.fill_(8)


fill.register_fake(lambda rows: None)


@torch.compiler.disable
def written_by_an_operator(how, rows):
    fill(rows) if how == "custom" else torch._foreach_add_([rows], 8)
    return rows


@pytest.mark.parametrize("how", ["custom", "foreach"])
def test_what_an_operator_without_a_result_writes_is_no_longer_known(how):
    def call(x, w):
        return x[: int(written_by_an_operator(how, torch.zeros(1, dtype=torch.int64, device=x.device)))] @ w

    with pytest.raises(gt.UsageError, match="it reads values of tensors"):
        gt.capture(call, "bf16[64,64]", "bf16[64,64]", device="H200")
