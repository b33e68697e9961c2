"""Products of real models in fp8: 32 cases, half with scales per row, half with an epilogue. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch.nn import functional as F  # noqa: N812

MODELS = {
    1: ("4096x4096", "28672x4096", "4096x12288", "6144x4096"),
    8: ("4096x14336", "24576x4096", "7168x2048", "5120x8192"),
    16: ("4096x4096", "7168x4096", "2048x8192", "10240x8192"),
    64: ("7168x2048", "4096x14336", "6144x4096", "2112x7168"),
    128: ("4096x4096", "24576x1536", "8192x8192", "14336x4096"),
    512: ("4096x7168", "6144x4096", "4096x12288", "28672x4096"),
    2048: ("4096x4096", "14336x4096", "5120x8192", "4096x14336"),
    8192: ("4096x4096", "6144x4096", "4096x14336", "2048x7168"),
}
"""n×k per number of tokens: layers of Llama 3.1 and 3.3, Qwen3, Mistral and DeepSeek V3, some split over GPUs."""
CLASSES = {"m 1 to 16": 16, "17 to 128": 128, "beyond": 8192}
FP8, GREATEST = torch.float8_e4m3fn, 448.0
SWEPT = (0, 7, 10, 13, 18, 21)
"""Places of the cases that are swept."""


class Epilogue(NamedTuple):
    """Operations behind a scaled product."""

    text: str
    function: Callable[..., torch.Tensor]
    reads: tuple[str, ...]


EPILOGUES = {
    "bias": Epilogue(".add({row})", lambda x, row: x + row, ("row",)),
    "residual": Epilogue(".add(matrix)", lambda x, r: x + r, ("matrix",)),
    "silu mul": Epilogue(".silu.mul(matrix)", lambda x, r: F.silu(x) * r, ("matrix",)),
    "gelu": Epilogue(".gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), ()),
}
PLAIN = Epilogue("", lambda x: x, ())
SCALES = {True: "mul(column[fp32]).mul(row[fp32])", False: "mul(scalar[fp32]).mul(scalar2[fp32])"}


class Case(NamedTuple):
    """One product with its scales and its epilogue."""

    name: str
    problem: str
    sizes: tuple[int, int, int]
    is_row_wise: bool
    behind: Epilogue
    is_swept: bool

    @property
    def group(self) -> str:
        """Return the kind of its scales with the range of its m."""
        name = next(name for name, most in CLASSES.items() if self.sizes[0] <= most)
        return f"{'rows' if self.is_row_wise else 'tensors'}, {name}"

    @property
    def bytes(self) -> int:
        """Return about the bytes of its operands and results."""
        m, n, k = self.sizes
        return m * k + n * k + 6 * m * n

    def inputs(self, number: int) -> tuple[torch.Tensor, ...]:
        """Return quantised operands with their scales on the GPU; the product has a variance near 1."""
        m, n, k = self.sizes
        generator = torch.Generator("cuda").manual_seed(number)

        def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
            return torch.empty(shape, device="cuda", dtype=dtype).normal_(generator=generator)

        x, of_x = self._quantised(normal(m, k, dtype=torch.float32))
        weight, of_weight = self._quantised(normal(n, k, dtype=torch.float32) / k**0.5)
        shapes = {"matrix": (m, n), "row": (n,)}
        further = [normal(*shapes[each]) for each in self.behind.reads]
        return (x, weight, of_x, of_weight.reshape(1, -1) if self.is_row_wise else of_weight, *further)

    def _quantised(self, real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return values of 8 bits with the scale of each row, or of all."""
        largest = real.abs().amax(1, keepdim=True) if self.is_row_wise else real.abs().amax()
        scale = largest / GREATEST
        return (real / scale).clamp(-GREATEST, GREATEST).to(FP8), scale

    def run(self, x, weight, of_x, of_weight, *further: torch.Tensor) -> torch.Tensor:
        """Return what the model computes."""
        bias = further[0] if self.behind is EPILOGUES["bias"] else None
        scaled = torch._scaled_mm(
            x, weight.t(), of_x, of_weight, bias=bias, out_dtype=torch.bfloat16, use_fast_accum=True
        )
        return scaled if bias is not None else self.behind.function(scaled, *further)

    def right(self, x, weight, of_x, of_weight, *further: torch.Tensor) -> torch.Tensor:
        """Return the result in float64."""
        scaled = (x.double() @ weight.double().t()) * of_x.double() * of_weight.double()
        return self.behind.function(scaled, *(each.double() for each in further))


def cases() -> Iterator[Case]:
    """Yield the 32 cases."""
    kinds = list(EPILOGUES)
    for place, (m, shape) in enumerate((m, shape) for m, shapes in MODELS.items() for shape in shapes):
        is_row_wise, number = place % 2 == 0, place // 2
        kind = kinds[(number // 2) % len(kinds)] if number % 2 else ""
        behind = EPILOGUES.get(kind, PLAIN)
        n, k = map(int, shape.split("x"))
        text = SCALES[is_row_wise] + behind.text.format(row="row2" if is_row_wise else "row")
        name = f"{m}x{n}x{k} {'rows' if is_row_wise else 'tensors'}{f', {kind}' if kind else ''}"
        yield Case(name, f"{m}x{n}x{k}:e4m3:nt:epilogue={text}", (m, n, k), is_row_wise, behind, place in SWEPT)
