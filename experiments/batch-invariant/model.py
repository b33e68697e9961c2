"""Compare the logits of a sequence alone and in a batch of 16, bit by bit, with a batch-invariant table and without.

Two blocks of Qwen3-1.7B's sizes, whose products are those that `run.py` tunes; the head has the columns of one of them.
Attention is flex_attention by one config, which each sequence and head runs by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

ONE_CONFIG = {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 2, "FORCE_USE_FLEX_ATTENTION": True}
"""Options that leave Inductor no choice of a kernel of attention; without the last one few queries would decode."""
SIZES = {"hidden": 2048, "heads": 16, "kv_heads": 8, "head": 128, "intermediate": 6144, "vocabulary": 6144}
SMALL = {"hidden": 64, "heads": 4, "kv_heads": 2, "head": 16, "intermediate": 96, "vocabulary": 96}
BATCH, PLACES = 16, (0, 7, 15)
LENGTHS, REHEARSED_LENGTHS = (1, 17, 64, 200, 256), (1, 17)
ARMS = ("eager", "torch.compile", "table", "invariant")


class Block(nn.Module):
    def __init__(self, s: dict[str, int]) -> None:
        super().__init__()
        self.split, self.head = [s["heads"], s["kv_heads"], s["kv_heads"]], s["head"]
        self.qkv = nn.Linear(s["hidden"], sum(self.split) * s["head"], bias=False)
        self.o = nn.Linear(s["heads"] * s["head"], s["hidden"], bias=False)
        self.gate_up = nn.Linear(s["hidden"], 2 * s["intermediate"], bias=False)
        self.down = nn.Linear(s["intermediate"], s["hidden"], bias=False)
        self.before, self.between = nn.RMSNorm(s["hidden"]), nn.RMSNorm(s["hidden"])

    def forward(self, x: Tensor, attend: Callable[..., Tensor]) -> Tensor:
        heads = self.qkv(self.before(x)).unflatten(-1, (-1, self.head)).transpose(1, 2)
        x = x + self.o(attend(*heads.split(self.split, dim=1)).transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.between(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, sizes: dict[str, int], options: dict[str, Any] | None) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes["vocabulary"], sizes["hidden"])
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(2))
        self.norm = nn.RMSNorm(sizes["hidden"])
        self.logits = nn.Linear(sizes["hidden"], sizes["vocabulary"], bias=False)
        self.options = options

    def forward(self, ids: Tensor, seen: Any) -> Tensor:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return flex_attention(q, k, v, block_mask=seen, enable_gqa=True, kernel_options=self.options)

        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, attend)
        return self.logits(self.norm(x))


def causal(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
    return q >= kv


def compared(out: Path, table_in_use: Callable[[Path], Any], *, rehearse: bool) -> dict[str, Any]:
    """Return per arm and length the number of logits whose bits differ alone and in a batch, and what rows served."""
    device, dtype = ("cpu", torch.float32) if rehearse else ("cuda", torch.bfloat16)
    torch.manual_seed(0)
    model = Model(SMALL if rehearse else SIZES, None if rehearse else ONE_CONFIG).to(device, dtype)
    found: dict[str, Any] = {}
    torch._dynamo.config.recompile_limit = 64
    for arm in ARMS[:2] if rehearse else ARMS:
        torch._dynamo.reset()
        found[arm] = {"differ": {}}
        with table_in_use(out / arm) if arm in ARMS[2:] else nullcontext({}) as options:
            call = model if arm == "eager" else compiled(model, arm, options, rehearse=rehearse)
            for length in REHEARSED_LENGTHS if rehearse else LENGTHS:
                found[arm]["differ"][length] = differing(call, length, device, model.logits.out_features)
            if arm in ARMS[2:]:
                from gemmtune.engine.consumers.inductor.loader import loader

                found[arm]["misses"] = list(loader.report().misses)
    return found


def compiled(model: Model, arm: str, options: dict[str, Any], *, rehearse: bool) -> Callable[..., Tensor]:
    """Return the model as an arm compiles it; a batch-invariant table has norms of equal bits beside it."""
    if rehearse:
        return torch.compile(model, backend="eager", dynamic=False)
    beside = equal_norms(model) if arm == "invariant" else {}
    return torch.compile(model, dynamic=False, options={**options, **beside})


def equal_norms(model: nn.Module) -> dict[str, Any]:
    """Return the option with which Inductor's norms have equal bits; without one, let torch's own kernel compute them.

    Before torch 2.13 Inductor chooses the block of a reduction by the number of rows, among others.
    """
    if hasattr(torch._inductor.config, "batch_invariant"):
        return {"batch_invariant": True}
    for each in model.modules():
        if isinstance(each, nn.RMSNorm):
            each.forward = partial(rms_norm, weight=each.weight)
    return {}


@torch.library.custom_op("batch_invariant::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, weight.shape, weight)


@rms_norm.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(x)


def differing(call: Callable[..., Tensor], length: int, device: str, vocabulary: int) -> int:
    """Return the number of logits of one sequence that differ, summed over three places in a batch of others."""
    seen = create_block_mask(causal, None, None, length, length, device=device)
    own = torch.randint(vocabulary, (1, length), device=device)
    number = 0
    with torch.no_grad():
        alone = call(own, seen)
        for place in PLACES:
            batch = torch.randint(vocabulary, (BATCH, length), device=device)
            batch[place] = own[0]
            number += int((call(batch, seen)[place] != alone[0]).sum())
    return number


def show(found: dict[str, Any]) -> None:
    """Print a line per arm: logits whose bits differ, by the length of the sequence."""
    lengths = [*next(iter(found.values()))["differ"]]
    print(f"{'model':16}" + "".join(f"{length:>12}" for length in lengths) + "  misses")
    for arm, its in found.items():
        numbers = "".join(f"{its['differ'][length]:>12}" for length in lengths)
        print(f"{arm:16}{numbers}  {', '.join(its.get('misses', ())) or '-'}")
