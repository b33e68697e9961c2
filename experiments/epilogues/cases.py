"""Products with what follows them: 15 products with each of 4 epilogues, and 20 further ones. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch.nn import functional as F  # noqa: N812

PRODUCTS = (
    "16x1536x4096",
    "16x4096x14336",
    "16x5120x8192",
    "32x4096x3072",
    "32x8192x2048",
    "64x2560x5120",
    "64x4096x2048",
    "128x2048x4096",
    "128x7168x4096",
    "256x6144x4096",
    "512x4096x4096",
    "1024x2048x1024",
    "2048x4608x3584",
    "2048x8192x2048",
    "4096x1280x2048",
)
"""m×n×k of 15 of the 100 products of experiments/campaign-100."""
FURTHER = ("16x4096x4096", "64x14336x4096", "128x4096x4096", "512x2880x2880", "2048x4096x4096")
"""m×n×k of the products with further epilogues."""


class Epilogue(NamedTuple):
    """Operations behind a product, as a problem's fields and as a function."""

    fields: str
    function: Callable[..., torch.Tensor]  # of a linear layer's x and w and the matrices, rows and columns of `reads`
    reads: tuple[str, ...]


def _gelu_tanh(x, w):
    return F.gelu(x @ w.t(), approximate="tanh")


def _gelu_of_linear(x, w, row):
    return F.gelu(F.linear(x, w, row))


def _silu_mul_add(x, w, matrix, other):
    return F.silu(x @ w.t()) * matrix + other


def _normed(x, w, row, column):
    return (x @ w.t()).float() * column * row


EPILOGUES = {
    "gelu_tanh": Epilogue("epilogue=gelu_tanh", _gelu_tanh, ()),
    "mul_silu": Epilogue("epilogue=mul(matrix.silu)", lambda x, w, r: F.silu(r) * (x @ w.t()), ("matrix",)),
    "add_relu": Epilogue("epilogue=add(matrix).relu", lambda x, w, r: torch.relu(x @ w.t() + r), ("matrix",)),
    "to_fp32": Epilogue("epilogue=mul(0.5).to(fp32)", lambda x, w: (x @ w.t()).float() * 0.5, ()),
}
"""Epilogues of each of PRODUCTS."""
FURTHER_EPILOGUES = {
    "silu_mul_add": Epilogue("epilogue=silu.mul(matrix).add(matrix2)", _silu_mul_add, ("matrix", "matrix")),
    "gelu_linear": Epilogue("addmm:epilogue=gelu", _gelu_of_linear, ("row",)),
    "mul_row": Epilogue("epilogue=mul(row)", lambda x, w, row: (x @ w.t()) * row, ("row",)),
    "scaled": Epilogue("epilogue=mul(column[fp32]).mul(row).to(fp32)", _normed, ("row", "column")),
}
"""Epilogues of each of FURTHER: three operations, two matrices, a row, and a row with a column."""


class Case(NamedTuple):
    """One product with its epilogue."""

    name: str
    problem: str
    sizes: tuple[int, int, int]
    epilogue: Epilogue
    is_swept: bool = True

    @property
    def group(self) -> str:
        """Return the name of its epilogue."""
        return self.name.partition(" ")[2]

    @property
    def bytes(self) -> int:
        """Return about the bytes of its operands and results."""
        m, n, k = self.sizes
        return 2 * (m * k + n * k) + 6 * m * n

    def inputs(self, number: int) -> tuple[torch.Tensor, ...]:
        """Return operands on the GPU; the product has a variance near 1."""
        m, n, k = self.sizes
        generator = torch.Generator("cuda").manual_seed(number)

        def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
            return torch.empty(shape, device="cuda", dtype=dtype).normal_(generator=generator)

        shapes = {"matrix": (m, n), "row": (n,), "column": (m, 1)}
        types = {"column": torch.float32}
        further = [normal(*shapes[each], dtype=types.get(each, torch.bfloat16)) for each in self.epilogue.reads]
        return (normal(m, k), normal(n, k) / k**0.5, *further)

    def run(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return what a model computes."""
        return self.epilogue.function(*tensors)

    def right(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the result in float64."""
        return self.run(*(tensor.double() for tensor in tensors))


def cases() -> Iterator[Case]:
    """Yield the 80 cases, such that the first ones are of all kinds."""
    pairs = [(p, e) for e in EPILOGUES for p in PRODUCTS]
    further = [(p, e) for e in FURTHER_EPILOGUES for p in FURTHER]
    spread = sorted(
        [(place / len(pairs), pair) for place, pair in enumerate(_strided(pairs, 23))]
        + [(place / len(further), pair) for place, pair in enumerate(_strided(further, 7))]
    )
    known = EPILOGUES | FURTHER_EPILOGUES
    for _, (product, name) in spread:
        epilogue = known[name]
        m, n, k = map(int, product.split("x"))
        yield Case(f"{product} {name}", f"{product}:bf16:nt:{epilogue.fields}", (m, n, k), epilogue)


def _strided(items: list, step: int) -> list:
    """Return all items in steps that share no factor with their number."""
    return [items[place * step % len(items)] for place in range(len(items))]
