"""Arguments of one launch of a user's kernel, and what restores them before a check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class KernelOperands:
    """Arguments of one launch by name, without those that the config gives."""

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
