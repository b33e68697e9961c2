"""A campaign's progress, as OpenTelemetry's own reader in memory collects it."""

from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import gemmtune as gt


class Reads(gt.Callback):
    """Collects what a reader sees after each evaluation: values by metric and campaign."""

    def __init__(self, reader: InMemoryMetricReader):
        self.reader, self.found = reader, []

    def on_measurement(self, measurement, score, *, known):
        self.found.append(points(self.reader))


def points(reader):
    data = reader.get_metrics_data()
    scopes = [scope for resource in (data.resource_metrics if data else ()) for scope in resource.scope_metrics]
    return {
        (metric.name.removeprefix("gemmtune."), point.attributes["gemmtune.campaign"]): point.value
        for scope in scopes
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def test_a_reader_collects_each_campaign_while_it_runs_and_no_cost_of_a_replay():
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    problem, backend = "16x4096x4096:bf16:nt", gt.landscapes("h200")
    for name in ("first", "nightly"):
        reads = Reads(reader)
        result = gt.tune(problem, backend=backend, budget=8, name=name, price="gpu=2", callbacks=[reads])
        last, lead = reads.found[-1], result.rows[0].lead
        assert last == {
            ("evaluations.done", name): 8,
            ("evaluations.total", name): 8,
            **{(seconds, name): 0 for seconds in ("gpu.held", "gpu.busy", "core")},
            ("gain", name): pytest.approx(lead / (1 + lead)),
            ("gain.problems", name): 1,
            ("evaluations.new", name): 8,
            **{(none, name): 0 for none in ("evaluations.failed", "builders.busy")},
        }
    assert not points(reader)
