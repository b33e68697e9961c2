"""Progress of a campaign as metrics of its Ray cluster, whose nodes export them to Prometheus."""

from collections.abc import Mapping

import ray
from ray.util import client
from ray.util.metrics import Counter, Gauge


class RayMetrics:
    """Counters and gauges of this driver; Ray drops them where `ray[default]` is not installed on its node."""

    def __init__(self, texts: Mapping[str, str], counters: frozenset[str], tags: Mapping[str, str]) -> None:
        """Make the metrics, if this process has joined a cluster itself: one behind ray:// has no exporter.

        Args:
            texts: description of each metric, by its name.
            counters: names of those that only grow.
            tags: tags of each value.
        """
        self._tags = dict(tags)
        self._counted = dict.fromkeys(counters, 0.0)
        joined = ray.is_initialized() and not client.ray.is_connected()  # type: ignore[no-untyped-call]
        kinds = {name: Counter if name in counters else Gauge for name in texts if joined}
        self._metrics = {name: kind(name, texts[name], tag_keys=tuple(tags)) for name, kind in kinds.items()}

    def publish(self, values: Mapping[str, float]) -> None:
        """Hand new values to Ray, by the names of their metrics; counters get what was added since the last call."""
        for name, value in values.items():
            metric = self._metrics.get(name)
            if isinstance(metric, Gauge):
                metric.set(value, self._tags)
            elif metric is not None and value > self._counted[name]:
                metric.inc(value - self._counted[name], self._tags)
                self._counted[name] = value
