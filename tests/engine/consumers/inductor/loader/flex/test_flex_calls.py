"""Functions of mask and score as a graph has them, against what torch computes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch._inductor.decomposition import select_decomp_table  # noqa: E402 (torch is there)
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402 (as above)

from gemmtune.engine.consumers.inductor.loader.flex.flex_calls import read_function  # noqa: E402
from gemmtune.engine.records.flex.attention import Flex  # noqa: E402
from gemmtune.engine.records.flex.functions import NAMES, text_of, truth  # noqa: E402
from gemmtune.spaces.flex.torch_functions import mask_function, score_function  # noqa: E402

SIZES = 2, 4, 23, 29
INDEX = tuple(torch.arange(size, dtype=torch.int32).view(-1, *[1] * (3 - at)) for at, size in enumerate(SIZES))
MASKS = {
    "a bit of an index": lambda b, h, q, k: ((k & 1) == 0) & (q >= k),
    "bits of two indices": lambda b, h, q, k: (k & 1) & (q & 1) == 1,
    "an inverted index": lambda b, h, q, k: (~k) + q >= 0,
    "not a number": lambda b, h, q, k: torch.logical_not(k % 2) & (q >= k),
    "one of two numbers": lambda b, h, q, k: torch.logical_or(k % 3, (q - k) % 2),
    "a number": lambda b, h, q, k: (k % 3).to(torch.bool),
    "a sum of conditions": lambda b, h, q, k: (q >= k).to(torch.int32) + (k < 4).to(torch.int32) == 1,
    "a product of conditions": lambda b, h, q, k: (q >= k) * (q - k < 5),
    "truth": lambda b, h, q, k: torch.full((), True) & (q >= k),
    "half of a query": lambda b, h, q, k: torch.full((), 0.5) * q >= k,
    "distances": lambda b, h, q, k: torch.where(h < 2, (q - k) // 3 == -1, (k - q) % 5 == 2),
}
SCORES = {
    "hidden": lambda s, b, h, q, k: torch.where(q >= k, s, torch.full((), -float("inf"))),
    "a fraction": lambda s, b, h, q, k: torch.where(q >= k, s, torch.full((), 0.25)),
    "a factor of 0 or 1": lambda s, b, h, q, k: s * (q >= k).to(s.dtype),
}


def read(function, names):
    index = [torch.zeros((), dtype=torch.float32 if name == "s" else torch.int32) for name in names]
    traced = make_fx(function, decomposition_table=select_decomp_table(), tracing_mode="fake")(*index)
    return read_function(traced, names)


def attention(field, function):
    batch, heads, queries, keys = SIZES
    return Flex.parse(f"flex:forward:b{batch}:h{heads}:q{queries}:kv{keys}:d16:{field}={text_of(function)}")


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_sees_what_its_graph_sees(name):
    found = attention("mask", truth(read(MASKS[name], NAMES[1:5])))
    seen = MASKS[name](*INDEX).bool().expand(SIZES)
    assert 0 < seen.sum() < seen.numel()
    assert torch.equal(mask_function(found)(*INDEX).bool().expand(SIZES), seen)


@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_that_of_its_graph(name):
    found, scores = attention("score", read(SCORES[name], NAMES[:5])), torch.randn(SIZES)
    assert torch.equal(score_function(found)(scores, *INDEX), SCORES[name](scores, *INDEX))


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda b, h, q, k: (q / 8).to(torch.int32) == (k / 8).to(torch.int32), NAMES[1:5]),
        (lambda s, b, h, q, k: s.to(torch.int32).to(s.dtype), NAMES[:5]),
        (lambda b, h, q, k, bits: (bits & 1) == 0, NAMES[1:6]),
    ],
)
def test_a_function_that_no_text_states_is_none(function, names):
    with pytest.raises(ValueError, match=r"cuts a number off to int32|reads bits of a tensor"):
        read(function, names)
