"""Functions of mask and score as torch computes them. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.flex.functions import NAMES, SHARED, evaluated
from gemmtune.engine.records.flex.masks import NONE, function_of


def _power(base: Any, exponent: Any) -> torch.Tensor:  # noqa: ANN401 (tensors or a number)
    """Return a power, of floats unless an integer tensor has an exponent that is a natural number."""
    if not isinstance(base, torch.Tensor):
        base = float(base)
    elif not base.is_floating_point() and not (isinstance(exponent, int) and exponent >= 0):
        base = base.float()
    return torch.pow(base, exponent)


def _clamped(bound: str, one: Any, other: Any) -> torch.Tensor:  # noqa: ANN401 (tensors or a number)
    """Return the least or the greatest of two, of which one may be a number."""
    tensor, limit = (one, other) if isinstance(one, torch.Tensor) else (other, one)
    return torch.clamp(tensor, **{bound: limit})


_OTHERS: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, its) for name, its in SHARED.items()},
    # `[]` of a traced index would ask for its value
    "at": lambda tensor, *index: torch.ops.aten.index.Tensor(tensor, list(index)),
    **{"pow": _power, "minimum": partial(_clamped, "max"), "maximum": partial(_clamped, "min")},
    "where": lambda condition, one, other: torch.where(condition.bool(), one, other),
}


def mask_function(attention: Flex) -> Callable[..., torch.Tensor]:
    """Return the mask of batch, head, query and key, and behind them the tensors that it reads."""
    if attention.mask == NONE:
        return lambda b, h, q, kv: b.new_ones((), dtype=torch.bool)
    function = _function(attention.mask, NAMES[1:])
    return lambda *given: function(*given).bool()


def score_function(attention: Flex) -> Callable[..., torch.Tensor]:
    """Return the function of a score, batch, head, query and key."""
    return (lambda s, b, h, q, kv: s) if attention.score == NONE else _function(attention.score, NAMES)


def _function(text: str, names: Sequence[str]) -> Callable[..., torch.Tensor]:
    function = function_of(text)
    return lambda *given: evaluated(function, dict(zip(names, given, strict=False)), _OTHERS)
