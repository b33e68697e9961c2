"""Process that drives campaigns of recorded problems, slowly, each in a fork of itself: importing takes longer.

Reads one JSON line per campaign: its database, table, number of problems, folder, the seconds that one of four workers
takes for an evaluation, and after how many seconds searching stops, or null. Answers with the driver's process id.
The campaign is registered as probe-PROBLEMS. Its folder gets the files `submitted`, a line per config that was
submitted, `said`, what was printed as errors, the table, and once the driver ended `status`, its exit status.
"""

import json
import os
import signal
import sys
import time
import traceback
from contextlib import closing, suppress
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

LANDSCAPES = [each for each in read_all(embedded()) if each.context["space"] in ("triton_mm", "aten")]


class SlowExecutor(ReplayExecutor):
    """Answers from recordings as fast as four workers would."""

    parallel = 4

    def __init__(self, landscapes, seconds):
        super().__init__(landscapes)
        self._seconds = seconds

    def submit(self, task, config):
        sys.stdout.write(f"{task.key} {config.digest}\n")
        sys.stdout.flush()
        super().submit(task, config)

    def collect(self, timeout_seconds):
        finished, self._finished = self._finished[:4], self._finished[4:]
        time.sleep(self._seconds * len(finished) / self.parallel)
        return finished


def drive(folder, database, problems, seconds, limit):
    chosen = list(dict.fromkeys(each.problem for each in LANDSCAPES if each.problem is not None))[:problems]
    landscapes = [each for each in LANDSCAPES if each.problem in chosen]
    plan = Plan(sampler="evolution", budget=40, batch=8, seed=3, limits=Limits(seconds=limit))
    backend = replayed_backend(plan, landscapes, SlowExecutor(landscapes, seconds))
    state, printed = CampaignState("ns", time.monotonic), NoticePrinter()
    with (
        closing(backend),
        Database.open(database) as store,
        registered(store, plan, state, [printed], name=f"probe-{problems}", location="here", price=None) as follower,
    ):
        found = execute(plan, backend, store, [state, printed, follower], follower.orders)
    write_table(Path(folder) / "table.json", found.table)


def run(folder, **campaign):
    """Drive in this process, and end it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a background job has ignored
    for number, name in ((1, "submitted"), (2, "said")):
        os.dup2(os.open(Path(folder) / name, os.O_CREAT | os.O_WRONLY), number)
    status = 1
    try:
        drive(folder, **campaign)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def supervise(asked):
    """Drive in a fork of this process, tell its status when it ends, and end this process."""
    if not (driver := os.fork()):
        run(**asked)
    sys.stdout.write(f"{driver}\n")
    sys.stdout.flush()
    status = os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1])
    (part := Path(asked["folder"]) / "status.part").write_text(f"{status}")
    part.rename(part.with_suffix(""))
    os._exit(0)


def main():
    for line in sys.stdin:
        if not os.fork():
            supervise(json.loads(line))
    with suppress(ChildProcessError):
        while os.wait():
            pass


if __name__ == "__main__":
    main()
