"""Tensors that a mask reads: what each holds, its axes, and values that stand for those of a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gemmtune.engine.records.flex.functions import SHARED, TENSORS, Function, evaluated, reads
from gemmtune.engine.records.flex.masks import NONE, function_of, lengths_of

if TYPE_CHECKING:
    import numpy as np

_AXES = {frozenset("b"): "b", frozenset("h"): "h", frozenset("q"): "q", frozenset(["kv"]): "kv"}
_ROWS = 512  # queries at most whose keys are counted
_PART, _MOST_PAIRS = 2**23, 2**28  # pairs that are computed at once, and that are counted
_LOGICAL = ("and", "or", "not")


class Holds(StrEnum):
    """Meaning of a tensor's elements."""

    NUMBER = "number"
    """Keys before the first query, as in a cache."""
    DOCUMENTS = "documents"
    """Document of each position."""
    LENGTHS = "lengths"
    """Length of each sequence or head."""
    SEEN = "seen"
    """Whether something is seen."""


@dataclass(frozen=True, slots=True)
class MaskTensor:
    """Tensor that a mask reads."""

    name: str
    """Name in the mask's function, such as `t0`."""
    holds: Holds
    """Meaning of its elements."""
    axes: tuple[str, ...]
    """Index of each dimension: `b`, `h`, `q`, `kv`, or `s` for any position."""


@lru_cache(maxsize=256)
def tensors_of(mask: str) -> tuple[MaskTensor, ...]:
    """Return the tensors that a mask reads, in the order of their names.

    Raises:
        ValueError: an index mixes sequences, heads and positions, or reads a tensor.
    """
    found: dict[str, list[tuple[Function, ...]]] = {}
    flags: set[str] = set()
    for name, index, is_flag in _uses(function_of(mask) if mask != NONE else 1, is_flag=True):
        found.setdefault(name, []).append(index)
        flags |= {name} if is_flag else set()
    tensors = []
    for name, uses in sorted(found.items()):
        if len({len(index) for index in uses}) > 1:
            raise ValueError(f"its mask reads {name} by indices of several lengths")
        axes = tuple(_axis(name, place) for place in zip(*uses, strict=True))
        tensors.append(MaskTensor(name, _holds(axes, is_flag=name in flags), axes))
    return tuple(tensors)


def _uses(function: Function, *, is_flag: bool) -> Iterator[tuple[str, tuple[Function, ...], bool]]:
    """Yield each tensor with its index, and whether it is read as a condition."""
    if isinstance(function, str) and function in TENSORS:
        yield function, (), is_flag
    if not isinstance(function, tuple):
        return
    name, *operands = function
    if name == "at":
        yield operands[0], tuple(operands[1:]), is_flag
        return
    for place, operand in enumerate(operands):
        of_where = name == "where" and (place == 0 or is_flag)
        yield from _uses(operand, is_flag=name in _LOGICAL or of_where)


def _axis(name: str, indices: Sequence[Function]) -> str:
    if any(reads(index, each) for index in indices for each in TENSORS):
        raise ValueError(f"its mask looks {name} up by another tensor")
    letters = frozenset(each for each in ("b", "h", "q", "kv") if any(reads(index, each) for index in indices))
    if letters == {"q", "kv"}:
        return "s"
    if letters not in _AXES:
        raise ValueError(f"its mask reads {name} by an index of {', '.join(sorted(letters)) or 'a number'}")
    return _AXES[letters]


def _holds(axes: Sequence[str], *, is_flag: bool) -> Holds:
    if not axes:
        return Holds.NUMBER
    if "s" in axes or (not is_flag and {"q", "kv"} & {*axes}):
        return Holds.DOCUMENTS
    return Holds.SEEN if is_flag else Holds.LENGTHS


