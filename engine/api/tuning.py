"""Problems in, a table out: one call for a whole campaign."""

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeAlias

from gemmtune.engine.api.landscapes import LandscapeSource, sources_of
from gemmtune.engine.api.output_folder import folder_of, make_folder
from gemmtune.engine.api.plans import read_plan
from gemmtune.engine.api.tune_result import TABLE_FILE, TuneResult
from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.open_backend import open_backend
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.result import Finding
from gemmtune.engine.io.paths import find_database
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.report.progress.run import RunRecorder
from gemmtune.engine.scheduling.callbacks import Callback, notify
from gemmtune.engine.seams.kinds import expand_workloads
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.files import locked
from gemmtune.engine.tables.earlier import read_earlier
from gemmtune.engine.tables.portfolio import LossLimits
from gemmtune.engine.tables.ranges import RangeLimits

ProblemLike: TypeAlias = str | Workload | type
"""A problem, or its text: "2048x4096x4096:bf16:nt"."""
_Path: TypeAlias = str | os.PathLike[str]


def tune(
    problems: ProblemLike | Iterable[ProblemLike] = (),
    *,
    campaign: _Path | Plan | None = None,
    space: str | Iterable[str] | None = None,
    sampler: str | type[Sampler] | None = None,
    pruners: Iterable[str] | None = None,
    objective: str | None = None,
    budget: int | None = None,
    seed: int | None = None,
    batch: int | None = None,
    seconds: float | None = None,
    gpu_seconds: float | None = None,
    regret: float | None = None,
    margin: float | None = None,
    portfolio: bool | LossLimits = False,
    ranges: bool | RangeLimits = False,
    hold_out: Iterable[ProblemLike] = (),
    backend: LandscapeSource | Sequence[LandscapeSource] = "auto",
    device: str | None = None,
    fleet: str = "local",
    ray_address: str | None = None,
    builders: int | None = None,
    lock_clocks: int | None = None,
    callbacks: Sequence[Callback] = (),
    database: _Path | None = None,
    out: _Path | None = None,
    replace_table: bool = False,
    report: bool = True,
    command: str = "",
) -> TuneResult:
    """Search for the best config of each problem and return the table.

    Every measurement is stored as it is made: a campaign that was stopped goes on where it was when it is started again
    with the same database. Arguments take precedence over the campaign file.

    Args:
        problems: problems or their texts, [BATCHx]MxNxK[:DTYPE[:LAYOUT[:OP]]], beside those of the campaign file.
            Without any, every recorded one is tuned.
        campaign: a campaign file (TOML), or the plan that was read from one.
        space: spaces to search; by default triton_mm.
        sampler: a registered name, or a class derived from `Sampler`; by default transfer.
        pruners: registered pruners, asked before and after each build.
        objective: registered objective to minimise; by default latency.
        budget: evaluations per task, failures included; by default 64.
        seed: seed of every random choice; by default 0.
        batch: configs that a sampler is asked for at once; by default 8.
        seconds: stop searching after this time, s.
        gpu_seconds: stop searching after this wall time x GPUs, s.
        regret: end a search when its best is at most this fraction behind the best there is, such as 0.02.
        margin: lead over the vendor library that a row needs to ship another kernel, as a fraction; by default 0.02.
        portfolio: let problems share few configs, within these losses.
        ranges: add rows for ranges of m, within this loss.
        hold_out: problems that check the ranges and get no row.
        backend: "auto" for a GPU if there is one, else the recorded landscapes; a device by SKU, which is estimated if
            it is neither here nor recorded; landscapes or their files.
        device: SKU of the device that landscapes without one were recorded on, or as in `backend`.
        fleet: where to build and measure: local, ray, or ray://HOST:PORT.
        ray_address: cluster that fleet="ray" stands for; by default one that runs here, else a new one.
        builders: builder processes; by default one per core, less one.
        lock_clocks: SM clock to lock during the campaign, MHz.
        callbacks: followers of the campaign.
        database: file or URL of the measurements; by default measurements.db in `out`, else in a new temporary folder
            that is not deleted.
        out: folder for the table, its exports, the report and the summary; by default nothing is written but the
            database.
        replace_table: drop the rows that `out` already has of other problems; by default they are kept.
        report: False to write no report.html into `out`.
        command: command line of this campaign, which the report shows.

    Raises:
        UsageError: an argument is wrong; the message names the value, the bound and the way out.
        ToolchainMissing: an optional package is needed and not installed.

    Example:
        >>> import gemmtune as gt
        >>> result = gt.tune(["16x4096x4096:bf16:nt"], backend=gt.landscapes("h200"), budget=16)
        >>> result.best("16x4096x4096:bf16:nt").space
        'triton_mm'
        >>> paths = result.save("out")
    """
    if database is not None:
        find_database(database, made=True)  # before anything that takes a while
    base = Plan() if campaign is None else campaign
    if not isinstance(base, Plan):
        base = read_plan(Path(base))
    given: dict[str, Any] = {
        # One that is in both keeps the weight of the campaign file.
        "problems": (*base.problems, *(each for each in parse_problems(problems) if each not in base.problems)),
        "spaces": (space,) if isinstance(space, str) else tuple(space or ()),
        "sampler": sampler,
        "pruners": tuple(pruners or ()),
        "objective": objective,
        "budget": budget,
        "seed": seed,
        "batch": batch,
        "margin": margin,
        "portfolio": (base.portfolio or LossLimits()) if portfolio is True else portfolio or None,
        "ranges": (base.ranges or RangeLimits()) if ranges is True else ranges or None,
        "held_out": parse_problems(hold_out),
    }
    if not given["spaces"] and base.spaces == Plan().spaces:
        given["spaces"] = tuple(dict.fromkeys(each.searched_space for each in given["problems"]))
    limits = _said({"seconds": seconds, "gpu_seconds": gpu_seconds, "regret": regret})
    plan = replace(base, limits=replace(base.limits, **limits), **_said(given))
    recorder = RunRecorder(plan.plugins.objective.unit, time.monotonic, partial(datetime.now, UTC))
    recorded, named = sources_of(backend)
    wanted = device or named
    folder = None if out is None else folder_of(out)
    opened = open_backend(
        plan,
        device=catalogue.device(wanted) if wanted else None,
        landscapes=recorded,
        builders=builders,
        cluster=fleet,
        ray_address=ray_address,
        clock_mhz=lock_clocks,
        builds=folder is None or not os.path.exists(folder / TABLE_FILE),  # else all is known, most often
        notify=partial(notify, callbacks),
    )
    callbacks = [*callbacks, recorder]
    with closing(opened):
        if folder is not None and not replace_table:
            read_earlier(folder / TABLE_FILE, opened.device, plan.objective)  # refuses a table that none can join
        url = database_url(database, folder)
        with Database.open(url, notify=partial(notify, callbacks)) as store:
            for note in opened.notes:
                notify(callbacks, note)
            found = execute(plan, opened, store, callbacks)
            run = recorder.run(command, _optima(found.findings))
            result = TuneResult(plan, opened.device, found, url, run)
            if folder is not None:
                for callback in callbacks:
                    callback.on_save()
                with locked(folder):  # campaigns that end together keep each other's rows
                    try:
                        earlier = read_earlier(folder / TABLE_FILE, opened.device, plan.objective)
                    except UsageError as error:
                        if not replace_table:
                            raise
                        earlier = None
                        notify(callbacks, f"replaces an earlier table: {error}")
                    result.join(earlier, store, keep=not replace_table)
                    result.save_with(folder, store, report=report)
    return result


