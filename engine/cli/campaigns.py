"""The commands that search: tune and record."""

import os
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.choices import Kind, one_of
from gemmtune.engine.cli.options import (
    MARGIN_HELP,
    SAMPLER_HELP,
    AsJson,
    Builders,
    DatabaseUrl,
    LockClocks,
    Problems,
    Replayed,
    fraction,
    named,
    time_span,
)
from gemmtune.engine.io.printing import print_text
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler_class import sampler_named

_CAMPAIGN_HELP = "A campaign file (TOML); Python files that it names are imported. Or a recording of a program."
_SPACE_HELP = f"A space to search, {one_of(Kind.SPACES)}. Repeat for more. [default: triton_mm]"
_PRUNER_HELP = f"A pruner, asked before and after each build: {one_of(Kind.PRUNERS)}."
_OBJECTIVE_HELP = f"The objective to minimise, {one_of(Kind.OBJECTIVES)}. [default: latency]"
_DEVICE_HELP = f"The device that the table is for, {one_of(Kind.DEVICES)}."
_BATCH_HELP = "Configs that the sampler is asked for at once. [default: 8]"
_REGRET_HELP = "End a task once its best is within this fraction of the best there is, for example 0.02."
_PORTFOLIO_HELP = "Let problems share few configs, at most 2 % behind each one's best and 0.5 % in the mean."
_RANGES_HELP = (
    "Add rows for ranges of m, for each GEMM or layer with problems at several m. Measures a few configs at each 2^e "
    "and 3·2^e between those m, and each range's kernel beside the vendor library in eighths of an octave; builds "
    "nothing."
)
_HOLD_OUT_HELP = "A problem that checks the ranges and gets no row; it costs a search. Repeat for more."
_KERNEL_HELP = "A class that describes your own Triton kernel; all of its cases are tuned. Repeat for more."
_REPLACE_HELP = "Drop the rows that OUT already has of other problems; by default they stay in the table."
_FLEET_HELP = (
    "Where to build and measure: local, ray (the cluster of RAY_ADDRESS, one that runs here, or a new one of this "
    "machine) or ray://HOST:PORT."
)


