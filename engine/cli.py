"""The command line: the only reader of the terminal and of environment variables."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, cast

import typer

from gemmtune.engine.campaign import session
from gemmtune.engine.campaign.compare import Comparison
from gemmtune.engine.campaign.compare import compare as compare_arms
from gemmtune.engine.campaign.estimate_fleet import EstimateFleet
from gemmtune.engine.campaign.fleet import Fleet
from gemmtune.engine.campaign.limits import Limits
from gemmtune.engine.campaign.local_fleet import LocalFleet
from gemmtune.engine.campaign.origin import connected, origin
from gemmtune.engine.campaign.plan import BASELINE_SPACE, Plan, read_plan
from gemmtune.engine.campaign.recording import landscape_from
from gemmtune.engine.campaign.replay import ReplayFleet
from gemmtune.engine.campaign.scheduler import run
from gemmtune.engine.campaign.study import campaigns, replay_study, searchable
from gemmtune.engine.measure.clock_lock import ClockLock
from gemmtune.engine.measure.gpu import present_device
from gemmtune.engine.measure.gpus import equal_gpus
from gemmtune.engine.measure.telemetry import gpu_names
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError, GemmtuneError, TableError, ToolchainMissing, UsageError
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.report import campaign as campaign_report
from gemmtune.engine.report import diff as diff_report
from gemmtune.engine.report import doctor as doctor_report
from gemmtune.engine.report import explain as explain_report
from gemmtune.engine.report import holdings, progress
from gemmtune.engine.report import space as space_report
from gemmtune.engine.report import status as status_report
from gemmtune.engine.report import study as study_report
from gemmtune.engine.report.events import EventFile
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.feasible import census
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.files import write_whole
from gemmtune.engine.store.landscape_file import write_landscapes
from gemmtune.engine.store.merge import merge as merge_databases
from gemmtune.engine.tables.diff import diff_tables
from gemmtune.engine.tables.export import export_table
from gemmtune.engine.tables.inductor_guards import TORCH_VERSIONS, Linear
from gemmtune.engine.tables.portfolio import LossLimits
from gemmtune.engine.tables.table_file import read_table, require_device, write_table

__all__ = ["main"]

app = typer.Typer(
    name="gemmtune",
    help="Finds the fastest configuration of a GEMM kernel for every shape, and ships the answer as a table.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_PROBLEM_HELP = "A problem, MxNxK[:DTYPE[:LAYOUT]], for example 2048x4096x4096:bf16:nt. Repeat for more."
Problems = Annotated[list[str] | None, typer.Option("--problem", metavar="P", help=_PROBLEM_HELP)]
_REGRET_HELP = "A task is done once its best is this close to the best there is, as a fraction: 0.02."
_LANDSCAPE_HELP = "Landscapes: CSV, cache files of Kernel Tuner or T4 results (JSON); .gz is fine."
_OPTUNA_HELP = "Write a database's tasks as Optuna studies to this storage, sqlite:///studies.db."
_MARGIN_HELP = "Lead over the vendor library that a row needs to ship anything else. [default: 0.02]"
_PORTFOLIO_HELP = "Give all problems few configs, within 2 % of each one's best and 0.5 % in the mean."
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for programs.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of every random choice.")]
_DATABASE_HELP = "File, or URL of a PostgreSQL server. [default: OUT/measurements.db]"
DatabaseUrl = Annotated[str | None, typer.Option("--database", "--db", metavar="DB", help=_DATABASE_HELP)]
Builders = Annotated[int | None, typer.Option(min=1, help="Builder processes. [default: cores less one]")]
_FLEET_HELP = (
    "Where to build and measure: local, ray (the cluster of RAY_ADDRESS, one that runs here, or a new one of this "
    "machine) or ray://HOST:PORT."
)
FleetPlace = Annotated[str, typer.Option("--fleet", metavar="WHERE", help=_FLEET_HELP)]
_LOCK_HELP = (
    "Lock the SM clock meanwhile, at one that every problem holds under the power limit. It changes a setting of the "
    "whole GPU: only for a machine that is yours."
)
LockClocks = Annotated[int | None, typer.Option("--lock-clocks", min=1, metavar="MHZ", help=_LOCK_HELP)]
_TORCH_HELP = f"One of {', '.join(TORCH_VERSIONS)}. [default: the one here]"


@app.command()
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
    margin: Annotated[float | None, typer.Option(help=_MARGIN_HELP)] = None,
    portfolio: Annotated[bool, typer.Option("--portfolio", help=_PORTFOLIO_HELP)] = False,
    seed: Seed = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Configs asked for at once. [default: 8]")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the table, its exports and the database.")] = Path("out"),
    device: Annotated[str | None, typer.Option(help="The device the table is for, for example H200.")] = None,
    replay: Annotated[list[Path] | None, typer.Option(help="Answer from this landscape. Repeat for more.")] = None,
    database: DatabaseUrl = None,
    fleet_place: FleetPlace = "local",
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
    )
    _look_up(plan)
    wanted = catalogue.device(device) if device else None
    if lock_clocks is not None and fleet_place != "local":
        raise UsageError(f"--lock-clocks locks GPUs of this machine, and --fleet {fleet_place} measures on a cluster's")
    cluster = connected(fleet_place, os.environ.get("RAY_ADDRESS"))
    target, searches, fleet = origin(plan, wanted, replay or [], builders, cluster)
    if isinstance(fleet, EstimateFleet):
        plan = replace(plan, sampler="exhaustive")  # as the searches have it
    clocks = _clocks(lock_clocks, fleet)
    with closing(fleet), clocks, Database.open(_database_url(out, database)) as store, ExitStack() as opened:
        if isinstance(fleet, ReplayFleet) and not replay:
            _say_why_replayed()
        elif isinstance(fleet, EstimateFleet):
            _say_what_estimates(target, fleet.protocol(searches[0].task))
        followers = [opened.enter_context(EventFile(events))] if events else []
        with progress.watching(as_json, registry.objective(plan.objective).unit, followers) as watcher:
            result = session.execute(plan, target, searches, fleet, store, watcher)
    write_table(out / "table.json", result.table)
    exported, notes = _export_what_can_be(out / "table.json", out)
    written = [out / "table.json", *exported, out / "summary.txt"]
    write_whole(out / "summary.txt", campaign_report.summary(plan, target, result, notes, written).encode())
    if as_json:
        _print_json(campaign_report.summary_record(plan, target, result, notes, written))
    else:
        print(campaign_report.summary(plan, target, result, notes, written, _columns()), end="")


@app.command()
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
    _look_up(plan)
    target = _gpu_or_fail("record")
    searches, minimised = session.measured_searches(plan, target), registry.objective(objective)
    fleet = LocalFleet(spaces, minimised.protocol, builders=builders, racing=False)  # full samples of every config
    store_url, clocks = _database_url(out, database), _clocks(lock_clocks, fleet)
    with closing(fleet), clocks, Database.open(store_url) as store, progress.watching(False, minimised.unit) as watcher:
        run(searches, fleet, store, minimised, watcher, settle=False)
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
    sampler: Annotated[str, typer.Option(help="The sampler to measure.")] = "transfer",
    budget: Annotated[int, typer.Option(min=1, help="Evaluations a problem, failures included.")] = 64,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, with seeds 0 to S-1.")] = 10,
    batch: Annotated[int, typer.Option(min=1, help="Configs asked for at once.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the result does not depend on it.")] = 1,
    cold: Annotated[bool, typer.Option("--cold", help="Without the starting points of the recorded space.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure a sampler on recorded landscapes: optimum over best found, mean over problems and seeds."""
    registry.sampler(sampler)
    landscapes = session.read_all(files)
    terms = {"seeds": seeds, "batch": batch, "workers": workers}
    with progress.counting("searches", quiet=as_json) as count:
        study = replay_study(landscapes, sampler, budget, **terms, cold=cold, progress=count)
    if as_json:
        _print_json(study.to_json())
    else:
        print(study_report.study(study))


