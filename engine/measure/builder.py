"""Build configs in processes that see no GPU; tasks of one campaign share binaries."""

import gc
import hashlib
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gemmtune.engine.io.blame import account
from gemmtune.engine.processes.child_process import NO_GPU, start_context
from gemmtune.engine.processes.process_pool import Notify, ProcessPool, log_notice
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import BuildError

_NICENESS = 10
"""Niceness of builders, which fill every core: the driver and GPU workers, which they wait for, go first."""


@dataclass(frozen=True, slots=True)
class BuildJob:
    """One config to build."""

    task: Task
    """Task of the config."""
    config: Config
    """Config to be built."""


@dataclass(frozen=True, slots=True)
class BuildFailure:
    """A config that did not build."""

    reason: str
    """Reason of the failure, as text."""
    build_seconds: float
    """Duration of the failed build, in seconds."""


def prepare_builders(spaces: Sequence[str]) -> None:
    """Start the imports of builders for `spaces` and return at once, so that a later pool need not wait for them.

    The process that imports ends with this process.

    Raises:
        UnknownPlugin: there is no such space; nothing is started.
    """
    start_context(_imports(spaces), NO_GPU)


def builder_pool(
    spaces: tuple[str, ...],
    folder: Path,
    size: int,
    deadline_seconds: float = 60.0,
    notify: Notify = log_notice,
    cpus: Collection[int] = (),
) -> ProcessPool[BuildJob, Artifact | BuildFailure]:
    """Return a pool of processes that build configs of `spaces` and write the binaries into `folder`.

    A binary whose artifact key belongs to several tasks is built once, and copied to a file per task.
    `notify` receives a line for each job that runs again and each start that failed. The processes run on `cpus`, on
    all where it is empty.
    """
    return ProcessPool(
        partial(_Builder, folder, cpus),
        size,
        deadline_seconds,
        preload=_imports(spaces),
        environment=NO_GPU,
        name="the builders",
        attempts=2,  # a process may die without its job being the cause
        describe=lambda job: f"the build of {job.task.key} {job.config}",
        notify=notify,
    )


def _imports(spaces: Sequence[str]) -> list[str]:
    return [__name__, *registry.preload(spaces)]


class _Builder:
    def __init__(self, folder: Path, cpus: Collection[int]) -> None:
        os.nice(_NICENESS)
        gc.freeze()  # the compilers' modules stay, so that no build searches them for cycles
        if cpus:
            os.sched_setaffinity(0, cpus)
        self._folder = folder
        self._shared_builds = SharedBuilds(folder / "shared")

    def __call__(self, job: BuildJob) -> Artifact | BuildFailure:
        started = time.perf_counter()
        try:
            return self._build(job)
        except BuildError as error:
            return BuildFailure(str(error), time.perf_counter() - started)
        except BaseException as error:  # a plug-in's bug is this config's failure, not the campaign's
            return BuildFailure(account(error, registry.packages())[:500], time.perf_counter() - started)

    def _build(self, job: BuildJob) -> Artifact:
        space, config, own = registry.space(job.task.space), job.config, f"{job.task.key}/{job.config.digest}"
        compiled = Config({name: value for name, value in config.items() if name not in space.launch_params})
        key = space.artifact_key(job.task, compiled)
        if key == own:  # no other task shares this binary
            return space.build(job.task, config, self._folder)
        known = self._shared_builds.find(key, self._folder, hashlib.sha256(own.encode()).hexdigest())
        if known is not None:
            launch = {**dict(known.launch), **{name: config.integer(name) for name in space.launch_params}}
            return replace(known, key=space.artifact_key(job.task, config), launch=tuple(launch.items()))
        artifact = space.build(job.task, config, self._folder)
        if artifact.path:
            self._shared_builds.add(replace(artifact, key=key))
        return artifact


class SharedBuilds:
    """Artifacts by key, in a folder that all builder processes of a campaign share.

    Each task gets a copy in a file of its own, which is deleted once it is measured.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, key: str, folder: Path, name: str) -> Artifact | None:
        """Copy the binary of this key into `folder` and return its artifact; None if the key is unknown.

        The copy is called `name`, with the suffix of the original.
        """
        try:
            stored: Artifact = pickle.loads(self._entry(key).read_bytes())  # noqa: S301 (written by `add`)
        except FileNotFoundError:
            return None
        copy = folder / f"{name}{Path(stored.path).suffix}"
        shutil.copyfile(stored.path, copy)
        return replace(stored, path=str(copy))

    def add(self, artifact: Artifact) -> None:
        """Store a copy of the artifact, atomically; if several builders store one key at once, the last one stays."""
        self._folder.mkdir(exist_ok=True)
        suffix = Path(artifact.path).suffix
        with tempfile.NamedTemporaryFile(dir=self._folder, suffix=suffix, delete=False) as file:
            file.write(Path(artifact.path).read_bytes())
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as entry:
            entry.write(pickle.dumps(replace(artifact, path=file.name)))
        Path(entry.name).replace(self._entry(artifact.key))

    def _entry(self, key: str) -> Path:
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.artifact"
