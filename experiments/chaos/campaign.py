"""One campaign of simulated builders and workers, which are real actors; it goes on where it was.

Usage: campaign.py DATABASE TABLE --budget N --seconds S [--problems N] [--actors WORKERS BUILDERS], with RAY_ADDRESS in
the environment. Without it the campaign runs in one process.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests/engine/execution/ray"))

from simulation import SimulatedExecutor

from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import completed, read_all, replayed_backend
from gemmtune.engine.execution.ray.cluster import Cluster
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded
from gemmtune.engine.tables.table_file import write_table


class Notices(Callback):
    """Prints notices, for example of lost actors."""

    def on_notice(self, line: str) -> None:
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("database")
    parser.add_argument("table", type=Path)
    parser.add_argument("--budget", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--problems", type=int, default=10)
    parser.add_argument("--actors", type=int, nargs=2, default=(3, 2), metavar=("WORKERS", "BUILDERS"))
    given = parser.parse_args()
    plan = Plan(sampler="evolution", budget=given.budget, batch=given.batch, seed=7)
    problems = [each.problem for each in read_all(embedded("aten"))][: given.problems]
    landscapes = completed(read_all(embedded(), frozenset(problems)), plan.spaces, None)
    notices, executor = Notices(), None
    if address := os.environ.get("RAY_ADDRESS"):
        executor = SimulatedExecutor(
            landscapes,
            Cluster(address),
            workers=given.actors[0],
            builders=given.actors[1],
            seconds=given.seconds,
            binary_bytes=20_000,
            notify=notices.on_notice,
        )
    backend = replayed_backend(plan, landscapes, executor)
    with closing(backend), Database.open(given.database) as store:
        result = execute(plan, backend, store, [notices])
    write_table(given.table, result.table)


if __name__ == "__main__":
    main()