@app.command()
def compare(
    files: Annotated[list[Path], typer.Argument(metavar="LANDSCAPE...", help=_LANDSCAPE_HELP)],
    samplers: Annotated[str, typer.Option(metavar="A,B,C", help="The samplers.")] = "random,tpe,evolution,transfer",
    budget: Annotated[int, typer.Option(min=1, help="Evaluations a problem, failures included.")] = 128,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, with seeds 0 to S-1.")] = 20,
    out: Annotated[Path, typer.Option(help="Folder for the curves and the results.")] = Path("comparison"),
    batch: Annotated[int, typer.Option(min=1, help="Configs asked for at once.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the result does not depend on it.")] = 1,
    cold: Annotated[bool, typer.Option("--cold", help="Without the starting points of the recorded space.")] = False,
    apart: Annotated[bool, typer.Option("--apart", help="No search learns from those of other landscapes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put samplers side by side on recorded landscapes: best-so-far curves, a table, and the performance score P.

    Writes OUT/curves.png, OUT/curves.html and OUT/comparison.json. Unless they are apart, the searches of one seed are
    a campaign, in the order of the landscapes, as for replay.
    """
    names = list(dict.fromkeys(filter(None, map(str.strip, samplers.split(",")))))
    if not names:
        raise UsageError(f"--samplers {samplers!r} names none; known: {', '.join(registry.names(Sampler))}")
    for name in names:
        registry.sampler(name)
    draw_png, draw_html = _drawing()
    landscapes = searchable(session.read_all(files))
    _make_folder(out)  # before hours of searching, not after
    terms = {"seeds": seeds, "batch": batch, "workers": workers}
    found = {}
    for name in names:
        with progress.counting(f"searches of {name}", quiet=as_json) as count:
            found[name] = list(campaigns(landscapes, name, budget, **terms, cold=cold, apart=apart, progress=count))
    result = compare_arms(landscapes, found, budget)
    record = {**result.to_json(), "batch": batch, "cold": cold, "apart": apart}
    contents: dict[str, str | bytes] = {
        "comparison.json": json.dumps(record, indent=1) + "\n",
        "curves.png": draw_png(result),
        "curves.html": draw_html(result),
    }
    written = _write_all(contents, out)
    if as_json:
        _print_json(record)
    else:
        print(study_report.comparison(result, _columns()))
        print("\n" + "\n".join(map(str, written)))


@app.command()
def show(
    source: Annotated[str, typer.Argument(help="A table (its name ends in .json), or a database: file or URL.")],
    optuna: Annotated[str | None, typer.Option(metavar="URL", help=_OPTUNA_HELP)] = None,
    as_json: AsJson = False,
) -> None:
    """Print a table's rows, or what a database holds."""
    if source.endswith(".json"):
        if optuna is not None:
            raise UsageError(f"--optuna writes what a database holds, and {source} is a table: name the database")
        table = read_table(Path(source))
        if as_json:
            _print_json(holdings.table_record(table))
        else:
            print(holdings.table(table, _columns()))
        return
    with Database.open(source, create=False) as store:
        if optuna is not None:
            _write_studies(store, optuna, as_json)
        elif as_json:
            _print_json(holdings.database_record(store))
        else:
            print(holdings.database(store, _columns()))


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="A table.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The table to compare it with.")],
    as_json: AsJson = False,
) -> None:
    """Say in which rows two tables differ; exit status 1 if they do.

    A row differs if it was added, is gone, has another winner, or the same winner with a time that changed beyond the
    intervals, or that comes of other evidence or another protocol.
    """
    old, new = read_table(before), read_table(after)
    found = diff_tables(old, new)
    if as_json:
        _print_json(diff_report.diff_record(found))
    else:
        print(diff_report.diff(found, new.device, _columns()))
    raise typer.Exit(0 if found.same else 1)


