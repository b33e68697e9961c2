"""Problems in, a table out: one call for a whole campaign."""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from inspect import signature
from pathlib import Path
from socket import gethostname
from tempfile import mkdtemp
from typing import TypeAlias, Unpack

from gemmtune.engine.api.landscapes import LandscapeSource, sources_of
from gemmtune.engine.api.output_folder import folder_of, make_folder
from gemmtune.engine.api.plans import plan_with, read_plan, takes_options
from gemmtune.engine.api.tune_result import TABLE_FILE, TuneResult
from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.open_backend import open_backend
from gemmtune.engine.campaign.plan import Plan, PlanOptions, ProblemLike
from gemmtune.engine.campaign.result import Finding
from gemmtune.engine.io.arguments import checks_arguments
from gemmtune.engine.io.paths import find_database
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import UsageError, did_you_mean
from gemmtune.engine.report.progress.price import Price
from gemmtune.engine.report.progress.registered import registered
from gemmtune.engine.report.progress.run import RunRecorder
from gemmtune.engine.report.progress.state import CampaignState
from gemmtune.engine.scheduling.callbacks import Callback, notify
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.files import locked
from gemmtune.engine.tables.earlier import read_earlier

_Path: TypeAlias = str | os.PathLike[str]


@checks_arguments
@takes_options
def tune(
    problems: ProblemLike | Iterable[ProblemLike] | None = None,
    *,
    campaign: _Path | Plan | Sequence[_Path] | None = None,
    backend: LandscapeSource | Sequence[LandscapeSource] = "auto",
    device: str | None = None,
    fleet: str = "local",
    ray_address: str | None = None,
    builders: int | None = None,
    lock_clocks: int | None = None,
    callbacks: Sequence[Callback] = (),
    database: _Path | None = None,
    name: str = "",
    price: str | None = None,
    out: _Path | None = None,
    replace_table: bool = False,
    report: bool = True,
    command: str = "",
    **options: Unpack[PlanOptions],
) -> TuneResult:
    """Search for the best config of each problem and return the table.

    Every measurement is stored as it is made: a campaign that was stopped goes on where it was when it is started again
    with the same database. Arguments take precedence over the campaign file.

    Args:
        problems: problems or their texts, [BATCHx]MxNxK[:DTYPE[:LAYOUT[:OP]]], beside those of the campaign file.
            Where neither names any, every recorded one is tuned. The weights of equal ones add up, as of two captures.
        campaign: a campaign file (TOML), several, or the plan that was read from them. The weights of their equal
            problems add up; their settings must agree, except where an argument gives one.
        **options: options of the plan.
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
        name: name of the campaign in the database, for `gemmtune campaigns`; by default the user's, with a digest of
            what is tuned.
        price: price per hour of its machines, gpu=2.5 or gpu=2.5,core=0.04; the record of the run then has a cost.
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
    known = signature(tune).parameters
    for other in options.keys() - known.keys():
        raise UsageError(f"tune has no argument {other!r}; {did_you_mean(other, known)}known: {', '.join(known)}")
    if database is not None:
        find_database(database, made=True)  # before anything that takes a while
    hourly = None if price is None else Price.parse(price)
    base = Plan() if campaign is None else campaign
    if not isinstance(base, Plan):
        paths = [base] if isinstance(base, str | os.PathLike) else base
        base = read_plan(*paths, options=options)
    plan = plan_with(base, () if problems is None else problems, **options)
    if problems is not None and not plan.problems:
        raise UsageError("problems is empty: name some, or leave it out to tune the recorded ones")
    following = [callback for callback in callbacks if isinstance(callback, CampaignState)]
    state = following[0] if following else CampaignState(plan.plugins.objective.unit, time.monotonic)
    recorder = RunRecorder(state, partial(datetime.now, UTC))
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
    callbacks = [*([] if following else [state]), *callbacks, recorder]
    earlier_in = partial(
        read_earlier, device=opened.device, objective=plan.objective, batch_invariant=plan.batch_invariant
    )
    with closing(opened):
        if folder is not None and not replace_table:
            earlier_in(folder / TABLE_FILE)  # refuses a table that none can join
        url = database_url(database, folder)
        with Database.open(url, notify=partial(notify, callbacks)) as store:
            for note in opened.notes:
                notify(callbacks, note)
            location = gethostname() if fleet == "local" else ray_address or fleet
            campaign_row = registered(
                store,
                plan,
                state,
                callbacks,
                name=name,
                location=location,
                price=hourly,
                more=opened.more,
                on_cluster=fleet != "local",
            )
            with campaign_row as follower:
                found = execute(plan, opened, store, [*callbacks, follower], follower.orders)
            run = recorder.run(command, _optima(found.findings), hourly)
            result = TuneResult(plan, opened.device, found, url, run, is_cancelled=follower.orders.is_cancelled)
            if folder is not None:
                for callback in callbacks:
                    callback.on_save()
                with locked(folder):  # campaigns that end together keep each other's rows
                    try:
                        earlier = earlier_in(folder / TABLE_FILE)
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
