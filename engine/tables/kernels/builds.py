"""Binaries of a table's kernels, built in processes of their own, because an exporter imports no compiler."""

import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeAlias

from gemmtune.engine.processes.child_process import NO_GPU
from gemmtune.engine.processes.process_pool import ProcessPool
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.gemm.problem import gemm
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kernel_call import RUNTIME_PACKAGES
from gemmtune.engine.seams.space import BuildError
from gemmtune.engine.tables.kernels.binary import kernel_name, packed

Built: TypeAlias = tuple[str, dict[str, object]]
"""Name of a kernel, and its entry in the table."""
Entry: TypeAlias = Callable[[Task, Artifact, bytes], "Built | str"]
"""Picklable function of a kernel's task, artifact and binary, which returns why there is no entry instead."""
_Wanted: TypeAlias = tuple[Task, Config]
_SECONDS = 600.0


def cute_entry(task: Task, artifact: Artifact, binary: bytes, epilogue: object) -> Built | str:
    """Return a CuTe kernel's name and entry, which `parse_kernels` reads; why there is none if no loader runs it.

    The epilogue is JSON, in the form that the table's loader reads.
    """
    space = registry.space(task.space)
    problem = task.problem if isinstance(task.problem, Grouped) else gemm(task.problem)
    call = space.deployed_call(artifact, task)
    if call is None:
        return f"{problem.name}: kernels of {task.space} run only with gemmtune itself"
    layouts = f"{problem.a_layout}{problem.b_layout}"
    return kernel_name(task.space, binary, call, layouts, epilogue), {
        "object": packed(binary),
        "call": call,
        "layouts": layouts,
        "epilogue": epilogue,
        "packages": {
            name: its for name, its in artifact.toolchain.versions if name in {*space.needs, *RUNTIME_PACKAGES}
        },
    }


def built_kernels(wanted: Iterable[_Wanted], entry: Entry) -> dict[_Wanted, Built]:
    """Build each kernel on this machine's CPUs, and return its name and the entry that `entry` makes of it.

    Raises:
        TableError: a kernel does not build, or its compiler is not installed; the message names the problem.
    """
    jobs = list(dict.fromkeys(wanted))
    found: dict[_Wanted, Built] = {}
    if not jobs:
        return found
    pool: ProcessPool[_Wanted, Built | str] = ProcessPool(
        partial(partial, _built, entry),
        min(len(os.sched_getaffinity(0)), len(jobs)),
        _SECONDS,
        preload=[__name__, *registry.preload(task.space for task, _ in jobs)],
        environment=NO_GPU,
        name="the builders of the export",
        describe=lambda job: f"the build of {job[0].key} {job[1]}",
    )
    with closing(pool):
        for outcome in pool.run(jobs):
            if not isinstance(outcome.result, tuple):
                raise TableError(f"the kernels of a table cannot be built: {outcome.result or outcome.reason}")
            found[outcome.job] = outcome.result
    return found


def _built(entry: Entry, job: _Wanted) -> Built | str:
    """Build one kernel in this process; return why there is none if it does not build, or no loader can launch it."""
    task, config = job
    with tempfile.TemporaryDirectory() as folder:
        try:
            artifact = registry.space(task.space).build(task, config, Path(folder))
        except Exception as error:  # a compiler fails in any way
            reason = str(error) if isinstance(error, BuildError) else f"{type(error).__name__}: {error}"
            return f"{task.problem.name}: {task.space} {config} does not build: {reason}"[:500]
        return entry(task, artifact, Path(artifact.path).read_bytes())
