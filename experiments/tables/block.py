"""Define a Llama-3.1-8B decoder block with random weights: q, k and v in one product, gate and up in one.

Sizes: huggingface.co/meta-llama/Llama-3.1-8B, config.json.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Sizes:
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head: int = 128
    intermediate: int = 14336
    longest: int = 8192

    @property
    def layers(self) -> dict[str, tuple[int, int]]:
        """Return (in, out) of each linear layer, by name."""
        attention = self.heads * self.head
        return {
            "qkv": (self.hidden, attention + 2 * self.kv_heads * self.head),
            "o": (attention, self.hidden),
            "gate_up": (self.hidden, 2 * self.intermediate),
            "down": (self.intermediate, self.hidden),
        }


LLAMA = Sizes()
SMALL = Sizes(hidden=64, heads=4, kv_heads=2, head=16, intermediate=96, longest=64)
"""Sizes for a rehearsal on a CPU."""


class Block(nn.Module):
    """Decoder block of one sequence of m tokens, input m×hidden, without a cache."""

    def __init__(self, sizes: Sizes, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.sizes = sizes
        for name, (inputs, outputs) in sizes.layers.items():
            layer = nn.Linear(inputs, outputs, bias=False, device=device, dtype=dtype)
            nn.init.normal_(layer.weight, std=inputs**-0.5)
            self.add_module(name, layer)
        self.before = nn.RMSNorm(sizes.hidden, eps=1e-5, device=device, dtype=dtype)
        self.between = nn.RMSNorm(sizes.hidden, eps=1e-5, device=device, dtype=dtype)
        frequencies = 500_000.0 ** (-torch.arange(0, sizes.head, 2, device=device) / sizes.head)
        angles = torch.outer(torch.arange(sizes.longest, device=device), frequencies)
        self.register_buffer("cosine", angles.cos().to(dtype))
        self.register_buffer("sine", angles.sin().to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        sizes, m = self.sizes, x.shape[0]
        q, k, v = self.qkv(self.before(x)).split(
            [sizes.heads * sizes.head, sizes.kv_heads * sizes.head, sizes.kv_heads * sizes.head], dim=1
        )
        q = self._rotated(q.view(m, sizes.heads, sizes.head))
        k = self._rotated(k.view(m, sizes.kv_heads, sizes.head))
        groups = sizes.heads // sizes.kv_heads
        k, v = (t.repeat_interleave(groups, dim=1) for t in (k, v.view(m, sizes.kv_heads, sizes.head)))
        q, k, v = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(attended.squeeze(0).transpose(0, 1).reshape(m, -1))
        gate, up = self.gate_up(self.between(x)).chunk(2, dim=1)
        return x + self.down(functional.silu(gate) * up)

    def _rotated(self, x: Tensor) -> Tensor:
        m = x.shape[0]
        cosine, sine = self.cosine[:m].unsqueeze(1), self.sine[:m].unsqueeze(1)
        first, second = x.chunk(2, dim=2)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=2)