@app.command()
def export(
    table: Annotated[Path, typer.Argument(help="The table to export (table.json).")],
    to: Annotated[str, typer.Option(help="The consumer.")] = "inductor",
    out: Annotated[
        Path | None, typer.Option(help="Folder; the files go to OUT/<consumer>. [default: the table's]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Refuse a table of another device.")] = None,
    estimated: Annotated[bool, typer.Option("--estimated", help="Export rows that nobody timed, too.")] = False,
) -> None:
    """Write a table as the files its consumer loads."""
    if device is not None:
        require_device(read_table(table), catalogue.device(device))
    files = export_table(registry.exporter(to), read_table(table), estimated=estimated)
    for path in _write_all(files, (out or table.parent) / to):
        print(path)


@app.command()
def status(
    database: Annotated[str, typer.Argument(metavar="DB", help="The database of a campaign: file or URL.")],
    as_json: AsJson = False,
) -> None:
    """Say how far a campaign is, from another terminal: it reads the database and disturbs nothing."""
    now = datetime.now(UTC)
    with Database.open(database, create=False) as store:
        found = status_report.found_in(store, now)
    if as_json:
        _print_json(status_report.status_record(found, now))
    else:
        print(status_report.status(found, now, _columns()))


@app.command()
def merge(
    into: Annotated[str, typer.Argument(metavar="INTO", help="The database to add to: file or URL.")],
    sources: Annotated[list[str], typer.Argument(metavar="FROM...", help="The databases to read.")],
    as_json: AsJson = False,
) -> None:
    """Bring the databases of several sites together; what INTO holds already stays as it is.

    A database of an older schema is upgraded first. Stopped and started again, it goes on where it was.
    """
    with ExitStack() as opened:
        others = {s: opened.enter_context(Database.open(s, create=False)) for s in dict.fromkeys(sources)}
        target = opened.enter_context(Database.open(into))
        merged = {source: merge_databases(target, other) for source, other in others.items()}
    if as_json:
        _print_json({source: asdict(found) for source, found in merged.items()})
    else:
        print("\n".join(holdings.merged(source, found) for source, found in merged.items()))


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
    arguments = (task, found.params(task), count, found.seeds(task), found.prior(task))
    if as_json:
        _print_json(space_report.space_record(*arguments))
    else:
        print(space_report.space(*arguments, _columns()))


