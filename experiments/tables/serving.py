"""Serve a model for `gemmtune export --warm serving:forward`: the decoder block, with m marked dynamic."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from block import LLAMA, Block

from gemmtune.engine.consumers.inductor.loader.loader import options


def forward(m: int) -> torch.Tensor:
    """Run one pass at this m, without gradients."""
    with torch.no_grad():
        return compiled()(tokens(m))


def tokens(m: int) -> torch.Tensor:
    x = torch.randn(m, LLAMA.hidden, device="cuda", dtype=torch.bfloat16)
    if m > 1:
        torch._dynamo.mark_dynamic(x, 0)
    return x


@cache
def compiled() -> Callable[[torch.Tensor], torch.Tensor]:
    torch._dynamo.config.recompile_limit = 64
    return torch.compile(model(), options=options())


@cache
def model() -> Block:
    return Block(LLAMA, "cuda", torch.bfloat16)
