"""Losses that a table may have against each problem's own best; imports nothing that makes a table."""

from dataclasses import dataclass

from gemmtune.engine.io.options import Option, Value, check_options, stated


@dataclass(frozen=True, slots=True)
class LossLimits:
    """Largest losses that shared configs may cost, as fractions of the objective's score."""

    worst: float = stated(0.02, Option("Largest loss of any one problem.", Value.FRACTION, least=0))
    """By default within the spread of one config across GPUs of one model."""
    mean: float = stated(0.005, Option("Largest weighted mean loss.", Value.FRACTION, least=0))
    """Mean over the problems of one space and family."""

    def __post_init__(self) -> None:
        """Refuse limits below 0."""
        check_options(self, "portfolio.")


@dataclass(frozen=True, slots=True)
class RangeLimits:
    """Limits of the loss that a range may have."""

    worst: float = stated(0.02, Option("Largest loss of a range's kernel at a measured m.", Value.FRACTION, least=0))
    """By default within the spread of one config across GPUs of one model. A lone size that kernels take at launch may
    lose more, see `lone_sizes`."""

    def __post_init__(self) -> None:
        """Refuse a limit below 0."""
        check_options(self, "ranges.")
