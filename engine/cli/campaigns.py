"""The commands that search: tune and sweep."""

import os
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Unpack

import typer

from gemmtune.engine.campaign.plan import Plan, PlanOptions
from gemmtune.engine.cli import output
from gemmtune.engine.cli.choices import Kind, one_of
from gemmtune.engine.cli.options import (
    AsJson,
    Builders,
    DatabaseUrl,
    Kernels,
    LockClocks,
    Problems,
    Replayed,
    SamplerOptions,
    Where,
    in_output,
    in_problems,
    named,
    refuse_others,
    takes_plan_options,
    with_options,
)
from gemmtune.engine.execution.hosts import LOCAL
from gemmtune.engine.io.printing import print_notice, print_text, without_passwords
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.seams import registry
from gemmtune.engine.store.files import write_whole

_CAMPAIGN_HELP = (
    "A campaign file (TOML); Python files that it names are imported. Or a recording of a program. Several become one "
    "campaign: weights of equal problems add up."
)
_DEVICE_HELP = f"The device that the table is for, {one_of(Kind.DEVICES)}."
_MODEL_HELP = "The GPU model to measure on, where a cluster has several."
_INIT_HELP = "Write a new campaign file with every key in a comment, and search nothing."
_REPLACE_HELP = "Drop the rows that OUT already has of other problems; by default they stay in the table."
_NAME_HELP = "Name of the campaign in the database, for gemmtune campaigns. [default: the user's, with a digest]"
_PRICE_HELP = "Price per GPU-hour, and per core-hour as in gpu=2.5,core=0.04; the record then has a cost."


@takes_plan_options
def tune(
    context: typer.Context,
    campaign: Annotated[list[Path] | None, typer.Argument(metavar="CAMPAIGN", help=_CAMPAIGN_HELP)] = None,
    problem: Problems = None,
    kernel: Kernels = None,
    *,
    init: Annotated[Path | None, in_problems(metavar="FILE", help=_INIT_HELP)] = None,
    out: Annotated[Path, in_output(help="Folder for the table, its exports and the database.")] = Path("out"),
    device: Annotated[str | None, named(Kind.DEVICES, _DEVICE_HELP, "Where")] = None,
    replay: Replayed = None,
    database: DatabaseUrl = None,
    fleet: Where = LOCAL,
    builders: Builders = None,
    lock_clocks: LockClocks = None,
    name: Annotated[str, in_output(metavar="NAME", help=_NAME_HELP)] = "",
    price: Annotated[str | None, in_output(metavar="gpu=N", help=_PRICE_HELP)] = None,
    replace: Annotated[bool, in_output("--replace", help=_REPLACE_HELP)] = False,
    report: Annotated[bool, in_output("--report/--no-report", help="Write OUT/report.html.")] = True,
    events: Annotated[
        Path | None, in_output(metavar="FILE", help="Append each event to this file, one JSON object per line.")
    ] = None,
    sampler_option: SamplerOptions = None,
    as_json: AsJson = False,
    **options: Unpack[PlanOptions],
) -> None:
    """Search for the best config per problem and write the table.

    OUT receives the table, its exports, a report and a summary. Without a GPU the recorded landscapes answer. Without a
    problem, the recorded problems are tuned. For a device that is neither here nor recorded, kernels are built and
    their times estimated, where the space has a model of them.
    """
    if init is not None:
        refuse_others(context, "tune --init", "init")
        _write_template(init)
        return
    with show_work("at work", quiet=as_json):
        from gemmtune.engine.api.plans import read_plan
        from gemmtune.engine.api.tuning import tune as tune_problems
        from gemmtune.engine.report.progress.display import show_progress
        from gemmtune.engine.report.progress.json_lines import EventFile
        from gemmtune.engine.report.progress.progress_file import keep_progress
        from gemmtune.engine.scheduling.callbacks import Callback

        options["sampler"] = with_options(options.get("sampler"), sampler_option)
        plan = read_plan(*campaign, options=options) if campaign else Plan()
        unit = registry.objective(str(options.get("objective") or plan.objective)).unit
    command = without_passwords(shlex.join(["gemmtune", *sys.argv[1:]]))
    with ExitStack() as opened:
        state, shown = opened.enter_context(show_progress(quiet=as_json, unit=unit))
        callbacks: list[Callback] = [state, shown]
        callbacks += [opened.enter_context(EventFile(events))] if events else []
        callbacks.append(opened.enter_context(keep_progress(out, state)))
        result = tune_problems(
            [*(problem or ()), *(f"triton:{each}" for each in kernel or ())] or None,
            campaign=plan,
            backend=replay or "auto",
            device=device,
            fleet=fleet,
            ray_address=os.environ.get("RAY_ADDRESS"),
            builders=builders,
            lock_clocks=lock_clocks,
            callbacks=callbacks,
            database=database,
            name=name,
            price=price,
            out=out,
            replace_table=replace,
            report=report,
            command=command,
            **options,
        )
    output.show(result.report, as_json=as_json)
    if result.is_cancelled:
        findings = result.campaign.findings
        left = sum(not found.evaluations for found in findings)
        print_notice(f"gemmtune: cancelled; {left} of {len(findings)} searches had not begun. To go on: {command}")
    if result.broken or result.is_cancelled:
        raise typer.Exit(2 if result.broken else 3)


def _write_template(path: Path) -> None:
    from gemmtune.engine.campaign.plan_keys import campaign_template

    if path.exists():
        raise UsageError(f"{path} is there already; name another file")
    write_whole(path, campaign_template().encode())
    print_text(f"{path}: name your problems in it, then gemmtune tune {path}")


def sweep(
    problem: Problems = None,
    space: Annotated[list[str] | None, typer.Option(help="A space to measure. Repeat for more.")] = None,
    out: Annotated[Path, in_output(help="Folder for the landscapes and the database.")] = Path("recorded"),
    objective: Annotated[str, typer.Option(help="The objective whose timing protocol is used.")] = "latency",
    device: Annotated[str | None, named(Kind.DEVICES, _MODEL_HELP)] = None,
    fleet: Where = LOCAL,
    database: DatabaseUrl = None,
    builders: Builders = None,
    lock_clocks: LockClocks = None,
) -> None:
    """Measure every feasible config of each problem.

    Uses the fleet's GPUs and writes the landscapes to OUT/<device>_<space>.csv.gz. A recording that was stopped goes
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
            device=device,
            fleet=fleet,
            ray_address=os.environ.get("RAY_ADDRESS"),
            builders=builders,
            lock_clocks=lock_clocks,
            callbacks=callbacks,
            database=database,
            out=out,
        )
    for path, landscapes in written.items():
        print_text(f"{path}: {len(landscapes)} problems, {sum(len(each.points) for each in landscapes)} configs")