@app.command()
def doctor(
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Look at the GPU, what Inductor withholds from it, its clocks, versions, compilers, Ray and the database.

    Each line is ok or says what helps. Exit status 1 where something keeps gemmtune from measuring or storing here.
    """
    checks = doctor_report.examine(database or "out/measurements.db", os.environ)
    if as_json:
        _print_json(doctor_report.doctor_record(checks))
    else:
        print(doctor_report.doctor(checks))
    raise typer.Exit(0 if doctor_report.healthy(checks) else 1)


@app.command()
def explain(
    table: Annotated[Path | None, typer.Argument(help="A table (table.json). [default: none]")] = None,
    linear: Annotated[str | None, typer.Option(metavar="IN:OUT", help="A layer. [default: the table's]")] = None,
    dtype: Annotated[str, typer.Option(help="Of the layer: bf16, fp16 or fp32.")] = "bf16",
    torch: Annotated[str | None, typer.Option(help=_TORCH_HELP)] = None,
    grad: Annotated[bool, typer.Option("--grad/--no-grad", help="Whether weights need a gradient.")] = True,
    input_grad: Annotated[bool, typer.Option("--input-grad", help="The input needs one too, as in a model.")] = False,
    padding: Annotated[bool, typer.Option("--padding/--no-padding", help="Inductor's shape_padding.")] = True,
    device: Annotated[str | None, typer.Option(help="The GPU. [default: the table's, or H200]")] = None,
    as_json: AsJson = False,
) -> None:
    """Say which m of a linear layer share one compiled graph, what cuts them, which rows they find, what to warm up.

    It holds for a dynamic m, with max_autotune_gemm, and needs neither torch nor a GPU.
    """
    content = read_table(table) if table else None
    target = catalogue.device(device) if device else content.device if content else catalogue.device("H200")
    if content is not None:
        require_device(content, target)
    if linear is not None:
        layers: Sequence[Linear] = [Linear.parse(linear, dtype, weight_grad=grad, input_grad=input_grad)]
    elif content is not None:
        layers = explain_report.layers_of(content, weight_grad=grad, input_grad=input_grad)
    else:
        raise UsageError("nothing to explain: name a table, or a layer with --linear IN:OUT")
    version = torch or explain_report.installed_torch()
    found = [explain_report.explanation(x, version, target, content, shape_padding=padding) for x in layers]
    if as_json and linear is not None:
        _print_json(explain_report.explain_record(found[0]))
    elif as_json:
        _print_json({"layers": [explain_report.explain_record(each) for each in found]})
    else:
        print("\n\n".join(explain_report.explain(each, _columns()) for each in found))


def main() -> None:
    """Run the command line; a wrong use ends with one line and exit status 2."""
    try:
        with _stoppable():
            status = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.exit(status)
    except GemmtuneError as error:
        _complain(str(error))
        sys.exit(2)
    except _CommandLineError as error:
        command = error.ctx.command_path if error.ctx else "gemmtune"
        _complain(f"{error.format_message().rstrip('.')}; see {command} --help")
        sys.exit(2)
    except _Stopped as stopped:
        command = shlex.join(["gemmtune", *sys.argv[1:]])
        _complain(f"stopped; what was measured is kept, and tune and record go on where they were: {command}")
        sys.exit(128 + stopped.signal)


# The base of all that typer says of a command line; it stands in click, or in typer's own copy of click.
_CommandLineError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)


class _Stopped(BaseException):
    """Ctrl-C or a polite kill; no Exception, so that nothing on the way takes it for a failure of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGINT and SIGTERM end what runs in order, with its processes; one that is ignored stays ignored."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise _Stopped(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _complain(message: str) -> None:
    print(f"gemmtune: {' '.join(message.split())}", file=sys.stderr)


def _print_json(record: Mapping[str, object]) -> None:
    print(json.dumps(record, indent=2, ensure_ascii=False))


def _columns() -> int | None:
    """Columns of the terminal; a file or a pipe has no limit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


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


@contextmanager
def _clocks(mhz: int | None, fleet: Fleet) -> Iterator[None]:
    """Lock the clocks of the GPUs that are measured, if that is asked for."""
    with ExitStack() as locks:
        if mhz is not None and isinstance(fleet, ReplayFleet | EstimateFleet):
            answers = "recorded landscapes answer" if isinstance(fleet, ReplayFleet) else "a model answers"
            print(f"clocks are not locked: {answers}, nothing is measured", file=sys.stderr)
        elif mhz is not None:
            for gpu in equal_gpus():
                locks.enter_context(ClockLock(gpu, mhz, lambda line: print(line, file=sys.stderr)))
        yield


def _say_why_replayed() -> None:
    names = gpu_names()
    why = f"{names[0]} found, but not gemmtune[triton]: pip install 'gemmtune[triton]'" if names else "No GPU found"
    print(f"{why}; using the recorded landscapes.", file=sys.stderr)


def _say_what_estimates(target: Device, protocol: str) -> None:
    why = f"{target.name} found, but not gemmtune[triton]" if target.name in gpu_names() else f"No {target.name} here"
    print(f"{why}: kernels are built for it and not timed ({protocol}).", file=sys.stderr)


def _write_studies(store: Database, url: str, as_json: bool) -> None:
    from gemmtune.engine.report.optuna_study import study_line, write_studies  # optuna takes a while to import

    with progress.counting("trials", quiet=as_json) as count:
        written = write_studies(store, url, count)
    if as_json:
        _print_json({"studies": [asdict(study) for study in written]})
    else:
        print("\n".join([*map(study_line, written), f"to look at them: optuna-dashboard {url}"]))


def _gpu_or_fail(command: str) -> Device:
    device = present_device()
    if device is None:
        raise DeviceError(f"{command} measures, and there is no GPU here (or gemmtune[triton] is not installed)")
    return device


def _database_url(out: Path, database: str | None) -> str:
    _make_folder(out)
    return database or str(out / "measurements.db")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}; name another folder with --out") from None


def _export_what_can_be(table: Path, out: Path) -> tuple[list[Path], list[str]]:
    """Export to every consumer of what was tuned; the notes say which cannot be given this table, and why."""
    written, notes = [], []
    content = read_table(table)  # what the file holds, not what memory holds: the file is what ships
    tuned = {choice.space for row in content.rows for choice in row.choices}
    for name in registry.names(Exporter):
        exporter = registry.exporter(name)
        if exporter.spaces and tuned.isdisjoint(exporter.spaces):
            continue
        try:
            files = export_table(exporter, content)
        except TableError as error:
            old = f"; {out / name} is of an earlier table" if (out / name).exists() else ""
            notes.append(f"not exported to {name}: {error}{old}")
        else:
            written += _write_all(files, out / name)
    return written, notes


def _drawing() -> tuple[Callable[[Comparison], bytes], Callable[[Comparison], str]]:
    """What draws curves as a picture and as a page.

    Raises:
        ToolchainMissing: matplotlib or plotly is not installed.
    """
    try:
        from gemmtune.engine.report.curves_html import curves_html
        from gemmtune.engine.report.curves_png import curves_png
    except ImportError as error:
        raise ToolchainMissing(f"compare needs {error.name} to draw curves: pip install 'gemmtune[study]'") from None
    return curves_png, curves_html


def _write_all(files: Mapping[str, str | bytes], folder: Path) -> list[Path]:
    _make_folder(folder)
    for name, body in files.items():
        write_whole(folder / name, body.encode() if isinstance(body, str) else body)
    return [folder / name for name in files]


if __name__ == "__main__":
    main()
