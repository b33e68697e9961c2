"""A campaign's metrics on a cluster of one node, as Prometheus reads them there."""

from __future__ import annotations

import re
import socket
import time
from urllib.request import urlopen

import pytest

pytest.importorskip("ray", reason="needs gemmtune[ray]")
pytest.importorskip("prometheus_client", reason="ray[default] is not installed")

import ray

import gemmtune as gt

pytestmark = [pytest.mark.slow(15, together="ray"), pytest.mark.timeout(240)]


@pytest.fixture
def exported():
    """Join a cluster of this process's own; return a function that reads gemmtune's metrics of a campaign."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        _metrics_export_port=port,
        _system_config={"metrics_report_interval_ms": 500},
    )

    def read(campaign: str) -> dict[str, float]:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        lines = re.findall(r"^ray_gemmtune_(\w+)\{(.*)\} (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, tags, value in lines if f'campaign="{campaign}"' in tags}

    yield read
    ray.shutdown()


def test_prometheus_reads_what_a_campaign_did(exported):
    result = gt.tune("16x4096x4096:bf16:nt", backend=gt.landscapes("h200"), budget=8, fleet="ray", name="nightly")
    until, found = time.monotonic() + 60, {}
    while len(found) < 4 and time.monotonic() < until:
        time.sleep(0.5)
        try:
            found = exported("nightly")
        except OSError:  # the node's agent starts for seconds
            continue
    lead = result.rows[0].lead
    assert found["evaluations_done"] == found["evaluations_new_total"] == 8
    assert (found["evaluations_total"], found["gain_problems"], found["builders_busy"]) == (8, 1, 0)
    assert found["gain"] == pytest.approx(lead / (1 + lead))
