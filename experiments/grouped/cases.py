"""Grouped products of 16 public models, under the routing they are tuned for and under another. Needs torch.

The first forward product of each model has a second case in e4m3 with scales, as torchao's float8 experts run it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from gemmtune.engine.records.grouped.product import Form, Grouped
from gemmtune.engine.records.grouped.routing import counts_of

MODELS = {  # experts on one device, experts per token there, hidden size, intermediate size
    "qwen3-30b-a3b": (128, 8, 2048, 768),
    "mixtral-8x7b-tp4": (8, 2, 4096, 3584),
    "deepseek-v3-ep8": (32, 1, 7168, 2048),
    "gpt-oss-20b": (32, 4, 2880, 2880),
    "olmoe-1b-7b": (64, 8, 2048, 1024),
    "llama-4-scout-tp4": (16, 1, 5120, 2048),
    "qwen3-235b-a22b-tp4": (128, 8, 4096, 384),
    "glm-4.5-air-tp4": (128, 8, 4096, 352),
    "deepseek-v2-lite": (64, 6, 2048, 1408),
    "qwen3-next-80b-tp4": (512, 10, 2048, 128),
    "gpt-oss-120b-tp4": (128, 4, 2880, 720),
    "granite-3.1-3b-a800m": (40, 8, 1536, 512),
    "phi-3.5-moe-tp4": (16, 2, 4096, 1600),
    "hunyuan-a13b-tp4": (64, 8, 4096, 768),
    "ernie-4.5-21b-a3b": (64, 6, 2560, 1536),
    "mixtral-8x22b-tp8": (8, 2, 6144, 2048),
}
TOKENS = (8, 64, 512, 4096, 32768)
KINDS = ("up", "down", "gradient of input", "gradient of weight")
ROUTINGS = ("uniform", "zipf")
"""Routings of the cases; every product is tuned under the first one."""
PRODUCTS = 24
"""Number of products, of which the first 16 have every model once."""
SWEPT = (0, 3, 5, 8, 13, 23)
"""Places of the products that are swept: 8 to 4,096 tokens, two of them gradients."""
SWEPT_FP8 = (0, 8)
"""Places of the products in e4m3 that are swept."""
FP8, GREATEST = torch.float8_e4m3fn, 448.0
SCALED = "e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32])"


class Case(NamedTuple):
    """One product of a layer under one routing."""

    name: str
    problem: str
    group: str
    routing: str
    is_swept: bool

    @property
    def product(self) -> Grouped:
        """Return the product as it is tuned."""
        return Grouped.parse(self.problem)

    @property
    def bytes(self) -> int:
        """Return the bytes of its operands and its result."""
        return self.product.min_bytes

    @property
    def counts(self) -> tuple[int, ...]:
        """Return the rows of each group, or its share of k."""
        product = self.product
        return counts_of(self.routing, product.groups, product.size)

    def inputs(self, number: int) -> tuple[torch.Tensor, ...]:
        """Return both operands, their scales and the ends of the groups on the GPU; values have a variance near 1."""
        generator = torch.Generator("cuda").manual_seed(number)
        a, b = (
            torch.empty((*shape[:-2], *reversed(shape[-2:])) if is_t else shape, device="cuda", dtype=torch.bfloat16)
            .normal_(generator=generator)
            .transpose(-1, -2 if is_t else -1)
            for shape, is_t in zip(self.product.shapes, (each == "t" for each in self.product.layout), strict=False)
        )
        ends = torch.tensor(self.counts, device="cuda").cumsum(0, dtype=torch.int32)
        if not self.product.epilogue:
            return a, b, ends
        (a, of_rows), (b, of_columns) = _quantised(a, 1), _quantised(b, 1)
        return a, b, of_rows, of_columns, ends

    def run(self, a, b, *further) -> torch.Tensor:
        """Return what the layer computes."""
        *scales, ends = further
        if scales:
            return torch._scaled_grouped_mm(a, b, *scales, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True)
        return torch._grouped_mm(a, b, offs=ends)

    def right(self, a, b, *further) -> torch.Tensor:
        """Return the result in float64."""
        *scales, ends = further
        first, parts, is_inner = 0, [], self.product.form is Form.INNER
        for group, last in enumerate(ends.tolist()):
            rows = slice(first, last)
            part = a[:, rows].double() @ b[rows].double() if is_inner else a[rows].double() @ b[group].double()
            parts.append(part * scales[0][rows, None] * scales[1][group] if scales else part)
            first = last
        return torch.stack(parts) if is_inner else torch.cat(parts)


def _quantised(real: torch.Tensor, along: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values of 8 bits with the scale of each vector along a dimension, of which B's last two are transposed."""
    scale = real.abs().amax(along, keepdim=True).float() / GREATEST
    return (real / scale).clamp(-GREATEST, GREATEST).to(FP8), scale.squeeze(along)


def cases() -> Iterator[Case]:
    """Yield every product under both routings; each model has its turn at each number of tokens."""
    for place in range(PRODUCTS):
        turn, at = divmod(place, len(MODELS))
        model, (experts, top_k, hidden, inter) = list(MODELS.items())[at]
        tokens = TOKENS[(at + turn) % len(TOKENS)]
        kinds = KINDS if tokens >= 4096 else KINDS[:2]  # nobody trains on fewer
        kind = kinds[place // 2 % len(kinds)]
        rows = tokens * top_k
        text = {
            "up": f"grouped:rows:m{rows}:g{experts}:n{2 * inter}:k{hidden}:bf16:nt",
            "down": f"grouped:rows:m{rows}:g{experts}:n{hidden}:k{inter}:bf16:nt",
            "gradient of input": f"grouped:rows:m{rows}:g{experts}:n{hidden}:k{2 * inter}:bf16:nn",
            "gradient of weight": f"grouped:inner:m{2 * inter}:g{experts}:n{hidden}:k{rows}:bf16:tn",
        }[kind]
        for routing in ROUTINGS:
            group = f"{'gradients' if 'gradient' in kind else 'forward'}, {routing}"
            is_tuned_for = routing == ROUTINGS[0]
            yield Case(f"{model} {tokens} {kind}, {routing}", text, group, routing, place in SWEPT and is_tuned_for)
            if "gradient" not in kind and place < len(MODELS):
                name, text_fp8 = f"{model} {tokens} {kind} fp8, {routing}", text.replace("bf16:nt", SCALED)
                yield Case(name, text_fp8, f"fp8, {routing}", routing, place in SWEPT_FP8 and is_tuned_for)
