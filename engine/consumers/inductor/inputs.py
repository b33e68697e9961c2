"""Inputs of a model by their text: `bf16[16,2048]`, `int64[1,512]%32000`, `input_ids=int64[1,length:1..2048]`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemmtune.engine.records.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import torch

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
_DTYPES |= {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
_DTYPES |= {name: name for name in ("int64", "int32", "int16", "int8", "uint8", "bool")}
_ALIASES = {"float": "float32", "half": "float16", "double": "float64", "f16": "float16", "f32": "float32"}
_ALIASES |= {"long": "int64", "int": "int32", "short": "int16", "i64": "int64", "i32": "int32"}
"""Other common names of the types, torch's among them."""
_FORM = "[NAME=]DTYPE[SIZE,...], for example bf16[16,2048], tokens=int64[1,512]%32000 or bf16[m:1..4096,2048]"
_TEXT = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*)=)?(?:torch\.)?(?P<dtype>\w+)\[(?P<sizes>[^\]]*)\](?:%(?P<below>[0-9]{1,18}))?"
)
_SIZE = re.compile(r"(?P<name>[A-Za-z_]\w*)(?::(?P<first>[0-9]{1,18})\.\.(?P<last>[0-9]{1,18}))?")
_MOST_SIZE = 2**31 - 1
_MOST_BELOW = {"int8": 2**7, "uint8": 2**8, "int16": 2**15}  # of the other types: _MOST_SIZE
_MOST_BYTES = 2**63 - 1
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class OpenSize:
    """Size that differs between calls."""

    name: str
    """Name of the size."""
    first: int
    """Least value of the size."""
    last: int
    """Greatest value of the size."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """Tensor that a model is called with."""

    name: str
    """Name of the argument; empty for a positional one."""
    dtype: str
    """Name of the element type in torch."""
    sizes: tuple[int | str, ...]
    """Sizes; an open one by its name."""
    below: int | None
    """Bound of random integers, which start at 0; None for zeros."""

    def __str__(self) -> str:
        """Return the text that describes the tensor."""
        name = f"{self.name}=" if self.name else ""
        dtype = next((short for short, long in _DTYPES.items() if long == self.dtype), self.dtype)
        below = "" if self.below is None else f"%{self.below}"
        return f"{name}{dtype}[{','.join(map(str, self.sizes))}]{below}"

    def make(self, sizes: Mapping[str, int], device: torch.device) -> torch.Tensor:
        """Return a tensor for these open sizes: normal numbers, integers as the text says, true for bool.

        Raises:
            UsageError: the tensor is too large for torch, or cannot be made on the device.
        """
        import torch

        shape = [size if isinstance(size, int) else sizes[size] for size in self.sizes]
        dtype: torch.dtype = getattr(torch, self.dtype)
        if math.prod(shape) * dtype.itemsize > _MOST_BYTES:
            raise UsageError(
                f"input {self} has {math.prod(shape):.3g} elements, more than a tensor can: give smaller sizes"
            )
        try:
            return self._made(shape, dtype, device)
        except RuntimeError as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
            way = "; give smaller sizes" if "memory" in reason else ""
            raise UsageError(f"input {self} cannot be made on {device}: {reason}{way}") from error

    def _made(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        import torch

        if dtype.is_floating_point:
            return torch.randn(shape, dtype=None if dtype.itemsize == 1 else dtype, device=device).to(dtype)
        if dtype is torch.bool:
            return torch.ones(shape, dtype=dtype, device=device)
        if self.below is None:
            return torch.zeros(shape, dtype=dtype, device=device)
        return torch.randint(self.below, shape, dtype=dtype, device=device)


def parse_inputs(texts: Sequence[str]) -> tuple[tuple[InputSpec, ...], tuple[OpenSize, ...]]:
    """Return the inputs that texts describe, and their open sizes.

    Raises:
        UsageError: a text is malformed, or two have one name, or give one size different ranges.
    """
    found: dict[str, OpenSize | None] = {}
    specs = tuple(_parsed(text, found) for text in texts)
    names = [spec.name for spec in specs if spec.name]
    if twice := [name for name in names if names.count(name) > 1]:
        its = ", ".join(str(spec) for spec in specs if spec.name == twice[0])
        raise UsageError(f"inputs {its} have one name: each argument is given once, by its own name")
    if unknown := [name for name, its in found.items() if its is None]:
        raise UsageError(f"size {unknown[0]!r} has no range: write {unknown[0]}:1..4096 where it first stands")
    return specs, tuple(size for size in found.values() if size is not None)


def open_sizes(sizes: Sequence[OpenSize]) -> tuple[dict[str, int], ...]:
    """Return values of the open sizes for a model's calls: between both ends first, then at the ends.

    No two sizes share a value in the first call, so that torch's symbols can be told apart by it.
    """
    if not sizes:
        return ({},)
    middle: dict[str, int] = {}
    for size in sizes:
        value = max(2, int((size.first * size.last) ** 0.5) // _ALIGNMENT * _ALIGNMENT, size.first)
        while value in middle.values():
            value += _ALIGNMENT
        middle[size.name] = value if value <= size.last else size.last
    ends = ({size.name: size.last for size in sizes}, {size.name: size.first for size in sizes})
    calls = [middle, *(end for end in ends if end != middle)]
    return tuple(calls)


def _parsed(text: str, found: dict[str, OpenSize | None]) -> InputSpec:
    whole = _TEXT.fullmatch(text.replace(" ", ""))
    if whole is None:
        raise UsageError(f"malformed input {text[:200]!r}: expected {_FORM}")
    named = whole["dtype"].lower()
    dtype = (_DTYPES | _ALIASES).get(named, named)
    if dtype not in _DTYPES.values():
        meant = did_you_mean(named, (*_DTYPES, *_ALIASES))
        raise UsageError(f"input {text!r}: dtype {whole['dtype']!r} is unknown; {meant}known: {', '.join(_DTYPES)}")
    sizes = [_size(part, text, found) for part in whole["sizes"].split(",")] if whole["sizes"] else []
    below = None if whole["below"] is None else int(whole["below"])
    most = _MOST_BELOW.get(dtype, _MOST_SIZE)
    if below is not None and (dtype.startswith(("float", "bfloat", "bool")) or not 1 <= below <= most):
        raise UsageError(f"input {text!r}: %{below} bounds integers, from 1 to {most}")
    return InputSpec(whole["name"] or "", dtype, tuple(sizes), below)


def _size(part: str, text: str, found: dict[str, OpenSize | None]) -> int | str:
    if part.isascii() and part.isdecimal():
        if len(part) > len(str(_MOST_SIZE)) or not 1 <= int(part) <= _MOST_SIZE:
            raise UsageError(f"input {text[:200]!r}: size {part[:80]} is not from 1 to {_MOST_SIZE}")
        return int(part)
    if not part:
        raise UsageError(f"input {text[:200]!r}: a size is missing; one comma parts two sizes, as in bf16[16,32]")
    named = _SIZE.fullmatch(part)
    if named is None:
        raise UsageError(f"input {text[:200]!r}: size {part!r} is no number and no NAME:FIRST..LAST; commas part sizes")
    name = named["name"]
    if named["first"] is None:
        found.setdefault(name, None)
        return name
    size = OpenSize(name, int(named["first"]), int(named["last"]))
    if not 1 <= size.first < size.last <= _MOST_SIZE:
        raise UsageError(f"input {text!r}: {part} is no range; the first size is at least 1 and below the last")
    if found.get(name) not in (None, size):
        raise UsageError(f"size {name!r} has two ranges; give it one, and its name alone elsewhere")
    found[name] = size
    return name
