"""Llama-3.2-1B and Qwen3-0.6B in fp8 with a scale per row, written with torch alone; widths are the published ones.

Layers multiply e4m3 by e4m3 with `torch._scaled_mm`, and quantise their input in each call. Weights are quantised once;
a training step quantises weights, inputs and gradients for each of a layer's three products. One token per sequence
decodes with a cache of CONTEXT tokens. Embedding and head stay in bf16.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from models import LAYERS
from torch.nn import functional as F  # noqa: N812 (torch's custom)

CONTEXT, SEQUENCES = 1024, 16
LARGEST = torch.finfo(torch.float8_e4m3fn).max


@dataclass(frozen=True)
class Shape:
    """Sizes of a model."""

    name: str
    hidden: int
    inner: int
    heads: int
    cached_heads: int
    head: int
    vocabulary: int
    norms_heads: bool


LLAMA = Shape("llama", 2048, 8192, 32, 8, 64, 128256, norms_heads=False)
QWEN3 = Shape("qwen3", 1024, 3072, 16, 8, 128, 151936, norms_heads=True)


def llama() -> torch.nn.Module:
    """Return Llama-3.2-1B with products in e4m3."""
    return Model(LLAMA)


def qwen3() -> torch.nn.Module:
    """Return Qwen3-0.6B with products in e4m3."""
    return Model(QWEN3)


def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a matrix in e4m3, row-major, and the scale of each of its rows as a column."""
    scale = x.abs().amax(1, keepdim=True).float().clamp(min=1e-12) / LARGEST
    return (x.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).contiguous(), scale


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a @ b.T of two matrices, each quantised by its rows."""
    return scaled(*quantised(a), *quantised(b))


def scaled(a: torch.Tensor, of_a: torch.Tensor, b: torch.Tensor, of_b: torch.Tensor) -> torch.Tensor:
    """Return a @ b.T in bf16, times the scales of both."""
    return torch._scaled_mm(a, b.t(), of_a, of_b.t(), out_dtype=torch.bfloat16, use_fast_accum=True)


class Trained(torch.autograd.Function):
    """Linear layer whose three products are in fp8."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        return product(gradient, weight.t()), product(gradient.t(), x.t())


class Linear(torch.nn.Module):
    """Linear layer without a bias: in fp8, with scales per row."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(rows, columns, dtype=torch.bfloat16) * columns**-0.5)
        weight, scale = quantised(self.weight.detach())
        self.register_buffer("quantised", weight)
        self.register_buffer("scale", scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(0, -2)
        if self.training:
            found = Trained.apply(flat, self.weight)
        else:
            found = scaled(*quantised(flat), self.quantised, self.scale)
        return found.unflatten(0, x.shape[:-1])


class Attention(torch.nn.Module):
    """Attention with rotated positions and grouped heads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        heads = shape.heads + 2 * shape.cached_heads
        self.inward = Linear(shape.hidden, heads * shape.head)
        self.outward = Linear(shape.heads * shape.head, shape.hidden)
        self.norms = torch.nn.ModuleList([norm(shape.head), norm(shape.head)] if shape.norms_heads else [])
        size = SEQUENCES, shape.cached_heads, CONTEXT, shape.head
        self.register_buffer("keys", torch.randn(size, dtype=torch.bfloat16))
        self.register_buffer("values", torch.randn(size, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor, positions: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        shape, parts = self.shape, (self.shape.heads, self.shape.cached_heads, self.shape.cached_heads)
        heads = self.inward(x).unflatten(-1, (-1, shape.head)).transpose(1, 2)
        query, key, value = heads.split(parts, dim=1)
        for number, each in enumerate(self.norms):
            query, key = (each(query), key) if number == 0 else (query, each(key))
        query, key = rotated(query, angles), rotated(key, angles)
        is_step = x.shape[1] == 1
        if is_step:
            self.keys.index_copy_(2, positions, key)
            self.values.index_copy_(2, positions, value)
            key, value = self.keys, self.values
        found = F.scaled_dot_product_attention(query, key, value, is_causal=not is_step, enable_gqa=True)
        return self.outward(found.transpose(1, 2).flatten(2))


class Block(torch.nn.Module):
    """Layer of a model: attention, and a gated network."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.before, self.attention = norm(shape.hidden), Attention(shape)
        self.between, self.inward = norm(shape.hidden), Linear(shape.hidden, 2 * shape.inner)
        self.outward = Linear(shape.inner, shape.hidden)

    def forward(self, x: torch.Tensor, positions: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x), positions, angles)
        gate, up = self.inward(self.between(x)).chunk(2, -1)
        return x + self.outward(F.silu(gate) * up)


class Model(torch.nn.Module):
    """Causal language model: logits of the last token, or with labels its loss."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(shape.vocabulary, shape.hidden, dtype=torch.bfloat16)
        torch.nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = torch.nn.ModuleList(Block(shape) for _ in range(LAYERS))
        self.last = norm(shape.hidden)
        frequencies = 500000.0 ** -torch.linspace(0, 1, shape.head // 2 + 1)[:-1]
        self.register_buffer("frequencies", torch.cat([frequencies, frequencies]))

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        length = input_ids.shape[1]
        begin = CONTEXT - 1 if length == 1 else 0
        positions = torch.arange(begin, begin + length, device=input_ids.device)
        angles = positions[:, None] * self.frequencies
        x = self.embedding(input_ids)
        for block in self.blocks:
            x = block(x, positions, angles)
        x = self.last(x if labels is not None else x[:, -1])
        logits = F.linear(x, self.embedding.weight)
        return logits if labels is None else F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def norm(size: int) -> torch.nn.RMSNorm:
    return torch.nn.RMSNorm(size, eps=1e-6, dtype=torch.bfloat16)


def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    one, other = x.chunk(2, -1)
    return (x * angles.cos() + torch.cat([-other, one], -1) * angles.sin()).to(x.dtype)