def _optima(findings: Iterable[Finding]) -> dict[str, float]:
    """Return the best score there is by problem, where the backend knows it."""
    known = ((f.problem.name, f.score * f.fraction_of_optimum) for f in findings if f.score and f.fraction_of_optimum)
    optima: dict[str, float] = {}
    for name, score in known:
        optima[name] = min(score, optima.get(name, score))
    return optima


def database_url(database: _Path | None, out: Path | None) -> str:
    """Return where measurements go: the named database, else a file in `out`, else in a new temporary folder.

    Raises:
        UsageError: `out` cannot be written.
    """
    if out is not None:
        make_folder(out)
    return os.fspath(
        database if database is not None else (out or Path(mkdtemp(prefix="gemmtune-"))) / "measurements.db"
    )


def parse_problems(problems: ProblemLike | Iterable[ProblemLike]) -> tuple[Workload, ...]:
    """Return the problems, each text parsed, and each kernel's class by its cases; a single one may stand for a list.

    Raises:
        ProblemError: a text is malformed or a size is out of bounds.
    """
    those = (problems,) if isinstance(problems, str | Workload | type) else problems
    return tuple(workload for each in those for workload in _workloads(each))


def _workloads(problem: ProblemLike) -> tuple[Workload, ...]:
    """Return the workload, those of a text, or the cases of a class that describes a Triton kernel."""
    if isinstance(problem, Workload):
        return (problem,)
    if isinstance(problem, str):
        return expand_workloads(problem)
    file = getattr(sys.modules.get(problem.__module__), "__file__", None)
    if file is None:
        raise UsageError(f"class {problem.__qualname__} is in no file, which builders read it from: put it into one")
    return expand_workloads(f"triton:{file}:{problem.__qualname__}")


def _said(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that the caller gave."""
    return {name: value for name, value in arguments.items() if value not in (None, ())}
