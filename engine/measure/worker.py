"""Start the worker process, the only process that uses its GPU."""

from collections.abc import Callable, Mapping
from functools import partial

from gemmtune.engine.measure.jobs import FinalJob, FinalReading, MeasureJob, Reading
from gemmtune.engine.measure.protocols import Protocol
from gemmtune.engine.processes.process_pool import Last, Notify, ProcessPool, log_notice
from gemmtune.engine.seams import registry

_BENCH = "gemmtune.engine.measure.bench"
_RUN_SECONDS = 60.0  # longest time of a measurement or a final
_START_SECONDS = 60.0  # a start takes seconds; on a lost GPU it may hang


def worker_pool(
    protocol: Protocol,
    spaces: tuple[str, ...],
    *,
    name: str = "GPU 0",
    environment: Mapping[str, str] | None = None,
    notify: Notify = log_notice,
) -> ProcessPool[MeasureJob | FinalJob, Reading | FinalReading]:
    """Return a pool of one process on the first visible GPU, with a spare process that has imported everything.

    The process loads kernels of `spaces`; `environment` may select its GPU, which messages call `name`. `notify`
    receives a line for each job that runs again and each start that failed.
    """
    return ProcessPool(
        partial(_make_bench, protocol),
        1,
        _RUN_SECONDS,
        environment=environment,
        start_seconds=_START_SECONDS,
        name=name,
        attempts=2,  # a process may die without its job being the cause
        describe=_describe,
        sends_ahead=True,
        spare_imports=(_BENCH, *dict.fromkeys(type(registry.space(name)).__module__ for name in spaces)),
        notify=notify,
    )


def _make_bench(
    protocol: Protocol,
) -> Callable[[MeasureJob | FinalJob], Reading | FinalReading | Last[Reading | FinalReading]]:
    from gemmtune.engine.measure.bench import Bench  # torch is loaded in the worker alone

    return Bench(protocol)


def _describe(job: MeasureJob | FinalJob) -> str:
    if isinstance(job, FinalJob):
        return f"the final of {job.finalists[0].task.problem.name}"
    return f"{job.task.key} {job.config}"
