"""The kernel of a table's row as code: a program, PTX, SASS, a profiler's command, or the config to paste."""

import shlex
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gemmtune.engine.api.code.sass import sass_of
from gemmtune.engine.io.blame import account
from gemmtune.engine.processes.child_process import NO_GPU
from gemmtune.engine.processes.process_pool import ProcessPool
from gemmtune.engine.processes.scratch import ScratchFolder
from gemmtune.engine.records.config import Config, values_text
from gemmtune.engine.records.errors import GemmtuneError, UsageError, did_you_mean
from gemmtune.engine.records.table import Choice, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import expand_workloads, measured_as

_DEADLINE_SECONDS = 300.0
_SCRIPT = "kernel.py"


class CodeForm(StrEnum):
    """Form in which a kernel is printed."""

    TRITON = "triton"
    """Python program that launches the kernel and checks its result."""
    PTX = "ptx"
    """Code for any later GPU, which ptxas compiles."""
    SASS = "sass"
    """Machine code of the GPU."""
    NCU = "ncu"
    """Commands that write the program and profile it with Nsight Compute."""
    CONFIG = "config"
    """Config as source to paste, and the command that measures it again."""


@dataclass(frozen=True, slots=True)
class _Written:
    """Text of a kernel in one form."""

    text: str = ""
    """The text; empty where the kernel has no such form."""
    kernels: tuple[str, ...] = ()
    """Names on the GPU of what a program launches."""
    others: tuple[CodeForm, ...] = ()
    """Forms that the kernel has, where it lacks the one that was asked for."""
    fault: str = ""
    """Reason why the kernel cannot be built; empty if it can."""


def code_of(table: Table, lookup: Callable[[Workload], Choice | None], problem: str, form: str, source: str) -> str:
    """Return the kernel that a table runs for a problem as text.

    It is built for the table's GPU, which need not be here, by the packages that are installed here.

    Args:
        table: table of the row.
        lookup: returns what the table runs for a problem.
        problem: text of the problem. Of an own kernel, triton:FILE.py:CLASS:SIZE=N names the file, too.
        form: form of the text, one of `CodeForm`.
        source: path of the table, for the commands of ncu.

    Raises:
        UsageError: the table has no such row, its kernel has no such form, or it cannot be built here.
        ToolchainMissing: a package or tool that it needs is not installed.
    """
    if form not in list(CodeForm):
        raise UsageError(f"no form {form!r} of a kernel; known: {', '.join(CodeForm)}")
    workload = _problem_of(table, problem)
    choice = lookup(workload)
    if choice is None:
        known = [row.problem.name for row in table.rows]
        near = did_you_mean(workload.name, known)
        raise UsageError(f"the table has no row for {workload.name}; {near}rows: {', '.join(known) or 'none'}")
    task, space = Task(workload, table.device, choice.space), registry.space(choice.space)
    if form == CodeForm.CONFIG and choice.config:
        values = values_text(choice.config)
        again = ["gemmtune", "measure", "--problem", problem, "--space", choice.space, "--config", values]
        return f"{space.config_source(task, choice.config)}\n# {shlex.join(again)}"
    space.toolchain()  # says what to install
    found = _written(task, choice.config, CodeForm.TRITON if form == CodeForm.NCU else CodeForm(form))
    if not found.text:
        forms = [*found.others, *([CodeForm.CONFIG] if choice.config else ())]
        has = f"it has {', '.join(forms)}" if forms else "it is a library's, and has none"
        raise UsageError(f"the row of {workload.name} runs a kernel of {choice.space}, which has no form {form}; {has}")
    return profile_commands(source, problem, found.kernels) if form == CodeForm.NCU else found.text


def profile_commands(source: str, problem: str, kernels: Sequence[str]) -> str:
    """Return the commands that write the program of a table's row, and profile the first launch of its kernels."""
    write = shlex.join(["gemmtune", "show", source, "--problem", problem, "--as", CodeForm.TRITON])
    first = ["--kernel-name", f"regex:^({'|'.join(kernels)})$", "--launch-count", str(len(kernels))]
    profile = shlex.join(["ncu", "--set", "full", *first, "--export", "kernel", "python", _SCRIPT])
    return f"{write} > {_SCRIPT}\n{profile}"


def _problem_of(table: Table, problem: str) -> Workload:
    """Return the problem of a text: a row's by its name, but an own kernel's with its file, if the text names one."""
    named = next((row.problem for row in table.rows if row.problem.name == problem), None)
    if named is not None:
        return named
    cases = expand_workloads(problem)
    if len(cases) > 1:
        raise UsageError(f"{problem} has {len(cases)} cases; name one: {', '.join(each.name for each in cases)}")
    return next((each for each in measured_as(cases[0]) if each in {row.problem for row in table.rows}), cases[0])


class _Writer:
    """Builds one config in a process of its own, and returns its text in one form."""

    def __call__(self, job: tuple[Task, Config, CodeForm]) -> _Written:
        task, config, form = job
        space = registry.space(task.space)
        try:
            with ScratchFolder() as folder:
                path = space.build(task, config, Path(folder)).path if form is CodeForm.SASS else ""
                if path:
                    return _Written(sass_of(Path(path).read_bytes()))
                code = space.code(task, config, Path(folder))
                texts = {CodeForm.TRITON: code.script, CodeForm.PTX: code.ptx}
                if text := texts.get(form):
                    return _Written(text, code.kernels)
                others = [each for each, text in texts.items() if text]
                binary = form is not CodeForm.SASS and space.build(task, config, Path(folder)).path
                return _Written(others=(*others, CodeForm.SASS) if binary else tuple(others))
        except GemmtuneError as error:
            return _Written(fault=str(error))
        except Exception as error:  # a plug-in's
            return _Written(fault=account(error, registry.packages()))


def _written(task: Task, config: Config, form: CodeForm) -> _Written:
    """Return a config's text in one form, written by a process that sees no GPU.

    Raises:
        UsageError: the config cannot be built, or its binary not be read.
    """
    pool: ProcessPool[tuple[Task, Config, CodeForm], _Written] = ProcessPool(
        _Writer, 1, _DEADLINE_SECONDS, environment=NO_GPU, name="the builder"
    )
    with closing(pool):
        (outcome,) = pool.run([(task, config, form)])
    found = outcome.result or _Written(fault=outcome.reason)
    if found.fault:
        raise UsageError(f"{task.problem.name} in {task.space} cannot be shown as {form}: {found.fault}")
    return found
