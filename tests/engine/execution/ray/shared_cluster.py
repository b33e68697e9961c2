"""A Ray of two machines, simulated on this one, with labelled GPUs of two kinds; it loses its head.

Writes FOLDER/report.json. Usage: shared_cluster.py FOLDER
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

os.environ["PYTHONPATH"] = str(Path(__file__).parent)
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}

sys.path.insert(0, str(Path(__file__).parent))

import ray_toys
from few_processes import few_processes
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.autoscaler.v2.sdk import get_cluster_resource_state
from ray.cluster_utils import Cluster as Machines

from gemmtune.engine.execution.ray import cluster as ray_cluster
from gemmtune.engine.execution.ray import executor as ray_executor
from gemmtune.engine.execution.ray.cluster import Cluster
from gemmtune.engine.execution.ray.executor import ActorPlan, RayExecutor, RayMachines
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import GemmtuneError

ray_executor._JOBS_PER_GPU = 16  # a fourth, as there are of jobs
H200, H100 = catalogue.device("H200"), catalogue.device("H100-SXM")


def main(folder: Path) -> None:
    of_kinds = [
        {"num_cpus": 1, "num_gpus": 2, "labels": {"ray.io/accelerator-type": kind}} for kind in ("H200", "H100")
    ]
    head = of_kinds[0] | {"include_dashboard": False, "include_log_monitor": False}
    with few_processes():
        machines: Any = Machines(initialize_head=True, head_node_args=head)
        machines.add_node(**of_kinds[1])
    machines.wait_for_nodes()
    cluster, report = Cluster(machines.address), {}
    report["devices"] = [[each.sku for each in cluster.devices(wanted)] for wanted in (H200, H100)]
    try:
        cluster.devices(catalogue.device("L40S"))
    except GemmtuneError as error:
        report["another"] = str(error)
    try:
        cluster.devices()
    except GemmtuneError as error:
        report["unreadable"] = str(error)
    executor = RayExecutor(cluster, H100, ["aten"], "graph-cold-l2")
    opened: Any = executor._started()
    report["parallel"] = executor.parallel
    report["planned"] = sorted(actor.node.accelerator for actor in opened._actors if actor.plan.gpus)
    opened.close()

    def of_kind(device):
        def plan(node):
            names = [f"{node.id[:6]}/gpu{number}" for number in range(node.gpus if node.may_have(device) else 0)]
            return [], [ActorPlan(name, ray_toys.processes(), gpus=1) for name in names]

        return plan

    with closing(RayMachines(cluster, of_kind(H200), accelerator="H200", affinity=False)) as one:
        with closing(RayMachines(cluster, of_kind(H100), affinity=False)) as two:
            report["both"] = [answered(each) for each in (one, two)]
        report["demand"] = demand(one, machines.address)
        (head,) = (i.process.pid for i in machines.head_node.all_processes["gcs_server"])
        ray_cluster._HEAD_SECONDS = 4.0  # not before: a head that is busy must not count as lost
        os.kill(head, 9)
        killed = time.monotonic()
        one.workers.submit(("sleep", 100))
        try:
            while True:
                one.wait(0.5)
        except GemmtuneError as error:
            report["lost"], report["seconds"] = str(error), time.monotonic() - killed
    (folder / "report.json").write_text(json.dumps(report))
    for node in machines.list_all_nodes():
        node.kill_all_processes(check_alive=False, allow_graceful=False)
    cluster.close()


def demand(machines, address):
    """Return the resources and labels that an autoscaler is told of, while jobs wait and once they are done."""
    client, found = GcsClient(address=address), []
    for number in range(50):
        machines.workers.submit(("sleep", 0.1 + number / 1e6))
    while len(found) < 2:
        machines._next_look = 0.0
        machines.wait(0.2)
        asked = [each for each in get_cluster_resource_state(client).pending_resource_requests if each.count]
        if bool(asked) != bool(found):  # the server hears of it after a moment
            labels = {each.label_key for x in asked for s in x.request.label_selectors for each in s.label_constraints}
            found.append([sum(x.count for x in asked), [dict(x.request.resources_bundle) for x in asked], *labels])
        if not found:
            continue
        while machines.workers.pending:
            machines.wait(0.1)
            machines.workers.collect()
    return found


def answered(machines):
    """The number of workers that answered to as many jobs."""
    workers, done = set(), 0
    while machines.workers.room < 6:  # both have started
        machines.wait(0.2)
        machines.workers.collect()
    for number in range(4):
        machines.workers.submit(("sleep", 0.5 + number / 1e3))
    while done < 4:
        machines.wait(0.2)
        found = machines.workers.collect()
        workers |= {each.worker for each in found}
        done += len(found)
    return len(workers)


main(Path(sys.argv[1]))
