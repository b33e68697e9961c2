"""Write a database as Optuna studies, for optuna-dashboard and Optuna's plots. Imports optuna."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import create_engine, inspect
from sqlalchemy.exc import SQLAlchemyError

from gemmtune.engine.records.config import Param, Value
from gemmtune.engine.records.errors import GemmtuneError, StoreError
from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import Report, count
from gemmtune.engine.seams import registry
from gemmtune.engine.search.quiet_optuna import quiet_optuna
from gemmtune.engine.store.connection import reason
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.schema import measurements as measurements_table


@dataclass(frozen=True, slots=True)
class WrittenStudy:
    """One study of an Optuna storage."""

    name: str  # task, evidence and protocol
    trials: int
    new: int  # trials that were added now


def write_studies(
    database: Database, url: str, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[WrittenStudy]:
    """Write one study per task, evidence and protocol, with one trial per measurement; existing trials stay.

    A trial's values are the time in µs and, where it was measured, the energy in mJ. A failed measurement is a trial
    with the state FAIL. Reasons and all other measured figures are user attributes. `url` names the Optuna storage,
    such as `sqlite:///studies.db`; `progress` is called with the trials done and their number, per study.

    Raises:
        StoreError: the storage cannot be opened, holds other tables, or has a study with other parameters.
    """
    with quiet_optuna(), _storage(url) as storage:
        written = []
        for task in database.tasks():
            groups: dict[tuple[str, str], list[Measurement]] = {}
            for m in database.measurements(task):
                groups.setdefault((m.evidence.value, m.protocol), []).append(m)
            for key, group in groups.items():
                name = ", ".join((task.key, *filter(None, key)))
                written.append(_write(storage, name, task, group, progress))
        return written


def studies_report(studies: Sequence[WrittenStudy], url: str) -> Report:
    """Report each study that was written to the storage at `url`, and the command that shows them."""
    lines = [f"{study.name}: {count(study.trials, 'trial')}, {study.new} new" for study in studies]
    text = "\n".join([*lines, f"to look at them: optuna-dashboard {url}"])
    return Report({"studies": studies}, [text])


def _write(
    storage: optuna.storages.BaseStorage,
    name: str,
    task: Task,
    group: Sequence[Measurement],
    progress: Callable[[int, int], None],
) -> WrittenStudy:
    with_energy = any(m.energy_joules is not None for m in group)
    metrics = ["time µs", "energy mJ"] if with_energy else ["time µs"]
    study = optuna.create_study(
        storage=storage, study_name=name, directions=["minimize"] * len(metrics), load_if_exists=True
    )
    study.set_metric_names(metrics)
    there = {_identity(trial.user_attrs) for trial in study.get_trials(deepcopy=False)}
    distributions = _distributions(task, group)
    new = 0
    for done, measurement in enumerate(group, 1):
        trial = _trial(measurement, distributions, with_energy)
        if _identity(trial.user_attrs) not in there:
            try:
                study.add_trial(trial)
            except ValueError as error:
                raise StoreError(
                    f"study {name!r} has other parameters than {task.space} has now: write to a new storage ({error})"
                ) from error
            new += 1
        progress(done, len(group))
    return WrittenStudy(name, len(there) + new, new)


def _trial(measurement: Measurement, distributions: Mapping[str, BaseDistribution], with_energy: bool) -> FrozenTrial:
    estimate, energy = measurement.estimate, measurement.energy_joules
    values = None
    if measurement.status is Status.OK and estimate is not None and (energy is not None or not with_energy):
        values = [estimate.time_ns / 1e3] + ([energy * 1e3] if with_energy and energy is not None else [])
    trial = optuna.trial.create_trial(
        state=TrialState.FAIL if values is None else TrialState.COMPLETE,
        values=values,
        params=dict(measurement.config),
        distributions={name: distributions[name] for name in measurement.config},
        user_attrs=_attributes(measurement),
    )
    at = _local(measurement.created_at)
    if at is not None:
        trial.datetime_start = trial.datetime_complete = at
    return trial


def _attributes(m: Measurement) -> dict[str, Value]:
    """Return the user attributes of a trial, without those that were not measured."""
    found: dict[str, Value | None] = {
        "config": m.config.digest,
        "status": m.status.value,
        "reason": m.reason or None,
        "low_us": m.estimate.low_ns / 1e3 if m.estimate else None,
        "high_us": m.estimate.high_ns / 1e3 if m.estimate else None,
        "samples": len(m.samples_ns) or None,
        "build_seconds": m.build_seconds,
        "registers": m.resources.registers if m.resources else None,
        "shared_bytes": m.resources.shared_bytes if m.resources else None,
        "spill_bytes": m.resources.spill_bytes if m.resources else None,
        "error_norm": None if m.error_norm is None else str(m.error_norm),  # NaN and infinity are not JSON
        "sm_clock_mhz": m.after.sm_clock_mhz if m.after else None,
        "toolchain": m.toolchain.text,
        "worker": m.worker,
    }
    return {name: value for name, value in found.items() if value is not None}


def _identity(attributes: Mapping[str, object]) -> tuple[object, object]:
    """Return the attributes that identify a measurement within its study."""
    return attributes.get("config"), attributes.get("toolchain")


def _distributions(task: Task, group: Sequence[Measurement]) -> dict[str, BaseDistribution]:
    """Return the distribution per param, over the space's values if it is installed and over the measured ones."""
    try:
        params = {param.name: param for param in registry.space(task.space).params(task)}
    except GemmtuneError:  # the space is not installed, or does not know the task
        params = {}
    names = dict.fromkeys(name for m in group for name in m.config)
    return {
        name: _distribution(params.get(name), {m.config[name] for m in group if name in m.config}) for name in names
    }


