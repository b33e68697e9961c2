"""Calls of flex_attention, for flex_probe.py. Nothing runs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from corpus_modules import INT32, Case, T
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention, noop_mask

CASES: dict[str, Case] = {}
S, D = 512, 64


def causal(b, h, q, kv):
    return q >= kv


def recent(b, h, q, kv):
    return q - kv < 100


def softcap(s, b, h, q, kv):
    return 20 * torch.tanh(s / 20)


def lopsided(s, b, h, q, kv):
    return s + torch.erf(s)


def attended(q, k, v, mask=None, score=None, options=None, size=128):
    sizes = q.shape[2], k.shape[2]
    blocks = None if mask is None else create_block_mask(mask, None, None, *sizes, device="cuda", BLOCK_SIZE=size)
    return flex_attention(q, k, v, score, blocks, enable_gqa=True, kernel_options=options)


def documents(q, k, v, ids):
    return attended(q, k, v, lambda b, h, i, j: (i >= j) & (ids[i] == ids[j]))


def padded(q, k, v, seen, lengths):
    return attended(q, k, v, lambda b, h, i, j: seen[b, i, j] & (j < lengths[b]))


def tensors(queries=S, heads=4, keys=S, grad=False, dynamic=()):
    of_keys = T((1, 2, keys, D), grad=grad, dynamic=dynamic)
    return T((1, heads, queries, D), grad=grad, dynamic=dynamic), of_keys, of_keys


def of_itself(x):
    q = x.transpose(1, 2)
    return attended(q, q[:, :2], q[:, :2], causal)


def of_documents(x, ids):
    q = x.transpose(1, 2)
    torch._check(ids.shape[0] == x.shape[1])
    return documents(q, q[:, :2], q[:, :2], ids)


def of_single_heads(q, k, v):
    blocks = create_block_mask(causal, None, q.shape[1], q.shape[2], k.shape[2], device="cuda")
    return flex_attention(q, k, v, None, blocks, enable_gqa=True)


def of_half(x):
    q, half = x.transpose(1, 2), x.shape[1] // 2
    return attended(q, q[:, :2], q[:, :2], lambda b, h, i, j: i + half >= j)


def tensors_of_cache():
    return tensors(queries=1)[0], *tensors(dynamic=(2,))[1:]


of_causal = partial(attended, mask=causal)
CASES["causal"] = Case(of_causal, tensors())
CASES["window"] = Case(partial(attended, mask=and_masks(causal, recent), score=softcap), tensors())
CASES["documents"] = Case(documents, (*tensors(), T((S,), INT32)))
CASES["training"] = Case(of_causal, tensors(grad=True))
CASES["decode"] = Case(attended, tensors(queries=1))
CASES["no row"] = Case(attended, tensors())
CASES["other score"] = Case(partial(attended, score=lopsided), tensors())
CASES["user's tile"] = Case(partial(attended, options={"BLOCK_M": 64, "BLOCK_N": 32}), tensors(heads=2))
CASES["open length"] = Case(attended, tensors(dynamic=(2,)))
CASES["range"] = Case(of_itself, (T((1, S, 4, D), grad=True, dynamic=(1,)),))
CASES["range of documents"] = Case(of_documents, (T((1, S, 4, D), dynamic=(1,)), T((S,), INT32, dynamic=(0,))))
CASES["lengths"] = Case(padded, (*tensors(), T((1, S, S), torch.bool), T((1,), INT32)))
CASES["in a range"] = Case(of_causal, tensors(queries=640, keys=640))
CASES["cache"] = Case(attended, tensors_of_cache())
CASES["blocks alone"] = Case(partial(attended, mask=noop_mask, size=64), tensors(heads=2))
CASES["several types"] = Case(attended, (tensors()[0], *[T((1, 2, S, D), torch.float32)] * 2))
CASES["a head too many"] = Case(of_single_heads, tensors(queries=1))
CASES["fp32"] = Case(attended, tuple(replace(each, dtype=torch.float32) for each in tensors()))
CASES["odd blocks"] = Case(partial(attended, mask=causal, size=96), tensors())
CASES["a length in a mask"] = Case(of_half, (T((1, S, 4, D), dynamic=(1,)),))
CASES["default"] = Case(attended, tensors(heads=2))
