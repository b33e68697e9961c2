"""Drive one campaign of recorded problems, slowly: driver_probe.py DATABASE TABLE PROBLEMS SECONDS [LIMIT].

Each evaluation takes SECONDS of a worker, of which there are four. Searching stops after LIMIT seconds. The campaign
is registered as probe-PROBLEMS. Writes a line per config that was submitted, and the table is written to TABLE.
"""

import sys
import time
from contextlib import closing
from pathlib import Path

from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import read_all, replayed_backend
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.report.progress.display import NoticePrinter
from gemmtune.engine.report.progress.registered import registered
from gemmtune.engine.report.progress.state import CampaignState
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded
from gemmtune.engine.tables.table_file import write_table

database, table, problems, seconds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])


class SlowExecutor(ReplayExecutor):
    """Answers from recordings as fast as four workers would."""

    parallel = 4

    def submit(self, task, config):
        sys.stdout.write(f"{task.key} {config.digest}\n")
        sys.stdout.flush()
        super().submit(task, config)

    def collect(self, timeout_seconds):
        finished, self._finished = self._finished[:4], self._finished[4:]
        time.sleep(seconds * len(finished) / self.parallel)
        return finished


landscapes = [each for each in read_all(embedded()) if each.context["space"] in ("triton_mm", "aten")]
chosen = list(dict.fromkeys(each.problem for each in landscapes if each.problem is not None))[:problems]
landscapes = [each for each in landscapes if each.problem in chosen]
limits = Limits(seconds=float(sys.argv[5]) if len(sys.argv) > 5 else None)
plan = Plan(sampler="evolution", budget=40, batch=8, seed=3, limits=limits)
backend = replayed_backend(plan, landscapes, SlowExecutor(landscapes))
state, printed = CampaignState("ns", time.monotonic), NoticePrinter()
with (
    closing(backend),
    Database.open(database) as store,
    registered(store, plan, state, [printed], name=f"probe-{problems}", location="here", price=None) as follower,
):
    found = execute(plan, backend, store, [state, printed, follower], follower.orders)
write_table(table, found.table)
