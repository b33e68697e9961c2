from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def ray_cluster():
    """Start a Ray of two cores, whose actors can import what lies beside this file."""
    ray = pytest.importorskip("ray", reason="needs gemmtune[ray]")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    try:
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield ray.get_runtime_context().gcs_address
        ray.shutdown()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@pytest.fixture
def cluster(ray_cluster):
    """A connection to it."""
    from gemmtune.engine.execution.ray.cluster import Cluster

    opened = Cluster()
    yield opened
    opened.close()
