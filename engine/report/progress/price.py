"""Price of machines, and the cost of a campaign by it."""

from __future__ import annotations

from dataclasses import dataclass

from gemmtune.engine.io.numbers import shown
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.state import CampaignState


@dataclass(frozen=True, slots=True)
class Price:
    """Price per hour of each machine, in the currency of the user."""

    gpu: float = 0.0
    """Price per GPU-hour that a campaign holds."""
    core: float = 0.0
    """Price per core-hour that builders take."""

    @classmethod
    def parse(cls, text: str) -> Price:
        """Read `gpu=2.5` or `gpu=2.5,core=0.04`; raises UsageError for another text, or a number below 0."""
        named = [part.partition("=") for part in text.split(",")]
        prices = {name.strip(): _number(number) for name, _, number in named}
        if len(prices) < len(named) or prices.keys() - {"gpu", "core"} or min(prices.values()) < 0:
            raise UsageError(f"price={shown(text)} is no price per hour: write gpu=2.5, or gpu=2.5,core=0.04")
        return cls(**prices)

    def of(self, state: CampaignState) -> float | None:
        """Return the cost of what a campaign has taken so far; None if it took no machine, as a replay."""
        if not state.gpu_seconds_held and not state.core_seconds:
            return None
        return (self.gpu * state.gpu_seconds_held + self.core * state.core_seconds) / 3600


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return -1.0
    return found if found < float("inf") else -1.0
