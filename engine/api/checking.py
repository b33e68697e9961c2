"""A dry run without a GPU: build a few configs, and launch the user's program with a table of them."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.api.plans import parse_problems
from gemmtune.engine.campaign.plan import ProblemLike
from gemmtune.engine.execution.dry_build import DryBuild, build_dry, with_defaults
from gemmtune.engine.io.arguments import checks_arguments
from gemmtune.engine.processes.scratch import ScratchFolder
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import TableError, UsageError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.report.layout import Report
from gemmtune.engine.report.space import check_report
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import kind_of, require_kinds
from gemmtune.engine.seams.workload import DryLaunch
from gemmtune.engine.search.enumeration import enumerate_space, few_configs
from gemmtune.engine.tables.export import export_table
from gemmtune.engine.toolchain.gpu_info import present_device

CONFIGS = 3
"""Configs that are built per problem beside its default, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A dry run: what was built, and what the user's program would launch."""

    device: Device
    """GPU that was built for."""
    builds: tuple[DryBuild, ...]
    """Builds, problem by problem; the default first."""
    launches: Mapping[Workload, DryLaunch]
    """Launch per problem; empty for kinds of problems whose program gemmtune does not have."""

    @property
    def holds(self) -> bool:
        """Whether every problem has a config that builds, and every launch runs the table's config."""
        built = {build.task.problem.name for build in self.builds if not build.reason}
        every = {build.task.problem.name for build in self.builds}
        return bool(built) and built == every and not any(launch.reason for launch in self.launches.values())

    @property
    def report(self) -> Report:
        """The dry run as text and as JSON."""
        return check_report(self.device, self.builds, self.launches, holds=self.holds)


@checks_arguments
def check(
    problems: ProblemLike | Iterable[ProblemLike],
    *,
    space: str | None = None,
    device: str = "H200",
    configs: int = CONFIGS,
    builders: int | None = None,
) -> CheckResult:
    """Build the default and a few configs of each problem, and launch the user's program with a table of them.

    Nothing is timed, and no GPU is needed. The table's rows are marked as estimated.

    Args:
        problems: problems, or a class that describes a Triton kernel, as `tune` takes them.
        space: space of the configs; by default the one that the problems are searched in.
        device: SKU of the GPU to build for.
        configs: number of configs to build per problem beside its default.
        builders: builder processes; by default one per core.

    Raises:
        DeviceError: the device is unknown.
        ProblemError: a problem is malformed, or its class describes no kernel.
        ToolchainMissing: the space cannot build here; the message says what to install.
        UsageError: space and problems are of two kinds.

    Example:
        >>> import gemmtune as gt
        >>> checked = gt.check("16x4096x4096:bf16:nt", space="triton_mm", device="B200", configs=1)
        >>> checked.holds, [build.reason for build in checked.builds]
        (True, ['', ''])
    """
    target = catalogue.device(device)
    with nullcontext() if space or present_device() else _answers_for(target):
        return _checked(parse_problems(problems), target, space, configs, builders)


def _answers_for(device: Device) -> AbstractContextManager[None]:
    """Answer what the program of a user's kernel asks of its GPU, if torch and Triton are installed to ask."""
    if find_spec("torch") is None or find_spec("triton") is None:
        return nullcontext()
    from gemmtune.engine.toolchain import absent_gpu

    return absent_gpu.target(device)


def _checked(
    named: Sequence[Workload], target: Device, space: str | None, configs: int, builders: int | None
) -> CheckResult:
    if not named:
        raise UsageError("nothing to check: name a problem, MxNxK, or a kernel's class, FILE.py:CLASS")
    searched = {problem: space or problem.searched_space for problem in named}
    for problem, name in searched.items():
        require_kinds({name: registry.space(name)}, [problem])
        registry.space(name).toolchain()
    defaults = with_defaults(named, target, builders)
    named = tuple(defaults)
    jobs = [job for problem in named for job in _jobs(problem, target, space or problem.searched_space, configs)]
    for problem in named:
        if space and all(task.problem != problem or task.is_baseline for task, _ in jobs):
            raise UsageError(f"space {space} has no config for {problem.name}: {_refusals(space, problem, target)}")
    built = build_dry([job for job in jobs if not (job[0].is_baseline and defaults[job[0].problem])], builders)
    by_problem = ((*defaults[problem], *(each for each in built if each.task.problem == problem)) for problem in named)
    builds = tuple(build for of_problem in by_problem for build in of_problem)
    groups: dict[object, list[Workload]] = {}
    for problem in named if space is None else ():
        if kind_of(problem.kind).dry_consumer:
            groups.setdefault((problem.kind, problem.learns_from), []).append(problem)
    launches = {p: launch for group in groups.values() for p, launch in _launches(group, target, builds).items()}
    return CheckResult(target, builds, launches)


def _refusals(space: str, problem: Workload, device: Device) -> str:
    """Return the reasons with which a space refuses its points, those of most points first."""
    found = enumerate_space(registry.space(space), Task(problem, device, space))
    rules = sorted(found.rejections, key=lambda rule: -found.rejections[rule])
    return "; ".join(found.examples[rule] for rule in rules) or "it has no point there"


def _jobs(problem: Workload, device: Device, space: str, count: int) -> list[tuple[Task, Config]]:
    """Return the default of a problem, and a few configs of a space beside it."""
    searched, default = Task(problem, device, space), Task(problem, device, problem.baseline_space)
    defaults = registry.space(default.space).seeds(default)[:1]
    configs = few_configs(registry.space(space), searched, count + len(defaults))
    others = [config for config in configs if config not in defaults] or configs
    return [*((default, config) for config in defaults), *((searched, config) for config in others[:count])]


def _launches(problems: Sequence[Workload], device: Device, builds: Sequence[DryBuild]) -> Mapping[Workload, DryLaunch]:
    """Export a table of what was built for one program, and launch its problems with it."""
    kind = kind_of(problems[0].kind)
    rows = [_row(problem, builds, number) for number, problem in enumerate(problems)]
    table = Table(device, tuple(row for row in rows if row is not None), "latency")
    unbuilt = dict.fromkeys(problems, DryLaunch(None, "no config of it builds"))
    served = [row.problem for row in table.rows]
    if not served:
        return unbuilt
    with ScratchFolder() as folder:
        try:
            files = export_table(registry.exporter(kind.dry_consumer), table, estimated=True)
        except TableError as error:
            return unbuilt | dict.fromkeys(served, DryLaunch(None, f"the exporter refuses: {error}"))
        write_all(files, Path(folder))
        launches = kind.launch_dry(served, Path(folder), device)
    return unbuilt | dict(zip(served, launches, strict=True))


def _row(problem: Workload, builds: Sequence[DryBuild], number: int) -> Row | None:
    """Return a row of a problem's built configs, of which another one leads in each row; None if none was built."""
    built = [build for build in builds if build.task.problem == problem and not build.reason]
    searched = [build for build in built if not build.task.is_baseline]
    first = number % max(1, len(searched))
    ranked = [*searched[first:], *searched[:first], *(build for build in built if build.task.is_baseline)]
    choices = tuple(map(_choice, ranked))
    return Row(problem, choices, None, None, (choices[0].config,)) if choices else None


def _choice(build: DryBuild) -> Choice:
    assert isinstance(build.result, Artifact)
    toolchain = build.result.toolchain.text
    return Choice(build.task.space, build.config, 1.0, 1.0, 1.0, 0, Evidence.ESTIMATED, toolchain, "dry run")
