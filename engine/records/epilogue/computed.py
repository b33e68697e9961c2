"""Epilogues computed by torch, operation by operation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gemmtune.engine.records.epilogue.activations import expanded
from gemmtune.engine.records.epilogue.chain import Epilogue
from gemmtune.engine.records.epilogue.terms import Product, Term, evaluated

if TYPE_CHECKING:
    import torch


def computed_by_torch(
    epilogue: Epilogue, product: torch.Tensor, further: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Return the outputs of an epilogue in the product's type; without an epilogue, the product.

    `further` has its operands in the order of its text, broadcast to the product by their shapes.
    """
    import torch

    typed = (each if each.dtype == torch.bool else each.to(product.dtype) for each in further)
    values: dict[Term, torch.Tensor] = {Product(): product, **dict(zip(epilogue.operands, typed, strict=True))}
    number, operation = partial(torch.tensor, dtype=product.dtype, device=product.device), partial(getattr, torch)
    outputs = (evaluated(expanded(output.term), values, number, operation) for output in epilogue.outputs)
    return tuple(outputs) or (product,)
