"""Functions of mask and score as torch computes them. Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.flex.functions import TENSORS, evaluated
from gemmtune.engine.records.flex.masks import NONE, function_of


def _at(tensor: torch.Tensor, *index: Any) -> torch.Tensor:  # noqa: ANN401 (tensors or numbers)
    """Return elements of a tensor by index, where `[]` of a traced index would ask for its value."""
    found: torch.Tensor = torch.ops.aten.index.Tensor(tensor, list(index))
    return found


_OTHERS: dict[str, Callable[..., Any]] = {
    "at": _at,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "abs": torch.abs,
    "where": torch.where,
}


def mask_function(attention: Flex) -> Callable[..., torch.Tensor]:
    """Return the mask of batch, head, query and key, and behind them the tensors that it reads."""
    if attention.mask == NONE:
        return lambda b, h, q, kv: b.new_ones((), dtype=torch.bool)
    function = function_of(attention.mask)

    def mask(b: Any, h: Any, q: Any, kv: Any, *tensors: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
        values = {"b": b, "h": h, "q": q, "kv": kv, **dict(zip(TENSORS, tensors, strict=False))}
        found: torch.Tensor = evaluated(function, values, _OTHERS)
        return found

    return mask


def score_function(attention: Flex) -> Callable[..., torch.Tensor]:
    """Return the function of a score, batch, head, query and key."""
    if attention.score == NONE:
        return lambda s, b, h, q, kv: s
    function = function_of(attention.score)

    def score(s: torch.Tensor, b: Any, h: Any, q: Any, kv: Any) -> torch.Tensor:  # noqa: ANN401
        found: torch.Tensor = evaluated(function, {"s": s, "b": b, "h": h, "q": q, "kv": kv}, _OTHERS)
        return found

    return score
