"""Verdicts: a yes, or a no with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decision on a config. A yes is truthy; a no has a reason with the value and the bound."""

    reason: str = ""
    """Reason of a no, for people; empty for yes."""
    rule: str = ""
    """Short name of the rejecting rule, to count rejections by; empty for yes."""

    def __bool__(self) -> bool:
        return not self.reason

    @classmethod
    def yes(cls) -> Verdict:
        """Create a yes, without a reason."""
        return cls()

    @classmethod
    def no(cls, rule: str, reason: str) -> Verdict:
        """Create a no: `Verdict.no("shared memory", "263168 B per block > 232448 B at 4 stages")`.

        Raises:
            ValueError: the rule or the reason is empty.
        """
        if not rule or not reason:
            raise ValueError("a rejection needs its rule and its reason")
        return cls(reason=reason, rule=rule)
