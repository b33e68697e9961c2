"""The command line: the only reader of the terminal and of environment variables."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gemmtune.engine.campaign import session
from gemmtune.engine.campaign.fleet import Fleet
from gemmtune.engine.campaign.local_fleet import LocalFleet
from gemmtune.engine.campaign.plan import BASELINE_SPACE, Plan, read_plan
from gemmtune.engine.campaign.recording import landscape_from
from gemmtune.engine.campaign.replay import ReplayFleet
from gemmtune.engine.campaign.scheduler import TaskSearch, run
from gemmtune.engine.campaign.study import replay_study
from gemmtune.engine.measure.gpu import present_device
from gemmtune.engine.measure.telemetry import gpu_names
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError, GemmtuneError, UsageError
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.report import campaign as campaign_report
from gemmtune.engine.report import holdings, progress
from gemmtune.engine.report import space as space_report
from gemmtune.engine.report import study as study_report
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.search.feasible import census
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.embedded import embedded
from gemmtune.engine.store.landscape_file import write_landscapes
from gemmtune.engine.tables.table_file import read_table, require_device, write_table

__all__ = ["main"]

app = typer.Typer(
    name="gemmtune",
    help="Finds the fastest configuration of a GEMM kernel for every shape, and ships the answer as a table.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_PROBLEM_HELP = "A problem, MxNxK[:DTYPE[:LAYOUT]], for example 2048x4096x4096:bf16:nt. Repeat for more."
Problems = Annotated[list[str] | None, typer.Option("--problem", metavar="P", help=_PROBLEM_HELP)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for programs.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of every random choice.")]
DatabaseUrl = Annotated[str | None, typer.Option("--database", help="File or URL. [default: OUT/measurements.db]")]
Builders = Annotated[int | None, typer.Option(min=1, help="Builder processes. [default: cores less one]")]


@app.command()
def tune(
    campaign: Annotated[Path | None, typer.Argument(help="A campaign file (TOML).")] = None,
    problem: Problems = None,
    space: Annotated[list[str] | None, typer.Option(help="A space to search. Repeat for more.")] = None,
    sampler: Annotated[str | None, typer.Option(help="The sampler. [default: evolution]")] = None,
    pruner: Annotated[list[str] | None, typer.Option(help="A pruner between build and measurement.")] = None,
    objective: Annotated[str | None, typer.Option(help="What to minimise. [default: latency]")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Evaluations a task. [default: 64]")] = None,
    seed: Seed = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Configs asked for at once. [default: 8]")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the table, its exports and the database.")] = Path("out"),
    device: Annotated[str | None, typer.Option(help="The device the table must be for, for example H200.")] = None,
    replay: Annotated[list[Path] | None, typer.Option(help="Answer from this landscape. Repeat for more.")] = None,
    database: DatabaseUrl = None,
    builders: Builders = None,
    as_json: AsJson = False,
) -> None:
    """Search for the best config of each problem and write the table, its exports and a summary to OUT.

    Without a GPU the recorded landscapes answer. Without a problem, the recorded problems are tuned.
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
    )
    _look_up(plan)
    wanted = catalogue.device(device) if device else None
    target, searches, fleet = _source(plan, wanted, replay or [], builders)
    with closing(fleet), Database.open(_database_url(out, database)) as store, progress.watching(as_json) as watcher:
        result = session.execute(plan, target, searches, fleet, store, watcher)
    write_table(out / "table.json", result.table)
    _export(out / "table.json", registry.names(Exporter), out)
    summary = campaign_report.summary(plan, target, result, out)
    _write(out / "summary.txt", summary)
    print(json.dumps(campaign_report.summary_record(plan, target, result), indent=2) if as_json else summary)


@app.command()
def record(
    problem: Problems = None,
    space: Annotated[list[str] | None, typer.Option(help="A space to sweep. Repeat for more.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the landscapes and the database.")] = Path("recorded"),
    objective: Annotated[str, typer.Option(help="Names the timing protocol.")] = "latency",
    database: DatabaseUrl = None,
    builders: Builders = None,
) -> None:
    """Measure every feasible config of each problem on this machine's GPU; write OUT/<device>_<space>.csv.gz.

    Stopped and started again, it goes on where it was.
    """
    spaces = tuple(dict.fromkeys((*(space or ["triton_mm"]), BASELINE_SPACE)))
    plan = Plan(_parse(problem or []), spaces, "exhaustive", (), objective, budget=sys.maxsize, batch=256)
    _look_up(plan)
    target = _gpu_or_fail("record")
    searches = session.measured_searches(plan, target)
    fleet = LocalFleet(spaces, registry.objective(objective).protocol, builders=builders)
    with closing(fleet), Database.open(_database_url(out, database)) as store, progress.watching(False) as watcher:
        run(searches, fleet, store, registry.objective(objective), watcher)
        for name in spaces:
            landscapes = [
                landscape_from(
                    search.task,
                    registry.space(name),
                    [trial.config for trial in search.tuner.trials],
                    store.known(search.task, fleet.protocol(search.task), fleet.evidence, fleet.toolchain(search.task)),
                )
                for search in searches
                if search.task.space == name
            ]
            path = out / f"{target.sku.lower()}_{name}.csv.gz"
            write_landscapes(path, landscapes)
            print(f"{path}: {len(landscapes)} problems, {sum(len(x.points) for x in landscapes)} configs")


