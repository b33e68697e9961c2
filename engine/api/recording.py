"""Record landscapes: every feasible config of each problem, measured on the GPUs of one model."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from gemmtune.engine.api.output_folder import folder_of
from gemmtune.engine.api.plans import parse_problems
from gemmtune.engine.api.tuning import database_url
from gemmtune.engine.campaign.measured_backend import measured_backend, unsearched
from gemmtune.engine.campaign.plan import Plan, ProblemLike
from gemmtune.engine.execution.gpu_normalization import GpuNormalization
from gemmtune.engine.execution.hosts import LOCAL, Hosts, require_lockable
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.callbacks import Callback, notify
from gemmtune.engine.scheduling.scheduler import Scheduler
from gemmtune.engine.scheduling.withdrawn import repeated
from gemmtune.engine.seams.space import Space
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import write_landscapes


def record(
    problems: ProblemLike | Iterable[ProblemLike],
    *,
    spaces: Sequence[str] = ("triton_mm",),
    objective: str = "latency",
    device: str | None = None,
    fleet: str = LOCAL,
    ray_address: str | None = None,
    builders: int | None = None,
    lock_clocks: int | None = None,
    callbacks: Sequence[Callback] = (),
    database: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "recorded",
) -> dict[Path, list[Landscape]]:
    """Measure every feasible config of each problem, the baseline's too, and write one landscape file per space.

    Args:
        problems: problems or their texts.
        spaces: spaces to measure.
        objective: registered objective, whose timing protocol is used.
        device: SKU of the GPUs to measure on, where a cluster has several.
        fleet: where to build and measure: local, ray, or ray://HOST:PORT.
        ray_address: cluster that fleet="ray" stands for; by default one that runs here, else a new one.
        builders: builder processes; by default one per core, less one.
        lock_clocks: SM clock to lock meanwhile, MHz.
        callbacks: followers of the measurements.
        database: file or URL of the measurements; by default measurements.db in `out`.
        out: folder for the files, `device`_`space`.csv.gz.

    Returns:
        The landscapes by their file.

    Raises:
        DeviceError: the hosts have no GPU, or several models of which none is named.
        UsageError: no problem is named, no space has a config for one, or `out` cannot be written.
    """
    named = parse_problems(problems)
    names = tuple(dict.fromkeys((*spaces, *(problem.baseline_space for problem in named))))
    plan = Plan(named, names, "exhaustive", (), objective, budget=sys.maxsize, batch=256)
    plan.require_kinds()
    folder, tell = folder_of(out), partial(notify, callbacks)
    require_lockable(lock_clocks, fleet)
    machines = Hosts(fleet, ray_address, tell)
    wanted = None if device is None else catalogue.device(device)
    present = machines.require_device("sweep", wanted)
    open_executor = partial(
        machines.executor(present),
        protocol_name=plan.plugins.objective.protocol,
        builders=builders,
        early_stopping=False,  # every config gets all its launches
        notify=tell,
    )
    backend = measured_backend(plan, present, open_executor, clock_mhz=lock_clocks, notify=tell)
    written: dict[Path, list[Landscape]] = {}
    with closing(backend), Database.open(database_url(database, folder)) as store:
        searches, objective_of = backend.searches, plan.plugins.objective
        for line in unsearched(plan, [search.task for search in searches]):
            tell(line)
        made = partial(Scheduler, searches, backend.executor, store, objective_of, callbacks, hold_finals=False)
        repeated(searches, lambda: made().run())
        normalization = GpuNormalization(store)
        for name in names:
            path = folder / f"{present.sku.lower()}_{name}.csv.gz"
            written[path] = [
                landscape_from(
                    search.task,
                    plan.plugins.spaces[name],
                    [trial.config for trial in search.trials],
                    normalization.known(search.task, backend.executor),
                )
                for search in searches
                if search.task.space == name
            ]
            write_landscapes(path, written[path])
    return written


def landscape_from(
    task: Task, space: Space, order: Iterable[Config], measurements: Mapping[Config, Measurement]
) -> Landscape:
    """Return the landscape of one task, its points in the given order, without the configs that were not measured."""
    points = {
        m.config: Point(
            config=m.config,
            status=m.status,
            time_ns=m.estimate.time_ns if m.estimate else None,
            samples_ns=m.samples_ns,
            reason=m.reason,
            resources=m.resources,
            build_seconds=m.build_seconds,
        )
        for m in (measurements[config] for config in order if config in measurements)
    }
    first = next(iter(measurements.values()))
    return Landscape(
        name=task.problem.name,
        source="",
        params=space.params(task),
        points=points,
        problem=task.problem,
        context={
            "space": task.space,
            "device": task.device.sku,
            "protocol": first.protocol,
            "toolchain": first.toolchain.text,
            "date": min(m.created_at for m in measurements.values())[:10],
        },
    )
