"""A cluster that gemmtune starts itself: its actors start processes, and say why where they cannot."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("ray", reason="needs gemmtune[ray]")

from gemmtune.engine.campaign.open_backend import open_backend
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.records.errors import GemmtuneError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.problem import Problem

pytestmark = [pytest.mark.slow(10), pytest.mark.timeout(300)]

BEGIN = """
import ray

from gemmtune.engine.execution.ray.actor import BuilderActor
from gemmtune.engine.execution.ray.cluster import Cluster
from gemmtune.engine.measure.builder import builder_pool

def make_builders(folder, notify):
    return builder_pool(("aten",), folder, 1, notify=notify)


if __name__ == "__main__":
    cluster = Cluster(cpus=1)
    actor = cluster.start(BuilderActor, make_builders, cluster.nodes()[0], 1, 0)
    print(ray.get(actor.begin.remote(), timeout=120).size)
    ray.get(actor.close.remote(), timeout=60)
    cluster.close()
"""


def test_an_actor_of_its_own_cluster_starts_builders(tmp_path, own_ray):
    script = tmp_path / "begin.py"
    script.write_text(BEGIN)
    done = subprocess.run(
        [sys.executable, "-P", script], capture_output=True, text=True, check=False, timeout=280, env=own_ray
    )
    assert done.stdout.strip() == "1", done.stderr[-4000:]


def test_the_driver_receives_what_an_actor_raises(cluster, monkeypatch, tmp_path):
    from gemmtune.engine.execution.ray.actor import JobActor
    from gemmtune.engine.execution.ray.actor_handle import ActorHandle

    monkeypatch.syspath_prepend(Path(__file__).parent)
    import ray_toys

    there = Event()
    handle = ActorHandle("toy", cluster.start(JobActor, ray_toys.raises, cluster.nodes()[0], 0, 0), tmp_path, there)
    assert there.wait(60)
    with pytest.raises(GemmtuneError, match=r"^toy is lost: OSError: no room on /scratch$"):
        handle.collect()
    handle.close()


def test_a_ray_that_runs_here_is_found_where_ray_leaves_its_address(tmp_path, monkeypatch):
    from gemmtune.engine.execution.ray import cluster as ray_cluster

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.delenv("RAY_TMPDIR", raising=False)
        assert ray_cluster._running_here() == address
        monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "other"))
        assert ray_cluster._running_here() is None
        monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert ray_cluster._running_here() is None, "nothing listens there any more"


def test_a_cluster_without_a_gpu_replays_the_landscapes_in_this_process(ray_cluster):
    plan = Plan(problems=(Problem.parse("16x4096x4096"),), budget=4)
    backend = open_backend(plan, cluster="ray", ray_address=ray_cluster)
    assert backend.executor.evidence is Evidence.REPLAYED
    assert backend.notes == ("No GPU in the Ray cluster; the recorded landscapes answer in this process.",)
    backend.close()
