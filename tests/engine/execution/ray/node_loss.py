"""A campaign on a Ray of two machines, simulated on this one, one of which is lost; writes FOLDER/report.json.

Usage: node_loss.py FOLDER
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}

sys.path.insert(0, str(Path(__file__).parent))

from few_processes import few_processes
from ray.cluster_utils import Cluster as Machines
from simulation import SimulatedExecutor

from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import completed, read_all, replayed_backend
from gemmtune.engine.execution.ray.cluster import Cluster
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded

PLAN = Plan(sampler="evolution", budget=24, batch=8, seed=7)
PROBLEMS = frozenset(map(Problem.parse, ("1x6144x4096", "16x4096x4096", "16x28672x4096")))


class Remover(Callback):
    """Takes a machine away once both have measured, and keeps the notices."""

    def __init__(self, remove) -> None:
        self.remove, self.notices, self.workers, self.left = remove, [], Counter(), 0

    def on_measurement(self, measurement, score, *, known):
        self.workers[measurement.worker] += 1
        if not self.left and len(self.workers) == 2 and self.workers.total() > 20:
            self.left = self.workers.total()
            self.remove()

    def on_notice(self, line):
        self.notices.append(line)


def tuned(executor, landscapes, path, callbacks):
    backend = replayed_backend(PLAN, landscapes, executor)
    with closing(backend), Database.open(path) as store:
        table = execute(PLAN, backend, store, callbacks).table
        held = sorted((m.task.key, m.config.json, m.status, m.samples_ns) for m in store.measurements())
    return table, held


def main() -> None:
    folder = Path(sys.argv[1])
    landscapes = completed(read_all(embedded(), PROBLEMS), PLAN.spaces, None)
    alone, expected = tuned(ReplayExecutor(landscapes), landscapes, folder / "alone.db", ())
    # Ray waits 15 s for a machine; one that was killed refuses at once.
    health = {"health_check_period_ms": 500, "health_check_failure_threshold": 2}
    head = {"num_cpus": 1, "include_dashboard": False, "include_log_monitor": False, "_system_config": health}
    with few_processes():
        machines = Machines(initialize_head=True, head_node_args=head)
        second = machines.add_node(num_cpus=1)
    machines.wait_for_nodes()
    remover = Remover(lambda: machines.remove_node(second, allow_graceful=False))
    executor = SimulatedExecutor(  # long jobs: the loss of an actor is seen by a job that it has
        landscapes, Cluster(machines.address), workers=1, seconds=0.1, binary_bytes=1000, notify=remover.on_notice
    )
    table, held = tuned(executor, landscapes, folder / "disturbed.db", [remover])
    machines.shutdown()
    report = {
        "measurements": len(held),
        "measured before the loss": remover.left,
        "same measurements": held == expected,
        "same rows": table.rows == alone.rows,
        "notices": remover.notices,
    }
    (folder / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
