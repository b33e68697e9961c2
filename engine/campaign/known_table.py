"""Build a table of everything that a database knows, without a campaign."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from gemmtune.engine.campaign.replayed_backend import require_cache_state
from gemmtune.engine.execution.gpu_normalization import GpuNormalization
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.measurement import Evidence, Measurement
from gemmtune.engine.records.table import Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.store.database import Database
from gemmtune.engine.tables.ranking import Ranking, rank
from gemmtune.engine.tables.rows import build_table


def known_table(
    database: Database,
    objective: Objective,
    name: str,
    *,
    margin: float,
    device: str | None = None,
    problems: Collection[Workload] | None = None,
) -> Table:
    """Return the table of every problem that has an ok measurement, without ranges of m.

    Where several toolchains built a task, the newest one's measurements count, by evidence and protocol.

    Args:
        database: the measurements.
        objective: score to minimise.
        name: name of the objective.
        margin: lead over the vendor library that a row needs to ship another kernel, as a fraction.
        device: SKU of the GPU in any spelling of it; None if the database has measurements of one GPU only.
        problems: problems to rank; None for all.

    Raises:
        StoreError: the database cannot be read.
        UsageError: no measurement is of that GPU, the database has several and `device` is None, or what counts was
            recorded with another cache state than the objective's.
    """
    tasks = [task for task in database.tasks() if device is None or catalogue.same_sku(device, task.device.sku)]
    devices = {task.device for task in tasks}
    if len(devices) != 1:
        skus = ", ".join(sorted({task.device.sku for task in database.tasks()})) or "none"
        wanted = f"device {device} is not in the database" if device else "name the device of the table"
        raise UsageError(f"{wanted}; measured: {skus}")
    (found,) = devices
    of_problem: dict[Workload, list[Task]] = {}
    for task in tasks:
        if problems is not None and task.problem not in problems:
            continue
        of_problem.setdefault(task.problem, []).append(task)
    rankings = (_ranking(database, found, objective, name, its) for its in of_problem.values())
    return build_table(catalogue.known(found), name, filter(None, rankings), margin=margin)


def _ranking(
    database: Database, device: Device, objective: Objective, name: str, tasks: Sequence[Task]
) -> Ranking | None:
    normalization = GpuNormalization(database)
    measurements = (normalization.normalize(m) for task in tasks for m in _newest(database.measurements(task)))
    finals = map(normalization.normalize_final, database.finals(tasks[0].problem, device))
    ranking = next(iter(rank(device, objective, measurements, finals=finals)), None)
    for choice in (contender.choice for contender in ranking.contenders) if ranking else ():
        if choice.evidence is Evidence.REPLAYED:
            require_cache_state(objective, name, choice.protocol, f"{tasks[0].problem.name} in {choice.space}")
    return ranking


def _newest(measurements: Iterable[Measurement]) -> Iterator[Measurement]:
    """Yield the measurements of the toolchain that was used last, for each evidence and protocol by itself."""
    groups: defaultdict[tuple[Evidence, str], list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        groups[measurement.evidence, measurement.protocol].append(measurement)
    for group in groups.values():
        newest = max(group, key=lambda m: m.created_at).toolchain
        yield from (m for m in group if m.toolchain == newest)
