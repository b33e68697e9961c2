"""Parts of a case of a user's kernel: its fields as text, and the arguments of one launch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gemmtune.engine.consumers.triton.contract import VALUE_TEXT
from gemmtune.engine.records.errors import ProblemError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class KernelOperands:
    """Arguments of one launch by name, without those that the config gives, and what restores them before a check."""

    by_name: Mapping[str, object]
    """Tensors and other values, in the kernel's order."""
    written: tuple[str, ...]
    """Names of the outputs."""
    first: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Copies of the tensors that the kernel reads and writes, or writes in part, as they are before a launch."""
    zeroed: tuple[str, ...] = ()
    """Names of the tensors that are zero before a launch."""
    hook: Callable[[Mapping[str, object]], None] | None = None
    """Function to call with the arguments, by name, before a launch that is checked."""

    @property
    def arguments(self) -> tuple[object, ...]:
        """Tensors and other values, in the kernel's order."""
        return tuple(self.by_name.values())

    @property
    def outputs(self) -> tuple[torch.Tensor, ...]:
        """Tensors that the kernel writes."""
        return tuple(self.by_name[name] for name in self.written)  # type: ignore[misc] # `tensors` checked it

    def restore(self) -> None:
        """Give the tensors that a launch changes the values that they have before it."""
        for name, values in self.first.items():
            self.by_name[name].copy_(values)  # type: ignore[attr-defined] # a tensor
        for name in self.zeroed:
            if self.by_name.get(name) is not None:
                self.by_name[name].zero_()  # type: ignore[attr-defined] # a tensor
        if self.hook is not None:
            self.hook(self.by_name)


def pairs_text(pairs: tuple[tuple[str, object], ...]) -> str:
    """Return pairs of name and value as `M=4096,N=1024`."""
    return ",".join(f"{name}={value}" for name, value in pairs)


def integers_of(field_name: str, text: str) -> tuple[tuple[str, int], ...]:
    """Return pairs of name and integer from `M=4096,N=1024`; raises ProblemError for any other text."""
    if not re.fullmatch(r"(\w+=-?[0-9]{1,18}(,\w+=-?[0-9]{1,18})*)?", text):
        raise ProblemError(f"{field_name}={text[:80]!r} is not NAME=INTEGER,... of at most 18 digits each")
    return tuple((name, int(value)) for name, value in (part.split("=") for part in text.split(",") if part))


def values_of(field_name: str, text: str) -> tuple[tuple[str, str], ...]:
    """Return pairs of name and text of a value from `n=4096,CAUSAL=True`; raises ProblemError for any other text."""
    pairs = [part.partition("=")[::2] for part in text.split(",")] if text else []
    if not all(name.isidentifier() and VALUE_TEXT.fullmatch(value) for name, value in pairs):
        raise ProblemError(
            f"{field_name}={text[:80]!r} is not NAME=VALUE,... with values such as 4096, True or tl.fp32"
        )
    return tuple(pairs)


def names_of(field_name: str, text: str) -> tuple[str, ...] | None:
    """Return the names of `[n,CAUSAL]`; None of no text; raises ProblemError for any other text."""
    if not re.fullmatch(r"(\[(\w+(,\w+)*)?\])?", text):
        raise ProblemError(f"{field_name}={text[:80]!r} is not [NAME,...]")
    return tuple(filter(None, text[1:-1].split(","))) if text else None
