"""The commands that search: tune and record."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.measured_backend import MeasuredBackend, unsearched
from gemmtune.engine.campaign.open_backend import open_backend
from gemmtune.engine.campaign.plan import Plan, read_plan
from gemmtune.engine.cli import output
from gemmtune.engine.cli.gpus import gpu_or_fail
from gemmtune.engine.cli.options import MARGIN_HELP, AsJson, Builders, DatabaseUrl, LockClocks, Problems
from gemmtune.engine.cli.out_folder import database_url, export_what_can_be
from gemmtune.engine.execution.gpu_normalization import GpuNormalization
from gemmtune.engine.execution.local import LocalExecutor
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import BASELINE_SPACE
from gemmtune.engine.report.campaign import CampaignReport
from gemmtune.engine.report.progress.display import show_progress
from gemmtune.engine.report.progress.json_lines import EventFile
from gemmtune.engine.scheduling.callbacks import notify
from gemmtune.engine.scheduling.scheduler import run
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.files import write_whole
from gemmtune.engine.store.landscapes.landscape_file import write_landscapes
from gemmtune.engine.studies.landscape_export import landscape_from
from gemmtune.engine.tables.portfolio import LossLimits
from gemmtune.engine.tables.ranges import RangeLimits
from gemmtune.engine.tables.table_file import write_table

__all__ = ["record", "tune"]

_REGRET_HELP = "A task is done once its best is this close to the best there is, as a fraction: 0.02."
_PORTFOLIO_HELP = "Give all problems few configs, within 2 % of each one's best and 0.5 % in the mean."
_RANGES_HELP = (
    "Rows for ranges of m, too, for each GEMM with problems at several m. Measures a few configs at each 2^e and 3·2^e "
    "between them, and the kernel of each range beside the library in eighths of an octave: no builds."
)
_BUCKETS_HELP = "The same, with ranges from one power of two to the next."
_HOLD_OUT_HELP = "A problem that checks the ranges and gets no row. Costs a search. Repeat for more."
_FLEET_HELP = (
    "Where to build and measure: local, ray (the cluster of RAY_ADDRESS, one that runs here, or a new one of this "
    "machine) or ray://HOST:PORT."
)


def tune(
    campaign: Annotated[Path | None, typer.Argument(help="A campaign file (TOML).")] = None,
    problem: Problems = None,
    space: Annotated[list[str] | None, typer.Option(help="A space to search. Repeat for more.")] = None,
    sampler: Annotated[str | None, typer.Option(help="The sampler. [default: transfer]")] = None,
    pruner: Annotated[list[str] | None, typer.Option(help="A pruner, asked before and after each build.")] = None,
    objective: Annotated[str | None, typer.Option(help="What to minimise. [default: latency]")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Evaluations a task. [default: 64]")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop searching after this time.")] = None,
    gpu_seconds: Annotated[float | None, typer.Option(help="The same, times the GPUs.")] = None,
    regret: Annotated[float | None, typer.Option(help=_REGRET_HELP)] = None,
    margin: Annotated[float | None, typer.Option(help=MARGIN_HELP)] = None,
    portfolio: Annotated[bool, typer.Option("--portfolio", help=_PORTFOLIO_HELP)] = False,
    ranges: Annotated[bool, typer.Option("--ranges", help=_RANGES_HELP)] = False,
    buckets: Annotated[bool, typer.Option("--buckets", help=_BUCKETS_HELP)] = False,
    hold_out: Annotated[list[str] | None, typer.Option(metavar="P", help=_HOLD_OUT_HELP)] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of every random choice.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Configs asked for at once. [default: 8]")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the table, its exports and the database.")] = Path("out"),
    device: Annotated[str | None, typer.Option(help="The device the table is for, for example H200.")] = None,
    replay: Annotated[list[Path] | None, typer.Option(help="Answer from this landscape. Repeat for more.")] = None,
    database: DatabaseUrl = None,
    fleet_place: Annotated[str, typer.Option("--fleet", metavar="WHERE", help=_FLEET_HELP)] = "local",
    builders: Builders = None,
    lock_clocks: LockClocks = None,
    events: Annotated[Path | None, typer.Option(help="Add what happens to this file, a JSON object a line.")] = None,
    as_json: AsJson = False,
) -> None:
    """Search for the best config of each problem and write the table, its exports and a summary to OUT.

    Without a GPU the recorded landscapes answer. Without a problem, the recorded problems are tuned. For a named device
    that is neither here nor recorded, kernels are built and their times estimated, where the space has a model of them.
    """
    base = read_plan(campaign) if campaign else Plan()
    plan = Plan(
        problems=_parse(problem) if problem else base.problems,
        spaces=tuple(space) if space else base.spaces,
        sampler=sampler or base.sampler,
        pruners=tuple(pruner) if pruner else base.pruners,
        objective=objective or base.objective,
        budget=budget or base.budget,
        seed=base.seed if seed is None else seed,
        batch=batch or base.batch,
        limits=Limits(
            base.limits.seconds if seconds is None else seconds,
            base.limits.gpu_seconds if gpu_seconds is None else gpu_seconds,
            base.limits.regret if regret is None else regret,
        ),
        margin=base.margin if margin is None else margin,
        portfolio=base.portfolio or (LossLimits() if portfolio else None),
        ranges=RangeLimits(buckets=True) if buckets else base.ranges or (RangeLimits() if ranges else None),
        held_out=_parse(hold_out) if hold_out else base.held_out,
    )
    finished = out / "asked.json"
    with ExitStack() as opened:
        event_files = [opened.enter_context(EventFile(events))] if events else []
        progress = show_progress(quiet=as_json, unit=plan.plugins.objective.unit)
        callbacks = (*opened.enter_context(progress), *event_files)
        backend = open_backend(
            plan,
            device=catalogue.device(device) if device else None,
            landscapes=replay or (),
            builders=builders,
            cluster=fleet_place,
            ray_address=os.environ.get("RAY_ADDRESS"),
            clock_mhz=lock_clocks,
            builds=not finished.exists(),
            notify=partial(notify, callbacks),
        )
        opened.enter_context(closing(backend))
        store = opened.enter_context(Database.open(database_url(out, database)))
        for note in backend.notes:
            _say(note)
        result = execute(plan, backend, store, callbacks, finished=finished)
    target = backend.device
    write_table(out / "table.json", result.table)
    exported, notes = export_what_can_be(out / "table.json", out)
    written = [out / "table.json", *exported, out / "summary.txt"]
    report = CampaignReport(plan, target, result, notes, written)
    write_whole(out / "summary.txt", f"{report.to_text()}\n".encode())
    output.show(report, as_json=as_json)


def record(
    problem: Problems = None,
    space: Annotated[list[str] | None, typer.Option(help="A space to sweep. Repeat for more.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the landscapes and the database.")] = Path("recorded"),
    objective: Annotated[str, typer.Option(help="Names the timing protocol.")] = "latency",
    database: DatabaseUrl = None,
    builders: Builders = None,
    lock_clocks: LockClocks = None,
) -> None:
    """Measure every feasible config of each problem on this machine's GPU; write OUT/<device>_<space>.csv.gz.

    Stopped and started again, it goes on where it was.
    """
    spaces = tuple(dict.fromkeys((*(space or ["triton_mm"]), BASELINE_SPACE)))
    plan = Plan(_parse(problem or []), spaces, "exhaustive", (), objective, budget=sys.maxsize, batch=256)
    target = gpu_or_fail("record")
    minimised = plan.plugins.objective
    with ExitStack() as opened:
        callbacks = opened.enter_context(show_progress(quiet=False, unit=minimised.unit))
        tell = partial(notify, callbacks)
        open_executor = partial(
            LocalExecutor,
            protocol_name=minimised.protocol,
            builders=builders,
            racing=False,  # every config gets all its launches
            notify=tell,
        )
        backend = MeasuredBackend(plan, target, open_executor, clock_mhz=lock_clocks, notify=tell)
        opened.enter_context(closing(backend))
        executor, searches = backend.executor, backend.searches(plan)
        store = opened.enter_context(Database.open(database_url(out, database)))
        for line in unsearched(plan, [search.task for search in searches]):
            tell(line)
        run(searches, executor, store, minimised, callbacks, settle=False)
        normalization = GpuNormalization(store)
        for name in spaces:
            landscapes = [
                landscape_from(
                    search.task,
                    plan.plugins.spaces[name],
                    [trial.config for trial in search.tuner.trials],
                    normalization.known(search.task, executor),
                )
                for search in searches
                if search.task.space == name
            ]
            path = out / f"{target.sku.lower()}_{name}.csv.gz"
            write_landscapes(path, landscapes)
            print(f"{path}: {len(landscapes)} problems, {sum(len(x.points) for x in landscapes)} configs")


def _parse(problems: Sequence[str]) -> tuple[Problem, ...]:
    return tuple(Problem.parse(problem) for problem in problems)


def _say(line: str) -> None:
    print(line, file=sys.stderr)
