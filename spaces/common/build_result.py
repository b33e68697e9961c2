"""The outcome of one build: its artifact, or the reason why there is none."""

import ast
import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gemmtune.engine.records.artifact import Artifact, Resources
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError, Space

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def artifact_of(
    space: Space,
    task: Task,
    config: Config,
    file: Path,
    folder: Path,
    launch: tuple[tuple[str, int | str], ...],
    resources: Resources,
    started: float,
) -> Artifact:
    """Move a built binary from a temporary folder in `folder` to a file of its task, and return its artifact.

    Tasks that share a key have files of their own too, because a campaign deletes a file once its task has measured it.
    The build `started` at a time of `time.perf_counter`.

    Raises:
        BuildError: the binary needs more shared memory than a block of the task's device may have.
    """
    limit = task.device.shared_memory_per_block_bytes
    if resources.shared_bytes > limit:
        raise BuildError(f"the binary needs {resources.shared_bytes} B of shared memory > {limit} B per block")
    name = hashlib.sha256(f"{task.key}/{config.digest}".encode()).hexdigest()
    path = file.replace(folder / f"{name}{file.suffix}")
    return Artifact(
        key=space.artifact_key(task, config),
        space=task.space,
        path=str(path),
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        launch=launch,
        resources=resources,
        build_seconds=time.perf_counter() - started,
        toolchain=space.toolchain(),
    )


@contextmanager
def refusals() -> Iterator[None]:
    """Raise what a compiler raises in the block as a BuildError with its reason."""
    try:
        yield
    except Exception as error:
        raise BuildError(reason_of(error)) from error


def reason_of(error: BaseException) -> str:
    """Return the kind of error with its first and last lines, as one line of at most 500 characters.

    An error of Triton at a place in the kernel's source, which has the source above its message, tells the failing
    expression, such as an assertion; one in a function that the kernel calls stands for that in the kernel.
    """
    while error.__cause__ is not None and hasattr(error.__cause__, "node"):
        error = error.__cause__
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    node = getattr(error, "node", None)
    at = [ast.unparse(node).partition("\n")[0]] if isinstance(node, ast.AST) else []
    told = [line for line in (*lines[:1], *at, *lines[-1:]) if line != "^"]
    return f"{type(error).__name__}: {' … '.join(dict.fromkeys(told))}"[:500]