@app.command()
def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Landscapes (CSV or gzip CSV).")],
    sampler: Annotated[str, typer.Option(help="The sampler to measure.")] = "evolution",
    budget: Annotated[int, typer.Option(min=1, help="Evaluations a problem, failures included.")] = 64,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, with seeds 0 to S-1.")] = 10,
    batch: Annotated[int, typer.Option(min=1, help="Configs asked for at once.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Measure a sampler on recorded landscapes: optimum over best found, mean over problems and seeds."""
    registry.sampler(sampler)
    study = replay_study(session.read_all(files), sampler, budget, seeds=seeds, batch=batch)
    print(json.dumps(study.to_json()) if as_json else study_report.study(study))


@app.command()
def show(
    path: Annotated[Path, typer.Argument(help="A table (table.json) or a database of measurements.")],
    as_json: AsJson = False,
) -> None:
    """Print a table's rows, or what a database holds."""
    if path.suffix == ".json":
        table = read_table(path)
        print(json.dumps(holdings.table_record(table), indent=2) if as_json else holdings.table(table))
        return
    if not path.exists():
        raise UsageError(f"no database {path}")
    with Database.open(str(path)) as store:
        print(json.dumps(holdings.database_record(store), indent=2) if as_json else holdings.database(store))


@app.command()
def export(
    table: Annotated[Path, typer.Argument(help="The table to export (table.json).")],
    to: Annotated[str, typer.Option(help="The consumer.")] = "inductor",
    out: Annotated[
        Path | None, typer.Option(help="Folder; the files go to OUT/<consumer>. [default: the table's]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Refuse a table of another device.")] = None,
) -> None:
    """Write a table as the files its consumer loads."""
    if device:
        require_device(read_table(table), catalogue.device(device))
    for path in _export(table, (to,), out or table.parent):
        print(path)


@app.command("space")
def describe_space(
    name: Annotated[str, typer.Argument(help="The space.")],
    problem: Annotated[str, typer.Option("--problem", metavar="P", help=_PROBLEM_HELP)],
    device: Annotated[str, typer.Option(help="The device, for example H200.")] = "H200",
    as_json: AsJson = False,
) -> None:
    """Show a space for one problem: its parameters, its points, and why points are rejected."""
    found = registry.space(name)
    task = Task(Problem.parse(problem), catalogue.device(device), name)
    count = census(found, task)
    arguments = (task, found.params(task), count, found.seeds(task))
    print(json.dumps(space_report.space_record(*arguments), indent=2) if as_json else space_report.space(*arguments))


def main() -> None:
    """Run the command line; a wrong use ends with one line and exit status 2."""
    try:
        app(standalone_mode=True)
    except GemmtuneError as error:
        Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(f"gemmtune: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("gemmtune: stopped; the same command goes on where it was")
        sys.exit(130)


def _parse(problems: Sequence[str]) -> tuple[Problem, ...]:
    return tuple(Problem.parse(problem) for problem in problems)


def _look_up(plan: Plan) -> None:
    """Every name in the plan, before anything is started or written."""
    registry.sampler(plan.sampler)
    registry.objective(plan.objective)
    for name in plan.spaces:
        registry.space(name)
    for name in plan.pruners:
        registry.pruner(name)


def _source(
    plan: Plan, wanted: Device | None, files: Sequence[Path], builders: int | None
) -> tuple[Device, list[TaskSearch], Fleet]:
    """The GPU where there is one, recorded landscapes where there is none or where they are asked for."""
    present = None if files else present_device()
    if present is not None:
        if wanted not in (None, present):
            raise DeviceError(
                f"--device {wanted.sku if wanted else ''}, but the GPU here is {present.name} ({present.sku})"
            )
        if not plan.problems:
            plan = replace(plan, problems=_recorded_problems(plan))
        searches = session.measured_searches(plan, present)
        pruners = {name: registry.pruner(name) for name in plan.pruners}
        spaces = tuple(dict.fromkeys(search.task.space for search in searches))
        fleet = LocalFleet(spaces, registry.objective(plan.objective).protocol, builders=builders, pruners=pruners)
        return present, searches, fleet
    if not files:
        names = gpu_names()
        why = f"{names[0]} found, but not gemmtune[triton]: pip install 'gemmtune[triton]'" if names else "No GPU found"
        print(f"{why}; using the recorded landscapes.", file=sys.stderr)
    landscapes = session.read_all(list(files) or embedded())
    if wanted is not None and not files:
        landscapes = tuple(x for x in landscapes if x.context.get("device") == wanted.sku)
        if not landscapes:
            raise DeviceError(f"nothing is recorded of {wanted.sku}; tune on a machine that has one")
    target = session.replayed_device(landscapes)
    if wanted not in (None, target):
        raise DeviceError(f"--device {wanted.sku if wanted else ''}, but the landscapes are of {target.sku}")
    return target, session.replayed_searches(plan, target, landscapes), ReplayFleet(landscapes)


def _recorded_problems(plan: Plan) -> tuple[Problem, ...]:
    landscapes = session.read_all(embedded())
    found = (x.problem for x in landscapes if x.context.get("space") in plan.spaces and x.problem is not None)
    return tuple(dict.fromkeys(found))


def _gpu_or_fail(command: str) -> Device:
    device = present_device()
    if device is None:
        raise DeviceError(f"{command} measures, and there is no GPU here (or gemmtune[triton] is not installed)")
    return device


def _database_url(out: Path, database: str | None) -> str:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error.strerror}; name another folder with --out") from None
    return database or str(out / "measurements.db")


def _export(table: Path, names: Sequence[str], out: Path) -> list[Path]:
    """Export what the file holds, not what memory holds: the file is what ships."""
    written = []
    content = read_table(table)
    for name in names:
        files = registry.exporter(name).export(content)
        folder = out / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write to {folder}: {error.strerror}; name another folder with --out") from None
        for file, body in files.items():
            _write(folder / file, body)
            written.append(folder / file)
    return written


def _write(path: Path, body: str) -> None:
    try:
        path.write_text(body, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


if __name__ == "__main__":
    main()
