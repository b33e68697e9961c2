"""The reference of attention and its gradients, against torch's own attention on the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.nn.attention.flex_attention import flex_attention  # noqa: E402 (torch is there)

from gemmtune.engine.records.flex.attention import Flex  # noqa: E402
from gemmtune.spaces.flex import reference  # noqa: E402
from gemmtune.spaces.flex.kind import block_mask, tensors_read  # noqa: E402
from gemmtune.spaces.flex.torch_functions import mask_function, score_function  # noqa: E402

CASES = (
    "flex:backward:b2:h4:kvh2:s70:d16:mask=window(20):score=softcap(2)",
    "flex:backward:b1:h2:s70:d16:dv32:mask=causal_document:documents=30.40",
    "flex:backward:b1:h4:kvh1:q9:kv70:d16",
    "flex:backward:b2:h2:q9:kv70:d16:mask=le(kv,add(q,t0))",
    "flex:backward:b2:h2:s70:d16:mask=and(at(t0,b,q,kv),lt(kv,at(t1,b))):seen=40.30:lengths=40.100:block=16",
    "flex:backward:b2:h4:s70:d16:mask=and(eq(at(t0,b,kv),at(t0,b,q)),le(kv,add(h,q))):block=32",
)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("text", CASES)
def test_outputs_and_gradients_are_those_of_torch(text):
    attention = Flex.parse(text)
    a, make = attention, torch.Generator().manual_seed(0)
    sizes = ((a.heads, a.queries, a.head_dim), (a.kv_heads, a.keys, a.head_dim), (a.kv_heads, a.keys, a.value_dim))
    q, k, v = (torch.randn(a.batch, *size, generator=make, dtype=torch.float64) for size in sizes)
    grad = torch.randn(a.batch, a.heads, a.queries, a.value_dim, generator=make, dtype=torch.float64)
    read = tuple(tensors_read(a).values())
    mask = block_mask(a, torch.device("cpu"), read)
    of_torch = flex_attention(q, k, v, score_mod=score_function(a), block_mask=mask, enable_gqa=True)
    found, lse = reference.forward(a, q, k, v, read)
    torch.testing.assert_close(found.double(), of_torch, rtol=1e-5, atol=1e-5)
    assert lse.isfinite().all()
    inputs = [each.clone().requires_grad_() for each in (q, k, v)]
    expected = torch.autograd.grad(plain(a, inputs, read), inputs, grad)
    delta = (found * grad).sum(-1)
    for one, other in zip(reference.gradients(a, q, k, v, grad, delta, read), expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


def plain(a, inputs, read):
    """Return attention by whole matrices, which autograd differentiates."""
    q, *others = inputs
    k, v = (each.repeat_interleave(a.heads // a.kv_heads, 1) for each in others)
    index = (torch.arange(a.queries)[:, None], torch.arange(a.keys))
    batch, head = torch.arange(a.batch)[:, None, None, None], torch.arange(a.heads)[:, None, None]
    scores = score_function(a)(q @ k.mT * a.head_dim**-0.5, batch, head, *index)
    seen = mask_function(a)(batch, head, *index, *read)
    return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v
