"""Verdicts: on a config, a yes or a no with its reason, and on a board whether it is trusted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decision on a config. A yes is truthy; a no has a reason with the value and the bound.

    Example:
        >>> import gemmtune as gt
        >>> bool(gt.Verdict.yes()), bool(gt.Verdict.no("shared memory", "250 KiB > 227 KiB"))
        (True, False)
    """

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


class Trust(StrEnum):
    """Whether a board's measurements count."""

    SEEN = "seen"
    """Nothing speaks against the board, which has measured."""
    OFF = "off"
    """Its times differ from those of other boards by 5 % or more; they count."""
    QUARANTINED = "quarantined"
    """Its times differ by 15 % or more, or it fails where others do not: it measures no more."""


@dataclass(frozen=True, slots=True)
class BoardVerdict:
    """Finding of the checks about a board."""

    board: str
    """UUID of the GPU; its worker's name where the worker never told it."""
    worker: str
    """Worker that measured on the board; empty for a board of an earlier campaign."""
    trust: Trust
    """Whether its measurements count."""
    reason: str
    """Reason for people; empty where nothing speaks against the board."""
    since: str
    """UTC time, ISO 8601, of the last check that vouched for the board, or of its first result before one did. What a
    quarantined board measured from then on does not count."""
    at: str
    """UTC time of the verdict, ISO 8601 with seconds."""
