"""The commands that describe and search nothing: list and doctor."""

import os
from typing import Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.choices import SEAMS, Kind, kind_named, names
from gemmtune.engine.cli.options import PROBLEM_HELP, AsJson, named, refuse_others
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import UsageError, did_you_mean
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import Grid, Report
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import parse_workload, require_kinds

_DESCRIBED_HELP = (
    f"Describe the space NAME for a problem: values, counts, seeds, and why points are rejected. {PROBLEM_HELP}"
)
_CHECKED_HELP = "The database to look at: file or URL."


def list_choices(
    context: typer.Context,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help=f"One of {', '.join(Kind)}. [default: all of them]",
            autocompletion=lambda incomplete: [each.value for each in Kind if each.startswith(incomplete)],
        ),
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The one to list.")] = None,
    problem: Annotated[str | None, typer.Option(metavar="P", help=_DESCRIBED_HELP)] = None,
    device: Annotated[str, named(Kind.DEVICES, "The device of --problem.")] = "H200",
    as_json: AsJson = False,
) -> None:
    """List samplers, spaces, devices or other choices.

    Says in a sentence what each is. Plug-ins of installed packages are listed, too. A space is described whole for a
    problem: list spaces triton_mm --problem 16x4096x4096:bf16:nt.
    """
    kinds = list(Kind) if kind is None else [kind_named(kind)]
    if problem is not None:
        if kinds != [Kind.SPACES] or name is None:
            raise UsageError("--problem describes a space: gemmtune list spaces NAME --problem P")
        with show_work(f"enumerating {name}", quiet=as_json):
            report = _space_report(name, problem, device)
        output.show(report, as_json=as_json)
        return
    refuse_others(context, "list without --problem", "kind", "name", "as_json")
    found = {each.value: _choices(each) for each in kinds}
    sections: list[str | Grid] = []
    for title, lines in found.items():
        if name is not None:
            known = [line["name"] for line in lines]
            lines[:] = [line for line in lines if line["name"] == name]
            if not lines:
                raise UsageError(
                    f"no {name!r} is among the {title}; {did_you_mean(name, known)}see gemmtune list {title}"
                )
        columns = {header: [line[header] for line in lines] for header in (lines[0] if lines else {"name": ""})}
        columns.pop("class", None)  # for programs
        sections += [*([title] if kind is None else []), Grid(columns, tuple(columns))]
    output.show(Report(found, sections), as_json=as_json)


def _space_report(name: str, problem: str, device: str) -> Report:
    """Report a space for one problem: parameters, points, seeds, and an example of each reason for a rejection."""
    from gemmtune.engine.report.space import space_report
    from gemmtune.engine.search.enumeration import enumerate_space

    space = registry.space(name)
    task = Task(parse_workload(problem), catalogue.device(device), name)
    require_kinds({name: space}, [task.problem])
    count = enumerate_space(space, task)
    return space_report(task, space.params(task), count, space.seeds(task), space.prior(task))


def _choices(kind: Kind) -> list[dict[str, str]]:
    """Return the facts of each choice of a kind by their headers."""
    from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes

    if kind is Kind.DEVICES:
        return [{"name": each.sku, "device": each.name, "arch": each.arch} for each in catalogue.devices()]
    if kind is Kind.LANDSCAPES:
        read = [each for path in embedded() for each in read_landscapes(path)]
        facts = ("device", "space")
        return [
            {"name": x.name, **{fact: x.context.get(fact, "-") for fact in facts}, "configs": str(len(x.points))}
            for x in read
        ]
    seam = SEAMS[kind]
    return [{"name": name, **registry.describe(seam, name)} for name in names(kind)]


def doctor(
    database: Annotated[str, typer.Option(metavar="DB", help=_CHECKED_HELP)] = "out/measurements.db",
    as_json: AsJson = False,
) -> None:
    """Check the GPU, the toolchain and the database of this host.

    Looks at the GPU and its clocks, what Inductor withholds from it, the installed versions, the compilers, Ray and the
    database. Each line is ok or names a remedy. The exit status is 1 if gemmtune cannot measure or store here.
    """
    with show_work("looking at this host", quiet=as_json):
        from gemmtune.engine.report.doctor.host import examine
        from gemmtune.engine.report.doctor.report import doctor_report, healthy

        checks = examine(database, os.environ)
    output.show(doctor_report(checks), as_json=as_json)
    raise typer.Exit(0 if healthy(checks) else 1)
