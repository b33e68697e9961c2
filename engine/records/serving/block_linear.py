"""Linear layers in fp8 with scales per block, as a serving engine runs them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Self

from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.serving.moe_layer import SCALE_BLOCK
from gemmtune.engine.records.workload import Workload

__all__ = ["BlockLinear", "SglangBlockFp8", "VllmBlockFp8"]

_MOST = 2**20
_HELP = "write KIND:m16:n4096:k7168"
_SIZES = {"m": "tokens", "n": "n", "k": "k"}
"""Field of each letter in a workload's name."""


@dataclass(frozen=True, slots=True)
class BlockLinear(Workload):
    """Product of e4m3 activations and weights in bf16; 128×128 of a weight share a scale, as do 128 of a row."""

    tokens: int
    """Tokens of one step, the rows of the product; at least 1."""
    n: int
    """Output features; at least 1."""
    k: int
    """Input features; a multiple of 128."""
    weight: float = field(default=1.0, compare=False)
    """Call frequency in the user's program, relative to the other workloads."""

    def __post_init__(self) -> None:
        """Refuse sizes that no layer has."""
        for name in _SIZES.values():
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value <= _MOST:
                raise ProblemError(f"{name}={value} is not an integer from 1 to {_MOST}")
        if self.k % SCALE_BLOCK:
            raise ProblemError(f"k={self.k} is no multiple of {SCALE_BLOCK}, the block of scales")
        if not 0 < self.weight < math.inf:
            raise ProblemError(f"weight={self.weight} is not a number above 0")

    @property
    def name(self) -> str:
        """Canonical text, `vllm_block_fp8:m16:n4096:k7168`, which `parse` reads."""
        return ":".join([self.kind, *(f"{letter}{getattr(self, name)}" for letter, name in _SIZES.items())])

    @property
    def flops(self) -> int:
        """Number of arithmetic operations of the product."""
        return 2 * self.tokens * self.n * self.k

    @property
    def min_bytes(self) -> int:
        """Bytes of both operands and of the output in bf16, without the scales."""
        return self.tokens * self.k + self.n * self.k + 2 * self.tokens * self.n

    @property
    def sizes(self) -> Mapping[str, int]:
        """Tokens, output and input features."""
        return {name: getattr(self, name) for name in _SIZES.values()}

    def to_fields(self) -> Mapping[str, str]:
        """Return every compared field as text, which `from_fields` reads."""
        return {each.name: str(getattr(self, each.name)) for each in fields(self) if each.compare}

    @classmethod
    def from_fields(cls, record: Mapping[str, str]) -> Self:
        """Return the layer of text fields.

        Raises:
            ProblemError: a field is unknown, missing or malformed.
        """
        known = {each.name for each in fields(cls)}
        if unknown := sorted(set(record) - known):
            raise ProblemError(f"unknown field {unknown[0]!r}; known: {', '.join(sorted(known))}")
        if missing := [name for name in _SIZES.values() if name not in record]:
            raise ProblemError(f"{missing[0]} is missing: {_HELP}")
        try:
            sizes = {name: int(record[name]) for name in _SIZES.values()}
            return cls(**sizes, weight=float(record.get("weight", "1")))
        except ValueError as error:
            raise ProblemError(f"{error}: {_HELP}") from None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `KIND:m16:n4096:k7168`.

        Raises:
            ProblemError: the text is malformed or a size is out of bounds.
        """
        record: dict[str, str] = {}
        for part in text.strip().lower().removeprefix(f"{cls.kind}:").split(":"):
            size = re.fullmatch(r"([mnk])(\d+)", part)
            if size is None or _SIZES[size[1]] in record:
                raise ProblemError(f"{text[:200]!r}: {part!r} is no size, or stands twice: {_HELP}")
            record[_SIZES[size[1]]] = size[2]
        try:
            return cls.from_fields(record)
        except ProblemError as error:
            raise ProblemError(f"{text[:200]!r}: {error}") from None

    @property
    def range_size(self) -> str:
        """Tokens, of which one row of the table may serve a range."""
        return "tokens"

    def resized(self, size: int, weight: float | None = None) -> Self:
        """Return the layer with another number of tokens, and another weight unless it is None."""
        return replace(self, tokens=size, weight=self.weight if weight is None else weight)

    @property
    def family(self) -> Self:
        """Layer of the smallest sizes with weight 1."""
        return replace(self, tokens=1, n=1, k=SCALE_BLOCK, weight=1.0)


@dataclass(frozen=True, slots=True)
class VllmBlockFp8(BlockLinear):
    """Layer that vLLM runs with its Triton kernel."""

    kind: ClassVar[str] = "vllm_block_fp8"
    baseline_space: ClassVar[str] = "vllm_block_fp8_shipped"
    baseline_words: ClassVar[str] = "vLLM's present config"


@dataclass(frozen=True, slots=True)
class SglangBlockFp8(BlockLinear):
    """Layer that SGLang runs with its Triton kernels."""

    kind: ClassVar[str] = "sglang_block_fp8"
    baseline_space: ClassVar[str] = "sglang_block_fp8_shipped"
    baseline_words: ClassVar[str] = "SGLang's present config"
