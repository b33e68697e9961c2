"""A yes, or a no with its reason."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Verdict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Truthy for yes; a no always carries its reason, with the value and the bound in it."""

    reason: str = ""
    """Why not, for a person; empty for yes."""
    rule: str = ""
    """Short name of the rule that said no, to count rejections by; empty for yes."""

    def __bool__(self) -> bool:
        """Whether the verdict is yes."""
        return not self.reason

    @classmethod
    def yes(cls) -> Verdict:
        """Nothing speaks against it."""
        return cls()

    @classmethod
    def no(cls, rule: str, reason: str) -> Verdict:
        """`Verdict.no("shared memory", "263168 B needed > 232448 B a block at 4 stages")`."""
        if not rule or not reason:
            raise ValueError("a rejection needs its rule and its reason")
        return cls(reason=reason, rule=rule)
