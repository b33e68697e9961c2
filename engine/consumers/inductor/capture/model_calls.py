"""Calls of a model, each with its inputs and its weight, and their text: `weight=512 input_ids=int64[16,1]%32000`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from gemmtune.engine.consumers.inductor.inputs import OpenSize, parse_inputs
from gemmtune.engine.io.reading import read_text
from gemmtune.engine.records.errors import UsageError

if TYPE_CHECKING:
    import torch

_APART = re.compile(r"\s+(?![^\[]*\])")  # no space within the sizes of an input
_WEIGHT = "weight="

CallLike: TypeAlias = str | Sequence[object]
"""A call: its text, or a list of its inputs, in which a text `weight=512` is the call's weight."""


@runtime_checkable
class MadeArguments(Protocol):
    """Named arguments that are made on the GPU as the model is called, such as a cache and its mask."""

    def make_arguments(self, device: torch.device) -> Mapping[str, object]:
        """Return the arguments by name."""

    def rewinder(self, arguments: Mapping[str, object]) -> Callable[[], None]:
        """Return a function that undoes what a call does to the arguments, such as a step of a cache.

        It may run while a CUDA graph is captured.
        """


@dataclass(frozen=True, slots=True)
class ModelCall:
    """Call of a model, one of those that a table serves."""

    name: str
    """Text of the call without its weight, for reports."""
    inputs: Sequence[object]
    """Descriptions of tensors, arguments to make, and other objects, which are passed as they are."""
    sizes: Sequence[OpenSize] = ()
    """Open sizes of the descriptions."""
    weight: float = 1.0
    """Call frequency, relative to the model's other calls; above 0."""


def parse_call(given: CallLike) -> ModelCall:
    """Return the call that a text or a list of inputs describes; raises UsageError if one of its parts is wrong."""
    texts = [part for part in _APART.split(given) if part] if isinstance(given, str) else given
    parts, weight = weight_and_rest(texts)
    described, sizes = parse_inputs([each for each in parts if isinstance(each, str)])
    specs = iter(described)
    inputs = [next(specs) if isinstance(each, str) else each for each in parts]
    name = " ".join(each if isinstance(each, str) else _shown(each) for each in parts)
    return ModelCall(name, inputs, sizes, weight)


def weight_and_rest(parts: Sequence[object]) -> tuple[list[object], float]:
    """Return the parts of a call without its weight, and the weight, by default 1.

    Raises:
        UsageError: the weight is no number above 0, or stands twice.
    """
    given = [each for each in parts if _is_weight(each)]
    if len(given) > 1:
        raise UsageError(f"a call has two weights, {given[0]} and {given[1]}: give it one")
    text = str(given[0]).removeprefix(_WEIGHT) if given else "1"
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise UsageError(f"weight={text[:80]} of a call is no number above 0: write weight=512")
    return [each for each in parts if not _is_weight(each)], weight


def _is_weight(part: object) -> bool:
    return isinstance(part, str) and part.startswith(_WEIGHT) and "[" not in part


def read_calls(path: Path) -> tuple[str, ...]:
    """Return the calls of a file: one per line, empty lines and those that begin with # left out.

    Raises:
        UsageError: the file cannot be read, or has no call.
    """
    lines = [line.strip() for line in read_text(path, "file of calls").splitlines()]
    calls = tuple(line for line in lines if line and not line.startswith("#"))
    if not calls:
        raise UsageError(f"{path} has no call: write one per line, such as weight=512 input_ids=int64[16,1]%32000")
    return calls


def _shown(value: object) -> str:
    shape, dtype = getattr(value, "shape", None), str(getattr(value, "dtype", "")).removeprefix("torch.")
    return type(value).__name__ if shape is None else f"{dtype}[{','.join(map(str, shape))}]"
