"""Progress of campaigns as metrics: OpenTelemetry's, for the reader that is set up, and those of a Ray cluster."""

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
    "evaluations.new": ("1", "Evaluations that this run measured itself.", lambda its: its.state.new),
    "evaluations.failed": ("1", "Evaluations that failed.", lambda its: its.state.failures.total()),
    "builders.busy": ("1", "Builds that run.", lambda its: its.state.load.building if its.state.load else 0),
    "core": ("s", "Seconds of cores that built kernels.", lambda its: its.state.core_seconds),
    "gain": ("1", "Share of the baselines' weighted time that is saved.", lambda its: its.state.gain.value),
    "gain.problems": ("1", "Problems that the gain is of.", lambda its: its.state.gain.problems),
    "cost": ("1", "Cost by the price that was named.", lambda its: its.price.of(its.state) if its.price else None),
}
_COUNTERS = frozenset({"evaluations.new", "evaluations.failed", "gpu.held", "gpu.busy", "core"})


@contextmanager
def observed(
    state: CampaignState, name: str, location: str, price: Price | None, *, on_cluster: bool = False
) -> Iterator[Callable[[], None]]:
    """Offer a campaign's progress to OpenTelemetry during the block; nothing where opentelemetry-api is not installed.

    Yield the function that hands it to the Ray cluster, to be called once in a while; it does nothing without one.

    Args:
        state: progress of the campaign.
        name: name of the campaign, an attribute of each metric.
        location: host or cluster whose GPUs it takes, another attribute.
        price: price of its machines; None if nobody named one.
        on_cluster: whether it runs on a Ray cluster.
    """
    campaign = Observed(state, price, {"gemmtune.campaign": name, "gemmtune.location": location})
    if find_spec("opentelemetry") is not None:
        _make_instruments()
    _running.append(campaign)
    try:
        yield _publisher(campaign) if on_cluster else lambda: None
    finally:
        _running.remove(campaign)


def _publisher(campaign: Observed) -> Callable[[], None]:
    from gemmtune.engine.execution.ray.metrics import RayMetrics  # Ray takes a second to import

    def named(name: str) -> str:
        return f"gemmtune_{name.replace('.', '_')}"

    tags = {key.rpartition(".")[2]: value for key, value in campaign.attributes.items()}
    texts = {named(name): text for name, (_, text, _) in _METRICS.items()}
    metrics = RayMetrics(texts, frozenset(map(named, _COUNTERS)), tags)

    def publish() -> None:
        values = {named(name): value_of(campaign) for name, (_, _, value_of) in _METRICS.items()}
        metrics.publish({name: value for name, value in values.items() if value is not None})

    return publish


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
