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
    "some heads in full": lambda b, h, q, k: torch.where(h < 2, q >= k, torch.full((), True)),
    "a number of conditions": lambda b, h, q, k: ((q >= k).to(torch.int32) & (k < 9).to(torch.int32)).to(torch.bool),
    "an inverted number": lambda b, h, q, k: ~(q >= k).to(torch.int32) + k < 7,
    "either, not both": lambda b, h, q, k: (q >= k) ^ (k % 2 == 0),
    "either": lambda b, h, q, k: (q >= k) + (k < 3),
    "shifted": lambda b, h, q, k: (q >> 2) == (k >> 2),
    "a clamped window": lambda b, h, q, k: (k >= torch.clamp(q - 5, min=0, max=9)) & (k <= torch.minimum(q, 20 - k)),
    "powers": lambda b, h, q, k: torch.exp2((k - q).float()) + 2.0 ** (k - q) > torch.log1p(k.float()),
    "distances": lambda b, h, q, k: torch.where(h < 2, (q - k) // 3 == -1, (k - q) % 5 == 2),
}
SCORES = {
    "hidden": lambda s, b, h, q, k: torch.where(q >= k, s, torch.full((), -float("inf"))),
    "a fraction": lambda s, b, h, q, k: torch.where(q >= k, s, torch.full((), 0.25)),
    "alibi": lambda s, b, h, q, k: s + torch.exp2(-((h + 1) * 8.0 / 4)) * (k - q),
    "a clamped score": lambda s, b, h, q, k: torch.maximum(s.clamp(-1, 1), s * 0.5) * torch.sqrt(q + 1.0),
    "a factor of 0 or 1": lambda s, b, h, q, k: s * (q >= k).to(s.dtype),
}


def traced(function, names, tracing_mode="fake"):
    index = [torch.zeros((), dtype=torch.float32 if name == "s" else torch.int32) for name in names]
    return make_fx(function, decomposition_table=select_decomp_table(), tracing_mode=tracing_mode)(*index)


def read(function, names):
    return read_function(traced(function, names), names)


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


@pytest.mark.parametrize("step", [lambda s: s - s * 2, lambda s: s * s])
def test_a_function_that_uses_results_again_and_again_is_refused_at_once(step):
    def growing(s, b, h, q, k):
        for _ in range(40):
            s = step(s)
        return s

    with pytest.raises(ValueError, match="more than 256 operations"):
        read(growing, NAMES[:5])


def test_a_number_that_is_open_has_no_function():
    """As torch makes of a mask that computes with an open length, `q + length // 2`."""
    graph = traced(lambda b, h, q, k, length: q + length.sum() >= k, (*NAMES[1:5], "t0"))
    length = next(node for node in graph.graph.nodes if node.target is torch.ops.aten.sum.default)
    length.meta["val"] = 256
    with pytest.raises(ValueError, match="reads a number that is open"):
        read_function(graph, NAMES[1:6])
