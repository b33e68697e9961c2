"""Attention and its gradients in float64, in parts that fit in memory. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import NamedTuple

import torch

from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.flex.masks import NONE
from gemmtune.spaces.flex.torch_functions import mask_function, score_function

_MOST_PAIRS = 2**25
"""Pairs of query and key per part, each with a few numbers of 8 bytes."""


class _Part(NamedTuple):
    """Queries of all heads that share keys, of one sequence."""

    batch: int
    heads: slice
    """Heads of the queries."""
    kv_head: int
    rows: slice
    """Queries of each head."""
    raw: torch.Tensor
    """Scaled products of queries and keys, shape (heads, rows, keys)."""
    scores: torch.Tensor
    """Scores that the softmax takes, -inf where the mask hides a key."""


def forward(
    attention: Flex, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, read: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output and the logarithm to base 2 of each softmax's sum, both in float32."""
    shape = (attention.batch, attention.heads, attention.queries)
    out = torch.zeros(*shape, attention.value_dim, dtype=torch.float32, device=q.device)
    lse = torch.zeros(shape, dtype=torch.float32, device=q.device)
    for part in _parts(attention, q, k, read):
        weights = part.scores.softmax(-1).nan_to_num(0.0)
        out[part.batch, part.heads, part.rows] = (weights @ v[part.batch, part.kv_head].double()).float()
        lse[part.batch, part.heads, part.rows] = (part.scores.logsumexp(-1) / log(2)).float()
    return out, lse


def gradients(
    attention: Flex,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    grad: torch.Tensor,
    delta: torch.Tensor,
    read: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of queries, keys and values in float32; autograd differentiates the score function.

    `q`, `k` and `v` have shape (batch, heads, positions, elements). `grad` is the output's gradient, `delta` the sum
    of the output times it per query, and `read` what the mask reads.
    """
    dq, dk, dv = (torch.zeros(each.shape, dtype=torch.float64, device=q.device) for each in (q, k, v))
    scale = attention.head_dim**-0.5
    for part in _parts(attention, q, k, read, differentiated=attention.score != NONE):
        rows, keys = (part.batch, part.heads, part.rows), (part.batch, part.kv_head)
        weights = part.scores.detach().softmax(-1).nan_to_num(0.0)
        of_out = grad[rows].double()
        of_scores = weights * (of_out @ v[keys].double().T - delta[rows].double()[..., None])
        if attention.score != NONE:
            (of_scores,) = torch.autograd.grad(part.scores, part.raw, of_scores)
        dq[rows] = of_scores @ k[keys].double() * scale
        dk[keys] += torch.einsum("hqk,hqd->kd", of_scores, q[rows].double()) * scale
        dv[keys] += torch.einsum("hqk,hqd->kd", weights, of_out)
    return dq.float(), dk.float(), dv.float()


def _parts(
    attention: Flex, q: torch.Tensor, k: torch.Tensor, read: Sequence[torch.Tensor], *, differentiated: bool = False
) -> Iterator[_Part]:
    a, shared = attention, attention.heads // attention.kv_heads
    step = max(1, _MOST_PAIRS // (shared * a.keys))
    mask, score = mask_function(a), score_function(a)
    key = torch.arange(a.keys, device=q.device)
    for batch in range(a.batch):
        of_batch = torch.tensor(batch, device=q.device)
        for kv_head in range(a.kv_heads):
            heads = slice(kv_head * shared, (kv_head + 1) * shared)
            head = torch.arange(heads.start, heads.stop, device=q.device)[:, None, None]
            for first in range(0, a.queries, step):
                rows = slice(first, min(first + step, a.queries))
                query = torch.arange(rows.start, rows.stop, device=q.device)[:, None]
                raw = q[batch, heads, rows].double() @ k[batch, kv_head].double().T * a.head_dim**-0.5
                raw.requires_grad_(differentiated)
                seen = mask(of_batch, head, query, key, *read)
                scores = score(raw, of_batch, head, query, key).masked_fill(~seen, float("-inf"))
                yield _Part(batch, heads, kv_head, rows, raw, scores)
