"""Shares of a model's layers that an engine gives to each rank."""

from dataclasses import dataclass

from gemmtune.engine.consumers.serving.contract.file_name import Engine
from gemmtune.engine.records.errors import UsageError


@dataclass(frozen=True, slots=True)
class Sharding:
    """Ranks that share the layers of a model."""

    engine: Engine
    """Engine that serves the model."""
    tp: int = 1
    """Ranks that a linear layer is cut over."""
    ep: int = 1
    """Ranks that the experts of a layer are dealt to; 1 leaves all experts on each rank."""

    def __post_init__(self) -> None:
        """Raise a UsageError for numbers of ranks that the engine refuses, too."""
        if self.tp < 1 or self.ep < 1:
            raise UsageError(f"tp={self.tp} and ep={self.ep} are numbers of ranks, from 1 on")
        if self.engine is Engine.SGLANG and self.tp % self.ep:
            raise UsageError(f"SGLang deals experts to a divisor of its {self.tp} ranks, and ep={self.ep} is none")
        if self.engine is Engine.VLLM and self.ep > 1 and self.ep % self.tp:
            raise UsageError(
                f"vLLM deals experts to all of its ranks or to none: with tp={self.tp}, ep is 1, or with "
                f"--enable-expert-parallel {self.tp} times the data-parallel size, and not {self.ep}"
            )

    @property
    def expert_tp(self) -> int:
        """Ranks that one expert is cut over."""
        return self.tp // self.ep if self.engine is Engine.SGLANG else self.tp if self.ep == 1 else 1

    def cut(self, size: int, ranks: int, what: str) -> int:
        """Return the part of a size that a rank has.

        Raises:
            UsageError: the ranks do not divide it; both engines refuse it, too.
        """
        if size % ranks:
            raise UsageError(f"{ranks} ranks do not divide {what}, {size}: choose another tp or ep")
        return size // ranks

    def local_experts(self, experts: int) -> tuple[int, ...]:
        """Return the numbers of experts that a rank with any may have, the largest first.

        Raises:
            UsageError: SGLang takes no experts that its ranks do not divide.
        """
        if self.engine is Engine.SGLANG:
            return (self.cut(experts, self.ep, "the number of experts"),)
        return tuple(each for each in dict.fromkeys((-(-experts // self.ep), experts // self.ep)) if each)
