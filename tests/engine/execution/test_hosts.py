"""Hosts that a command measures on: this machine or a cluster, its GPU model, and refusals."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import gemmtune as gt
from gemmtune.engine.api.recording import record
from gemmtune.engine.execution.hosts import Hosts
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import DeviceError, ToolchainMissing, UsageError
from gemmtune.engine.toolchain.gpu_info import present_device

from .fake_cluster import FakeCluster, hosts_of

H200, H100 = catalogue.device("H200"), catalogue.device("H100")
PROBLEM = "16x4096x4096:bf16:nt"


@pytest.fixture
def cluster(monkeypatch):
    """Return a function that lets the Ray cluster have GPUs of these models; it returns the cluster."""

    def make(*devices):
        found = FakeCluster(*devices)
        monkeypatch.setitem(sys.modules, "ray", sys)  # there, and never used
        monkeypatch.setitem(
            sys.modules, "gemmtune.engine.execution.ray.cluster", SimpleNamespace(Cluster=lambda address, notify: found)
        )
        return found

    return make


@pytest.mark.parametrize(
    ("gpus", "wanted", "found"),
    [((), None, None), ((H100,), None, H100), ((H100, H100), H200, H100), ((H100, H200), H200, H200)],
)
def test_the_wanted_or_only_model_of_a_cluster_is_measured(gpus, wanted, found):
    assert hosts_of(FakeCluster(*gpus)).device(wanted) is found


def test_a_cluster_of_several_models_needs_a_name():
    with pytest.raises(DeviceError) as refused:
        hosts_of(FakeCluster(H200, H100, H200)).device()
    assert str(refused.value) == (
        f"the cluster has {H200.sku} and {H100.sku}, and a campaign is of one: name the device"
    )


@pytest.mark.parametrize("fleet", ["slurm", "rays", "Ray", ""])
def test_an_unknown_fleet_is_refused(fleet):
    with pytest.raises(UsageError) as refused:
        Hosts(fleet, None, print)
    assert str(refused.value) == f"no fleet {fleet!r}; known: local, ray, ray://HOST:PORT"


def test_a_fleet_names_its_address_and_needs_ray(monkeypatch):
    assert Hosts("local", "head:1", print).cluster is None
    module = "gemmtune.engine.execution.ray.cluster"
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ToolchainMissing, match=r"^--fleet ray needs ray: \S"):
        Hosts("ray", None, print)
    monkeypatch.setitem(sys.modules, "ray", sys)  # there, and never used
    fake = SimpleNamespace(Cluster=lambda address, notify: (address, notify))
    monkeypatch.setitem(sys.modules, module, fake)
    assert Hosts("ray", "head:1", print).cluster == ("head:1", print)
    assert Hosts("ray://other:2", "head:1", print).cluster == ("ray://other:2", print)


def test_a_command_that_measures_leaves_a_cluster_without_gpus(cluster):
    found = cluster()
    with pytest.raises(DeviceError, match=r"^sweep measures, and there is no GPU in the Ray cluster$"):
        record(PROBLEM, fleet="ray")
    assert found.closed


def test_a_table_is_verified_on_the_gpus_of_its_model_alone(cluster):
    table = gt.tune(PROBLEM, backend=gt.landscapes("h200"), budget=4).table
    cluster(H100)
    with pytest.raises(DeviceError, match="the table is for NVIDIA H200, not NVIDIA H100"):
        gt.verify(table, fleet="ray")
    cluster()
    with pytest.raises(DeviceError, match=r"^verify measures, and there is no GPU in the Ray cluster; --replay"):
        gt.verify(table, fleet="ray")


def test_a_recording_on_a_cluster_locks_no_clocks_and_names_one_of_its_models(cluster):
    with pytest.raises(UsageError, match="locked clocks are for GPUs of this machine, and fleet ray measures"):
        record(PROBLEM, fleet="ray", lock_clocks=1500)
    found = cluster(H200, H100)
    with pytest.raises(DeviceError, match="H200 and H100-SXM, and a campaign is of one"):
        record(PROBLEM, fleet="ray")
    assert found.closed


@pytest.mark.gpu
@pytest.mark.skipif(present_device() is None, reason="needs a GPU")
@pytest.mark.timeout(300)
def test_a_cluster_records_and_verifies(tmp_path):
    pytest.importorskip("ray", reason="needs gemmtune[ray]")
    record("16x512x512:bf16:nt", spaces=["aten"], fleet="ray", out=tmp_path / "recorded")
    [file] = (tmp_path / "recorded").glob("*_aten.csv.gz")
    assert file.stat().st_size
    table = gt.tune("16x512x512:bf16:nt", budget=4).table
    found = gt.verify(table, fleet="ray")
    assert [check.problem for check in found.record.rows] == [row.problem for row in table.rows]
    assert found.record.rows[0].time_ns > 0
