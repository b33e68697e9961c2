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
    values: dict[Term, torch.Tensor] = {Product(): product}
    for operand, tensor in zip(epilogue.operands, further, strict=True):
        values[operand] = tensor if tensor.dtype == torch.bool else tensor.to(product.dtype)

    def value(term: Term) -> torch.Tensor:
        if isinstance(term, float):
            return torch.tensor(term, dtype=product.dtype, device=product.device)
        if term not in values:
            assert isinstance(term, Call)
            values[term] = getattr(torch, term.op)(*map(value, term.arguments))
        return values[term]

    return tuple(value(expanded(output.term)) for output in epilogue.outputs) or (product,)
