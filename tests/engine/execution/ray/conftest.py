from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = str(Path(__file__).parent)


@pytest.fixture(scope="module")
def ray_cluster():
    """Start a Ray of two cores, whose actors can import what lies beside this file."""
    ray = pytest.importorskip("ray", reason="needs gemmtune[ray]")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        patch.setenv("PYTHONPATH", FOLDER)
        from few_processes import few_processes

        with few_processes():
            ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield ray.get_runtime_context().gcs_address
        ray.shutdown()


@pytest.fixture
def cluster(ray_cluster):
    """A connection to it."""
    from gemmtune.engine.execution.ray.cluster import Cluster

    opened = Cluster()
    yield opened
    opened.close()
