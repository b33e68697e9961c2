"""Epilogues computed by torch, operation by operation. Imports torch."""

from collections.abc import Sequence

import torch

from gemmtune.engine.records.epilogue.activations import expanded
from gemmtune.engine.records.epilogue.chain import Epilogue
from gemmtune.engine.records.epilogue.terms import Call, Product, Term

__all__ = ["computed_by_torch"]


def computed_by_torch(
    epilogue: Epilogue, product: torch.Tensor, further: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Return the outputs of an epilogue in the product's type; without an epilogue, the product.

    `further` has its operands in the order of its text, broadcast to the product by their shapes.
    """
    typed = (each if each.dtype == torch.bool else each.to(product.dtype) for each in further)
    values: dict[Term, torch.Tensor] = {Product(): product, **dict(zip(epilogue.operands, typed, strict=True))}
    return tuple(_value(expanded(output.term), values, product) for output in epilogue.outputs) or (product,)


def _value(term: Term, values: dict[Term, torch.Tensor], product: torch.Tensor) -> torch.Tensor:
    """Return the value of a term; `values` has those of the terms below, and takes what is computed here."""
    if isinstance(term, float):
        return torch.tensor(term, dtype=product.dtype, device=product.device)
    if isinstance(term, Call) and term not in values:
        values[term] = getattr(torch, term.op)(*(_value(argument, values, product) for argument in term.arguments))
    return values[term]
