"""Probe for its own process on a GPU: attention by a table in torch.compile, and by torch's eager attention.

Argument: the folder of an export. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys

import torch
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

S, D = 512, 64


def causal(b, h, q, kv):
    return q >= kv


def softcap(s, b, h, q, kv):
    return 20 * torch.tanh(s / 20)


def attended(q, k, v, blocks=None, score=None):
    return flex_attention(q, k, v, score, blocks, enable_gqa=True)


def of_itself(x):
    q, length = x.transpose(1, 2), x.shape[1]
    blocks = create_block_mask(causal, None, None, length, length, device="cuda")
    return attended(q, q[:, :2], q[:, :2], blocks)


def error(found, expected):
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def made(heads, length, grad=False):
    return torch.randn(1, heads, length, D, device="cuda", dtype=torch.bfloat16).requires_grad_(grad)


def main(export):
    sys.path.insert(0, export)
    import gemmtune_inductor

    gemmtune_inductor.install()
    torch._functorch.config.donated_buffer = False
    torch.manual_seed(0)
    ids = torch.arange(S, device="cuda", dtype=torch.int32) // 200
    masks = {"causal": causal, "documents": lambda b, h, q, kv: (q >= kv) & (ids[q] == ids[kv])}
    masks = {name: create_block_mask(mask, None, None, S, S, device="cuda") for name, mask in masks.items()}
    options = gemmtune_inductor.options()
    compiled = torch.compile(attended, dynamic=False, options=options)
    counters.clear()
    report: dict = {"errors": {}}
    for name, blocks in masks.items():
        inputs = made(4, S, True), made(2, S, True), made(2, S, True)
        score = softcap if name == "documents" else None
        q, k, v = (each.float() for each in inputs)
        eager = attended(q, k, v, blocks, score)
        grad = torch.randn_like(eager).bfloat16()
        out = compiled(*inputs, blocks, score)
        report["errors"][name] = error(out, eager)
        found, expected = (torch.autograd.grad(each, inputs, g) for each, g in ((out, grad), (eager, grad.float())))
        report["errors"] |= {
            f"{name}, {which}": error(*each) for which, *each in zip("qkv", found, expected, strict=True)
        }
    seen = torch.ones(1, S, S, device="cuda", dtype=torch.bool).tril()
    lengths = torch.tensor([400], device="cuda", dtype=torch.int32)
    both = create_block_mask(lambda b, h, q, kv: seen[b, q, kv] & (kv < lengths[b]), 1, None, S, S, device="cuda")
    inputs = made(4, S), made(2, S), made(2, S)
    report["errors"]["tensors"] = error(
        compiled(*inputs, blocks=both), attended(*[each.float() for each in inputs], blocks=both)
    )
    inputs = made(4, 1), made(2, S), made(2, S)
    report["errors"]["decode"] = error(compiled(*inputs), attended(*[each.float() for each in inputs]))
    ranged = torch.compile(of_itself, options=options)
    for length in (300, 700):
        x = torch.randn(1, length, 4, D, device="cuda", dtype=torch.bfloat16)
        torch._dynamo.maybe_mark_dynamic(x, 1)
        report["errors"][f"length {length}"] = error(ranged(x), of_itself(x.float()))
    # Torch times configs of the kernels beside attention, too, such as the sum of the output times its gradient.
    report["benchmarks"] = {key: its for key, its in counters["inductor"].items() if "select_algorithm" in key}
    report["use"] = gemmtune_inductor.report().to_dict()
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
