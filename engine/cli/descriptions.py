"""The commands that describe and search nothing: init, space, list, doctor and explain."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.choices import SEAMS, Kind, kind_named, names
from gemmtune.engine.cli.options import PROBLEM_HELP, AsJson, DatabaseUrl
from gemmtune.engine.io.importing import imported
from gemmtune.engine.io.printing import print_text
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.gemm.terms import DType
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import parse_workload, require_kinds
from gemmtune.engine.store.files import write_whole
from gemmtune.engine.toolchain.releases import TORCH_VERSIONS

if TYPE_CHECKING:
    from gemmtune.engine.consumers.inductor.graphs.products import Traced

_CALL_HELP = "Explain this function, torch module or module class; imported from this folder."
_INPUT_HELP = "Sizes of one input of --call, with m where they are dynamic: mx4096. Repeat for more."
_LINEAR_HELP = "A linear layer by its sizes. [default: the table's layers]"
_EXPLAINED_DTYPE_HELP = "Element type: bf16, fp16 or fp32. [default: of a table every one, else bf16]"
_INPUT_GRAD_HELP = "The input needs a gradient, too, as inside a model."
_TORCH_HELP = (
    f"The torch version: {', '.join(TORCH_VERSIONS)}, or another one if installed. [default: the installed one]"
)


def describe_space(
    name: Annotated[str, typer.Argument(help="The space.")],
    problem: Annotated[str, typer.Option("--problem", metavar="P", help=PROBLEM_HELP)],
    device: Annotated[str, typer.Option(help="The device, for example H200.")] = "H200",
    as_json: AsJson = False,
) -> None:
    """Show a space for one problem: parameters and rejections.

    Lists the values of each parameter, the number of points and of feasible configs, the seeds, and an example of each
    reason for rejecting a point.
    """
    with show_work(f"enumerating {name}", quiet=as_json):
        from gemmtune.engine.report.space import space_report
        from gemmtune.engine.search.enumeration import enumerate_space

        found = registry.space(name)
        task = Task(parse_workload(problem), catalogue.device(device), name)
        require_kinds({name: found}, [task.problem])
        count = enumerate_space(found, task)
        report = space_report(task, found.params(task), count, found.seeds(task), found.prior(task))
    output.show(report, as_json=as_json)


def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("campaign.toml"),
) -> None:
    """Write a campaign file with every key in a comment.

    `gemmtune tune FILE` reads it. A file that is there stays as it is.
    """
    from gemmtune.engine.campaign.plan_keys import campaign_template

    if path.exists():
        raise UsageError(f"{path} is there already; name another file")
    write_whole(path, campaign_template().encode())
    print_text(f"{path}: name your problems in it, then gemmtune tune {path}")


def list_choices(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help=f"One of {', '.join(Kind)}. [default: all of them]",
            autocompletion=lambda incomplete: [each.value for each in Kind if each.startswith(incomplete)],
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List samplers, spaces, devices or other choices.

    Says in a sentence what each is. Plug-ins of installed packages are listed, too.
    """
    from gemmtune.engine.report.layout import Grid, Report

    kinds = list(Kind) if kind is None else [kind_named(kind)]
    found = {each.value: _choices(each) for each in kinds}
    sections: list[str | Grid] = []
    for name, lines in found.items():
        columns = {header: [line[header] for line in lines] for header in (lines[0] if lines else {"name": ""})}
        columns.pop("class", None)  # for programs
        sections += [*([name] if kind is None else []), Grid(columns, tuple(columns))]
    output.show(Report(found, sections), as_json=as_json)


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
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Check the GPU, the toolchain and the database of this host.

    Looks at the GPU and its clocks, what Inductor withholds from it, the installed versions, the compilers, Ray and the
    database. Each line is ok or names a remedy. The exit status is 1 if gemmtune cannot measure or store here.
    """
    with show_work("looking at this host", quiet=as_json):
        from gemmtune.engine.report.doctor.host import examine
        from gemmtune.engine.report.doctor.report import doctor_report, healthy

        checks = examine(database or "out/measurements.db", os.environ)
    output.show(doctor_report(checks), as_json=as_json)
    raise typer.Exit(0 if healthy(checks) else 1)


def explain(
    table: Annotated[Path | None, typer.Argument(help="A table: table.json or a campaign's folder.")] = None,
    linear: Annotated[str | None, typer.Option(metavar="IN:OUT", help=_LINEAR_HELP)] = None,
    call: Annotated[str | None, typer.Option(metavar="MODULE:NAME", help=_CALL_HELP)] = None,
    input_sizes: Annotated[list[str] | None, typer.Option("--input", metavar="SIZES", help=_INPUT_HELP)] = None,
    dtype: Annotated[str | None, typer.Option(help=_EXPLAINED_DTYPE_HELP)] = None,
    torch: Annotated[str | None, typer.Option(help=_TORCH_HELP)] = None,
    grad: Annotated[bool, typer.Option("--grad/--no-grad", help="Whether the weights need a gradient.")] = True,
    input_grad: Annotated[bool, typer.Option("--input-grad", help=_INPUT_GRAD_HELP)] = False,
    padding: Annotated[bool, typer.Option("--padding/--no-padding", help="Inductor's setting shape_padding.")] = True,
    device: Annotated[str | None, typer.Option(help="The device. [default: the table's, else H200]")] = None,
    as_json: AsJson = False,
) -> None:
    """Show which m of a layer share a graph, and their rows.

    For each range of m that shares one compiled graph: the guards that end the range, the table's rows that it uses,
    and the m to warm up. Applies to a dynamic m with a table's options. Needs neither torch nor a GPU, except that
    --call traces a callable with the installed torch.
    """
    with show_work("finding the graphs", quiet=as_json):
        from gemmtune.engine.api.table import read_table
        from gemmtune.engine.consumers.inductor.graphs.layers import Linear, layers_of
        from gemmtune.engine.consumers.inductor.report.explain import (
            explain_call,
            explain_layer,
            explained_torch,
            layers_report,
        )
        from gemmtune.engine.tables.table_file import require_device

        content = read_table(table) if table else None
        target = catalogue.device(device) if device else content.device if content else catalogue.device("H200")
        if content is not None:
            require_device(content, target)
        version = torch or explained_torch()
        if call is not None:
            traced = _traced(call, input_sizes or [], dtype or DType.BF16, grad)
            called = DType(dtype or DType.BF16)
            report = explain_call(call, traced, called, version, target, content, shape_padding=padding)
        elif linear is not None:
            layer = Linear.parse(linear, dtype or DType.BF16, weight_grad=grad, input_grad=input_grad)
            report = explain_layer(layer, version, target, content, shape_padding=padding).report()
        elif content is not None:
            layers = layers_of(content, dtype, weight_grad=grad, input_grad=input_grad)
            report = layers_report([explain_layer(x, version, target, content, shape_padding=padding) for x in layers])
        else:
            raise UsageError(
                "nothing to explain: name a table, a layer with --linear IN:OUT, or a callable with --call"
            )
    output.show(report, as_json=as_json)


def _traced(call: str, inputs: Sequence[str], dtype: str, grad: bool) -> tuple[Traced, ...]:
    """Return the graphs of a callable that is imported from this folder."""
    from gemmtune.engine.consumers.inductor.graphs.layers import PADDED_DTYPES
    from gemmtune.engine.consumers.inductor.graphs.products import trace

    if not inputs:
        raise UsageError(f"{call} takes inputs, and none is named: --input mx4096, once for each")
    if not any("m" in sizes for sizes in inputs):
        raise UsageError(f"no size of --input {' '.join(inputs)} is m, the dynamic one: write it as m, such as mx4096")
    if dtype not in PADDED_DTYPES:
        raise UsageError(f"the guards of {dtype} products are not known; known: {', '.join(PADDED_DTYPES)}")
    sys.path.insert(0, str(Path.cwd()))
    return trace(imported(call), inputs, DType(dtype), grad=grad)
