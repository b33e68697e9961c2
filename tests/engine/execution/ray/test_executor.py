"""Real actors of a real Ray: the same results as in one process, and what their deaths cost."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("ray", reason="needs gemmtune[ray]")

from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.open_backend import open_backend
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import completed, read_all, replayed_backend
from gemmtune.engine.execution.dispatcher import JobResult
from gemmtune.engine.execution.ray import executor as ray_executor
from gemmtune.engine.execution.ray.actor import JobActor
from gemmtune.engine.execution.ray.actor_handle import ActorHandle
from gemmtune.engine.execution.ray.executor import ActorPlan, RayExecutor, RayMachines
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.processes.process_pool import Loss
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import GemmtuneError, ToolchainMissing
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.executor import Load
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded

pytestmark = [pytest.mark.slow(30, together="ray"), pytest.mark.timeout(300)]


@pytest.fixture
def toys(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    import ray_toys

    return ray_toys


@pytest.fixture
def simulation(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    import simulation

    return simulation


@pytest.fixture
def machines_with(cluster):
    """Open machines whose one node has these workers, and no builder."""
    opened = []

    def open_machines(**workers):
        plans = [ActorPlan(name, make) for name, make in workers.items()]
        notices = []
        opened.append(RayMachines(cluster, lambda node: ([], plans), affinity=False, notify=notices.append))
        vars(opened[-1])["notices"] = notices
        return opened[-1]

    yield open_machines
    for machines in opened:
        machines.close()


def finish(machines, *jobs):
    for job in jobs:
        machines.workers.submit(job)
    done: list[JobResult] = []
    until = time.monotonic() + 120
    while machines.workers.pending and time.monotonic() < until:
        done += machines.workers.collect()
        machines.wait(0.5)
    assert machines.workers.pending == 0
    return done


def by_job(done):
    return {d.outcome.job: d.outcome for d in done}


def test_an_actor_holds_the_processes_that_a_local_executor_has(machines_with, toys):
    machines = machines_with(toy=toys.processes(size=2, deadline_seconds=1.0))
    jobs = [("echo", "a"), ("kill", 0), ("sleep", 100), ("pid", 0), ("modules", ("ray", "gemmtune.engine"))]
    found = by_job(finish(machines, *jobs))
    assert found["echo", "a"].result == "a"
    assert found["kill", 0].loss is Loss.DIED, "it killed its process twice"
    assert found["kill", 0].reason == "its process ended (signal SIGKILL)"
    assert (found["sleep", 100].loss, found["sleep", 100].reason) == (Loss.TIMED_OUT, "still running after 1 s")
    assert found["pid", 0].result != os.getpid()
    assert found[jobs[-1]].result == {"gemmtune.engine"}, "a builder or worker loads no ray"
    assert "a worker process ended (signal SIGKILL) while it ran ('kill', 0); running it again" in (machines.notices)


def test_queue_time_is_no_run_time(machines_with, toys):
    machines = machines_with(toy=toys.processes(deadline_seconds=2.0))
    done = finish(machines, *[("sleep", 0.4 + number / 1e6) for number in range(8)])
    assert [d.outcome.loss for d in done] == [None] * 8


def test_an_actor_that_is_killed_loses_no_job_and_starts_again(machines_with, toys):
    machines = machines_with(first=toys.processes(), second=toys.processes())
    finish(machines, ("echo", 1), ("echo", 2))
    done = finish(machines, ("kill the actor", 0), *[("sleep", 0.05 + number / 1e6) for number in range(6)])
    found = by_job(done)
    assert found["kill the actor", 0].loss is Loss.DIED
    assert found["kill the actor", 0].reason.startswith("its actor ended 3 times while it had the job (last: ")
    assert [outcome.result for job, outcome in found.items() if job[0] == "sleep"] == ["sleep"] * 6
    assert sum("its actor ended" in notice for notice in machines.notices) == 3
    assert len(finish(machines, ("echo", 3), ("echo", 4), ("echo", 5))) == 3


def test_a_worker_of_another_kind_is_left_out_and_the_others_go_on(machines_with, toys):
    machines = machines_with(l4=toys.cannot_be_made, good=toys.processes())
    done = finish(machines, *[("echo", number) for number in range(4)])
    assert {d.worker for d in done} == {"good"}
    until = time.monotonic() + 60
    while "l4" in machines.workers.busy and time.monotonic() < until:  # its actor may be the slower one to start
        machines.wait(0.1)
        machines.workers.collect()
    assert machines.notices == ["l4: its GPU is L4, the tasks are of H200; the others go on"]
    with pytest.raises(GemmtuneError, match="its GPU is L4, the tasks are of H200"):
        finish(machines_with(l4=toys.cannot_be_made), ("echo", 0))


def test_idle_actors_are_released_so_that_two_campaigns_share_a_cluster(cluster, toys, monkeypatch):
    monkeypatch.setattr(ray_executor, "SAY_SECONDS", 0.5)
    monkeypatch.setattr(ray_executor, "_IDLE_SECONDS", 1.0)
    notices = {"first": [], "second": []}

    def machines(name):
        plans = [ActorPlan(name, toys.processes(), cpus=2)]
        return RayMachines(cluster, lambda node: ([], plans), affinity=False, notify=notices[name].append)

    with closing(machines("first")) as first:
        finish(first, ("echo", 1))
        with closing(machines("second")) as second:
            waiting = ("echo", 2)
            second.workers.submit(waiting)
            until, done = time.monotonic() + 60, []
            while not done and time.monotonic() < until:
                first.wait(0.1)
                second.wait(0.1)
                done = second.workers.collect()
            assert by_job(done)[waiting].result == 2
            assert first.workers.busy == {}, "it was released"
            (line, *_) = notices["second"]
            assert line.startswith("waiting for the cluster: no GPU worker in ")
            assert line.endswith("s; 0 of 0 GPUs and 0 of 2 cores are free")
            first.workers.submit(again := ("echo", 3))
            done = []
            while not done and time.monotonic() < until:
                second.wait(0.1)
                first.wait(0.1)
                done = first.workers.collect()
            assert by_job(done)[again].result == 3, "it starts again once the other one is idle"


def test_an_actor_that_is_excluded_holds_nothing(cluster, toys):
    plans = [ActorPlan("good", toys.processes(), cpus=1), ActorPlan("bad", toys.cannot_be_made, cpus=1)]
    with closing(RayMachines(cluster, lambda node: ([], plans), affinity=False)) as machines:
        finish(machines, ("echo", 1))
        until = time.monotonic() + 60
        while (cluster.free(), list(machines.workers.busy)) != ("0 of 0 GPUs and 1 of 2 cores are free", ["good"]):
            assert time.monotonic() < until, (cluster.free(), machines.workers.busy)
            machines.wait(0.1)
            machines.workers.collect()


def test_a_worker_of_another_gemmtune_is_refused_by_both_versions(tmp_path):
    other = Toolchain((("gemmtune", "0.0.9"), ("Python", "3.10.0")))
    with pytest.raises(ToolchainMissing, match=r"^it has gemmtune .* and the driver gemmtune 0\.0\.9, Python 3\.10\.0"):
        ray_executor._make_builders({}, other, 1, tmp_path, print)


def test_no_process_is_left_of_closed_machines(machines_with, toys):
    machines = machines_with(toy=toys.processes())
    (pid,) = (d.outcome.result for d in finish(machines, ("pid", 0)))
    assert Path(f"/proc/{pid}").exists()
    machines.close()
    until = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_the_driver_receives_what_an_actor_raises(cluster, toys, tmp_path):
    there = Event()
    handle = ActorHandle("toy", cluster.start(JobActor, toys.raises, cluster.nodes()[0], 0, 0), tmp_path, there)
    assert there.wait(60)
    with pytest.raises(GemmtuneError, match=r"^toy is lost: OSError: no room on /scratch$"):
        handle.collect()
    handle.close()


PLAN = Plan(sampler="evolution", budget=24, batch=4, seed=3)


@pytest.fixture(scope="module")
def landscapes():
    return completed(read_all(embedded()), PLAN.spaces, None)[:12]


def tuned(executor, landscapes, path):
    """The result, and what the database holds in an order of its own."""
    backend = replayed_backend(PLAN, landscapes, executor)
    with closing(backend), Database.open(path) as store:
        result = execute(PLAN, backend, store, ())
        held = sorted(store.measurements(), key=lambda m: (m.task.key, m.config.json))
    return result, [replace(m, worker="", created_at="", build_seconds=None) for m in held]


def test_a_campaign_in_actors_ends_as_one_in_this_process(simulation, cluster, landscapes, tmp_path):
    here, held = tuned(ReplayExecutor(landscapes), landscapes, tmp_path / "here.db")
    executor = simulation.SimulatedExecutor(landscapes, cluster, workers=2, binary_bytes=200_000)
    there, held_there = tuned(executor, landscapes, tmp_path / "there.db")
    assert there.table.rows == here.table.rows
    assert there.findings == here.findings
    assert held_there == held


def test_what_is_not_recorded_is_said_to_be_so(simulation, cluster, landscapes):
    task = replayed_backend(PLAN, landscapes).searches[0].task
    with closing(simulation.SimulatedExecutor(landscapes, cluster, workers=1)) as executor:
        executor.submit(task, Config({"nonesuch": 1}))
        finished = []
        while not finished:
            finished = executor.collect(1.0)
    assert finished[0].reason.startswith("not in the recorded landscape")
    assert finished[0].worker.endswith("/replay-worker0")


def test_builders_of_an_actor_compile_and_their_binaries_arrive(cluster):
    pytest.importorskip("triton", reason="needs gemmtune[triton]")
    task = Task(Problem.parse("64x512x256:bf16:nt"), catalogue.device("H200"), "triton_mm")
    space = registry.space("triton_mm")
    config = space.seeds(task)[0]
    with closing(
        RayExecutor(cluster, catalogue.device("H200"), ["triton_mm"], "graph-cold-l2", builders=1)
    ) as executor:
        executor.hold_final([(task, config)])  # a final without a worker: its binaries are gathered, and it waits
        until = time.monotonic() + 120
        while not executor.load().timing and time.monotonic() < until:
            assert executor.collect(0.5) == []
        (final,) = executor._machines.workers._waiting[task.problem]
        (finalist,) = final.finalists
        content = Path(finalist.artifact.path).read_bytes()
        assert hashlib.sha256(content).hexdigest() == finalist.artifact.digest
        assert finalist.artifact.toolchain == space.toolchain()
        assert executor.load() == Load(queued=0, building=0, timing=1, workers={})
    assert not Path(finalist.artifact.path).exists()


def test_a_cluster_without_a_gpu_replays_the_landscapes_in_this_process(ray_cluster):
    plan = Plan(problems=(Problem.parse("16x4096x4096"),), budget=4)
    backend = open_backend(plan, cluster="ray", ray_address=ray_cluster)
    assert backend.executor.evidence is Evidence.REPLAYED
    assert backend.notes == ("No GPU in the Ray cluster; the recorded landscapes answer in this process.",)
    backend.close()