def tune(
    campaign: Annotated[Path | None, typer.Argument(help=_CAMPAIGN_HELP)] = None,
    problem: Problems = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE.py:CLASS", help=_KERNEL_HELP, rich_help_panel="Problems"),
    ] = None,
    space: Annotated[list[str] | None, named(Kind.SPACES, _SPACE_HELP, "Search")] = None,
    sampler: Annotated[str | None, named(Kind.SAMPLERS, f"{SAMPLER_HELP} [default: transfer]", "Search")] = None,
    pruner: Annotated[list[str] | None, named(Kind.PRUNERS, _PRUNER_HELP, "Search")] = None,
    objective: Annotated[str | None, named(Kind.OBJECTIVES, _OBJECTIVE_HELP, "Search")] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Evaluations per task. [default: 64]", rich_help_panel="Limits")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Stop searching after N seconds, or 5m.", metavar="N", parser=time_span, rich_help_panel="Limits"
        ),
    ] = None,
    gpu_seconds: Annotated[
        float | None,
        typer.Option(
            help="Stop searching after N GPU-seconds (wall time x GPUs).",
            metavar="N",
            parser=time_span,
            rich_help_panel="Limits",
        ),
    ] = None,
    regret: Annotated[
        float | None, typer.Option(help=_REGRET_HELP, metavar="F", parser=fraction, rich_help_panel="Limits")
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help=f"{MARGIN_HELP} [default: 0.02]", metavar="F", parser=fraction, rich_help_panel="Table"),
    ] = None,
    portfolio: Annotated[bool, typer.Option("--portfolio", help=_PORTFOLIO_HELP, rich_help_panel="Table")] = False,
    ranges: Annotated[bool, typer.Option("--ranges", help=_RANGES_HELP, rich_help_panel="Table")] = False,
    hold_out: Annotated[
        list[str] | None, typer.Option(metavar="P", help=_HOLD_OUT_HELP, rich_help_panel="Problems")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of every random choice. [default: 0]", rich_help_panel="Search")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help=_BATCH_HELP, rich_help_panel="Search")] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the table, its exports and the database.", rich_help_panel="Output")
    ] = Path("out"),
    device: Annotated[str | None, named(Kind.DEVICES, _DEVICE_HELP, "Where")] = None,
    replay: Replayed = None,
    database: DatabaseUrl = None,
    fleet: Annotated[str, typer.Option(metavar="WHERE", help=_FLEET_HELP, rich_help_panel="Where")] = "local",
    builders: Builders = None,
    lock_clocks: LockClocks = None,
    replace: Annotated[bool, typer.Option("--replace", help=_REPLACE_HELP, rich_help_panel="Output")] = False,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Write OUT/report.html.", rich_help_panel="Output")
    ] = True,
    events: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Append each event to this file, one JSON object per line.", rich_help_panel="Output"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search for the best config per problem and write the table.

    OUT receives the table, its exports, a report and a summary. Without a GPU the recorded landscapes answer. Without a
    problem, the recorded problems are tuned. For a device that is neither here nor recorded, kernels are built and
    their times estimated, where the space has a model of them.
    """
    with show_work("at work", quiet=as_json):
        from gemmtune.engine.api.plans import read_plan
        from gemmtune.engine.api.tuning import tune as tune_problems
        from gemmtune.engine.campaign.plan import Plan
        from gemmtune.engine.report.progress.display import show_progress
        from gemmtune.engine.report.progress.json_lines import EventFile
        from gemmtune.engine.report.progress.progress_file import keep_progress
        from gemmtune.engine.scheduling.callbacks import Callback

        plan = read_plan(campaign) if campaign else Plan()
        unit = registry.objective(objective or plan.objective).unit
    with ExitStack() as opened:
        callbacks: list[Callback] = [*opened.enter_context(show_progress(quiet=as_json, unit=unit))]
        callbacks += [opened.enter_context(EventFile(events))] if events else []
        callbacks.append(opened.enter_context(keep_progress(out)))
        result = tune_problems(
            [*(problem or ()), *(f"triton:{each}" for each in kernel or ())],
            campaign=plan,
            space=space,
            sampler=None if sampler is None else sampler_named(sampler, Path()),
            pruners=pruner,
            objective=objective,
            budget=budget,
            seed=seed,
            batch=batch,
            seconds=seconds,
            gpu_seconds=gpu_seconds,
            regret=regret,
            margin=margin,
            portfolio=portfolio,
            ranges=ranges,
            hold_out=hold_out or (),
            backend=replay or "auto",
            device=device,
            fleet=fleet,
            ray_address=os.environ.get("RAY_ADDRESS"),
            builders=builders,
            lock_clocks=lock_clocks,
            callbacks=callbacks,
            database=database,
            out=out,
            replace_table=replace,
            report=report,
            command=shlex.join(["gemmtune", *sys.argv[1:]]),
        )
    output.show(result.report, as_json=as_json)
    if result.broken:
        raise typer.Exit(2)


def record(
    problem: Problems = None,
    space: Annotated[list[str] | None, typer.Option(help="A space to measure. Repeat for more.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the landscapes and the database.")] = Path("recorded"),
    objective: Annotated[str, typer.Option(help="The objective whose timing protocol is used.")] = "latency",
    database: DatabaseUrl = None,
    builders: Builders = None,
    lock_clocks: LockClocks = None,
) -> None:
    """Measure every feasible config of each problem here.

    Uses this machine's GPU and writes the landscapes to OUT/<device>_<space>.csv.gz. A recording that was stopped goes
    on where it was.
    """
    with show_work("at work", quiet=False):
        from gemmtune.engine.api.recording import record as record_landscapes
        from gemmtune.engine.report.progress.display import show_progress

    with show_progress(quiet=False, unit=registry.objective(objective).unit) as callbacks:
        written = record_landscapes(
            problem or (),
            spaces=space or ("triton_mm",),
            objective=objective,
            builders=builders,
            lock_clocks=lock_clocks,
            callbacks=callbacks,
            database=database,
            out=out,
        )
    for path, landscapes in written.items():
        print_text(f"{path}: {len(landscapes)} problems, {sum(len(each.points) for each in landscapes)} configs")
