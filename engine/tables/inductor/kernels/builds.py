"""Binaries of a table's CuTe kernels, built in child processes, because an exporter imports no compiler."""

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.problem import gemm
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import BuildError
from gemmtune.engine.tables.inductor.kernels.binary import kernel_name, packed

__all__ = ["Built", "build_here", "built_kernels"]

Built: TypeAlias = tuple[str, dict[str, object]]
"""Name of a kernel, and its entry in the table."""
_WORKER = "gemmtune.engine.tables.inductor.kernels.worker"
_SECONDS = 600


def built_kernels(wanted: Iterable[tuple[Task, Config]]) -> dict[tuple[Task, Config], Built]:
    """Build each kernel on this machine's CPUs, and return its name and entry.

    Raises:
        TableError: a kernel does not build, or its compiler is not installed; the message names the problem.
    """
    jobs = list(dict.fromkeys(wanted))
    if not jobs:
        return {}
    workers = min(len(os.sched_getaffinity(0)), len(jobs))
    shares = [jobs[number::workers] for number in range(workers)]
    found: dict[tuple[Task, Config], Built] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / str(number) for number in range(workers)]
        children = [_start(share, file) for share, file in zip(shares, files, strict=True)]
        for share, file, child in zip(shares, files, children, strict=True):
            _, errors = child.communicate(timeout=_SECONDS)
            if child.returncode:
                last = (errors.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
                raise TableError(f"the kernels of a table cannot be built: {last[:500]}")
            found |= zip(share, pickle.loads(file.read_bytes()), strict=True)  # noqa: S301 (our child's)
    return found


def build_here(task: Task, config: Config) -> Built:
    """Build one kernel in this process.

    Raises:
        TableError: it does not build, or no loader can launch the space's kernels.
    """
    space, problem = registry.space(task.space), gemm(task.problem)
    with tempfile.TemporaryDirectory() as folder:
        try:
            artifact = space.build(task, config, Path(folder))
        except BuildError as error:
            raise TableError(f"{problem.name}: {task.space} {config} does not build: {error}") from None
        binary = Path(artifact.path).read_bytes()
    call = space.deployed_call(artifact, task)
    if call is None:
        raise TableError(f"{problem.name}: kernels of {task.space} run only with gemmtune itself")
    layouts, epilogue = f"{problem.a_layout}{problem.b_layout}", str(problem.epilogue)
    return kernel_name(task.space, binary, call, layouts, epilogue), {
        "object": packed(binary),
        "call": call,
        "layouts": layouts,
        "epilogue": epilogue,
        "packages": {name: its for name, its in artifact.toolchain.versions if name in space.needs},
    }


def _start(share: Sequence[tuple[Task, Config]], file: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = subprocess.Popen(  # noqa: S603 (this Python)
        [sys.executable, "-m", _WORKER, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert child.stdin is not None
    child.stdin.write(pickle.dumps(list(share)))
    child.stdin.close()
    child.stdin = None  # or `communicate` would write to it
    return child