def _distribution(param: Param | None, found: Iterable[Value]) -> BaseDistribution:
    """Return a range for ordered numbers, logarithmic unless they are evenly spaced; otherwise a choice."""
    known = param.values if param is not None else ()
    values = (*known, *sorted((v for v in found if v not in known), key=repr))
    ordered = param is None or param.ordered
    numbers = sorted(v for v in values if isinstance(v, int | float) and not isinstance(v, bool))
    if not ordered or len(numbers) < len(values):
        return CategoricalDistribution(values)
    low, high = numbers[0], numbers[-1]
    if not all(isinstance(number, int) for number in numbers):
        return FloatDistribution(low, high)
    # Without a param, a plain range stays valid when more values are measured.
    steps = {int(after - before) for before, after in pairwise(numbers)} if param is not None else set()
    if len(steps) == 1:
        return IntDistribution(int(low), int(high), step=steps.pop())
    return IntDistribution(int(low), int(high), log=len(steps) > 1 and low >= 1)


@contextmanager
def _storage(url: str) -> Iterator[optuna.storages.RDBStorage]:
    try:
        engine = create_engine(url)
        try:
            tables = inspect(engine).get_table_names()
        finally:
            engine.dispose()
        if measurements_table.name in tables:
            raise StoreError(f"{engine.url!r} holds measurements: give Optuna a storage of its own")
        storage = optuna.storages.RDBStorage(url)
    except (SQLAlchemyError, ImportError, RuntimeError) as error:  # RuntimeError: another version of Optuna made it
        raise StoreError(f"Optuna cannot open storage {url}: {reason(error)}") from None
    try:
        yield storage
    finally:  # Optuna leaves its connections to the garbage collector
        storage.remove_session()
        storage.engine.dispose()


def _local(created_at: str) -> datetime | None:
    """Return the time in this machine's zone, as Optuna keeps it; None if the measurement has no time."""
    try:
        at = datetime.fromisoformat(created_at)
    except ValueError:
        return None
    return at.astimezone().replace(tzinfo=None) if at.tzinfo else at
