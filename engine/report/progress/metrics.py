"""Progress of campaigns as OpenTelemetry metrics, for whatever reader the process or its environment has set up."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from gemmtune.engine.report.progress.price import Price
from gemmtune.engine.report.progress.state import CampaignState


class Observed(NamedTuple):
    """A running campaign of this process."""

    state: CampaignState
    """Progress of the campaign."""
    price: Price | None
    """Price of its machines; None if nobody named one."""
    attributes: dict[str, str]
    """Attributes of each of its metrics."""


_running: list[Observed] = []
_METRICS: dict[str, tuple[str, str, Callable[[Observed], float | None]]] = {
    "evaluations.done": ("1", "Evaluations that are done.", lambda its: its.state.done),
    "evaluations.total": ("1", "Evaluations that the searches may spend.", lambda its: its.state.total),
    "gpu.held": ("s", "Seconds of GPUs that the campaign had.", lambda its: its.state.gpu_seconds_held),
    "gpu.busy": ("s", "Seconds of GPUs that had a config to time.", lambda its: its.state.gpu_seconds_busy),
    "core": ("s", "Seconds of cores that built kernels.", lambda its: its.state.core_seconds),
    "gain": ("1", "Share of the baselines' weighted time that is saved.", lambda its: its.state.gain.value),
    "gain.problems": ("1", "Problems that the gain is of.", lambda its: its.state.gain.problems),
    "cost": ("1", "Cost by the price that was named.", lambda its: its.price.of(its.state) if its.price else None),
}


@contextmanager
def observed(state: CampaignState, name: str, location: str, price: Price | None) -> Iterator[None]:
    """Offer a campaign's progress to OpenTelemetry during the block; nothing where opentelemetry-api is not installed.

    Args:
        state: progress of the campaign.
        name: name of the campaign, an attribute of each metric.
        location: host or cluster whose GPUs it takes, another attribute.
        price: price of its machines; None if nobody named one.
    """
    campaign = Observed(state, price, {"gemmtune.campaign": name, "gemmtune.location": location})
    if find_spec("opentelemetry") is not None:
        _make_instruments()
    _running.append(campaign)
    try:
        yield
    finally:
        _running.remove(campaign)


@cache
def _make_instruments() -> None:
    """Make the instruments of this process, once; a reader that is set up later reads them, too."""
    from opentelemetry.metrics import CallbackOptions, Observation, get_meter

    def reader(value_of: Callable[[Observed], float | None]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterator[Observation]:
            for campaign in tuple(_running):
                if (value := value_of(campaign)) is not None:
                    yield Observation(value, campaign.attributes)

        return read

    meter: Any = get_meter("gemmtune")
    for name, (unit, text, value_of) in _METRICS.items():
        meter.create_observable_gauge(f"gemmtune.{name}", [reader(value_of)], unit, text)