def values_of(
    tensor: MaskTensor, sizes: Mapping[str, int], documents: str, lengths: str, seen: str, block: tuple[int, int]
) -> np.ndarray[Any, Any]:
    """Return values of a tensor that a mask reads, int32, or bool for what is seen.

    Args:
        tensor: the tensor.
        sizes: size of each axis, those of `q` and `kv` among them.
        documents: lengths or number of documents.
        lengths: least and greatest length in percent of the keys, `50.100`.
        seen: percentages of the mask's blocks that are seen in full and in part, `30.20`.
        block: queries and keys per block of the mask.
    """
    import numpy as np

    shape = [sizes[axis] for axis in tensor.axes]
    if tensor.holds is Holds.NUMBER:
        return np.array(sizes["kv"] - sizes["q"], np.int32)
    if tensor.holds is Holds.LENGTHS:
        least, most = (sizes["kv"] * percent / 100 for percent in pair_of(lengths))
        return np.linspace(least, most, int(np.prod(shape))).round().astype(np.int32).reshape(shape)
    place = next((at for at, axis in enumerate(tensor.axes) if axis in ("s", "q", "kv")), 0)
    if tensor.holds is Holds.DOCUMENTS:
        each = lengths_of(documents, sizes["s"])
        return _along(np.repeat(np.arange(len(each), dtype=np.int32), each)[: shape[place]], shape, (place,))
    full, part = pair_of(seen)
    if {"q", "kv"} <= {*tensor.axes}:
        both = tensor.axes.index("q"), tensor.axes.index("kv")
        found, step = np.empty((sizes["q"], sizes["kv"]), bool), max(1, _PART // sizes["kv"])
        for first in range(0, sizes["q"], step):
            rows = np.arange(first, min(first + step, sizes["q"]))[:, None]
            found[first : first + step] = _blocks_seen(rows, np.arange(sizes["kv"]), sizes["kv"], seen, block)
        return _along(found, shape, both)
    share = (full + part / 2) / 100
    return _along(np.arange(shape[place]) < max(1, round(shape[place] * share)), shape, (place,))


def _blocks_seen(
    q: np.ndarray[Any, Any], kv: np.ndarray[Any, Any], keys: int, seen: str, block: tuple[int, int]
) -> np.ndarray[Any, Any]:
    """Return pairs of which each row of blocks sees some blocks in full, and of others every second pair."""
    columns = -(-keys // block[1])
    whole, partly = (round(columns * percent / 100) for percent in pair_of(seen))
    order = (kv // block[1] - q // block[0]) % columns
    found: np.ndarray[Any, Any] = (order < whole) | ((order < max(1, whole + partly)) & ((q + kv) % 2 == 0))
    return found


def _along(values: np.ndarray[Any, Any], shape: Sequence[int], places: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return values along some dimensions of a shape, and equal ones along the others."""
    import numpy as np

    values = values if list(places) == sorted(places) else values.T
    narrow = [size if place in places else 1 for place, size in enumerate(shape)]
    return np.broadcast_to(values.reshape(narrow), shape)


@lru_cache(maxsize=1024)
def coverage(
    mask: str, queries: int, keys: int, documents: str = "", lengths: str = "", seen: str = "", block: int = 1
) -> tuple[float, float]:
    """Return the shares of pairs and of keys that a mask leaves, of as many queries as can be counted quickly.

    The first sequence and head stand for all, with the mean of all lengths. `block` has the keys per block of the mask.
    """
    import numpy as np

    if mask == NONE:
        return 1.0, 1.0
    step = min(queries, max(-(-queries // _ROWS), queries * keys // _MOST_PAIRS))
    rows = np.arange(step // 2, queries, step)[:, None]
    values: dict[str, Any] = {"b": 0, "h": 0, "q": rows}
    sizes = {"b": 1, "h": 1, "q": queries, "kv": keys, "s": max(queries, keys)}
    mean = f"{sum(pair_of(lengths)) // 2}." * 2 if lengths else ""
    for tensor in tensors_of(mask):
        values[tensor.name] = tensor  # of pairs, computed by their indices
        if tensor.holds is not Holds.SEEN or not {"q", "kv"} <= {*tensor.axes}:
            values[tensor.name] = values_of(tensor, sizes, documents, mean[:-1], seen, (block, block))

    def at(tensor: Any, *index: Any) -> Any:  # noqa: ANN401 (arrays and numbers)
        if not isinstance(tensor, MaskTensor):
            return tensor[index]
        q, kv = (index[tensor.axes.index(axis)] % sizes[axis] for axis in ("q", "kv"))
        return _blocks_seen(q, kv, keys, seen, (block, block))

    numpys = {"pow": np.float_power, **{name: getattr(np, its) for name, its in SHARED.items()}}
    function, pairs, any_pairs, width = function_of(mask), 0, 0, max(1, _PART // len(rows))
    for first in range(0, keys, width):
        values["kv"] = np.arange(first, min(first + width, keys))[None]
        with np.errstate(all="ignore"):  # 0 divides beside a condition that hides it
            found = evaluated(function, values, {"at": at, **numpys})
        found = np.broadcast_to(np.asarray(found).astype(bool), (len(rows), values["kv"].size))
        pairs, any_pairs = pairs + int(found.sum()), any_pairs + int(found.any(axis=0).sum())
    return max(pairs / (len(rows) * keys), 1 / keys), max(any_pairs / keys, 1 / keys)


def pair_of(text: str) -> tuple[int, int]:
    """Return the two numbers of `30.20`."""
    one, _, other = text.partition(".")
    return int(one), int(other)
