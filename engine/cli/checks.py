"""The command that needs no GPU to find what is wrong with a kernel, a space or an engine's tuned files: check."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.choices import Kind, names, one_of
from gemmtune.engine.cli.options import AsJson, Builders, Problems, in_problems, named, refuse_others
from gemmtune.engine.io.printing import print_text
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.layout import Report
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.seams.kinds import kind_of
from gemmtune.engine.store.files import write_whole

_TARGET_HELP = (
    "A class that describes your own Triton kernel, FILE.py:CLASS; a space, which needs --problem; or tuned files of "
    "vLLM or SGLang: files, folders of files or wheels, wheels, installed packages."
)
_DRAFT_HELP = (
    "Write the first draft of such a class for a kernel of Triton, FILE.py:KERNEL or MODULE:KERNEL, as your program "
    "decorates it."
)
_OUT_HELP = "The file of the draft. [default: KERNEL_adapter.py, beside FILE.py or here]"
_DEVICE_HELP = (
    f"The GPU to build for, {one_of(Kind.DEVICES)}; of tuned files, only those that the engine loads on it. [default: "
    "H200; all files]"
)
_CONFIGS_HELP = "Configs to build per problem beside its default."
_TRITON_HELP = "The Triton version that the engine runs with. [default: the one that the package requires]"
_TABLE_HELP = "A table (table.json) of the engine's layers: say what each entry loses against its rows."
_in_files = partial(typer.Option, rich_help_panel="Tuned files")
_HTML_HELP = "Write all findings as a page, too."


def check(
    context: typer.Context,
    targets: Annotated[list[str], typer.Argument(metavar="TARGET", help=_TARGET_HELP)],
    problem: Problems = None,
    device: Annotated[str | None, named(Kind.DEVICES, _DEVICE_HELP, "Where")] = None,
    configs: Annotated[int, in_problems(min=1, metavar="N", help=_CONFIGS_HELP)] = 3,
    builders: Builders = None,
    triton: Annotated[str, _in_files(help=_TRITON_HELP, metavar="VERSION")] = "",
    table: Annotated[Path | None, _in_files(help=_TABLE_HELP)] = None,
    html: Annotated[Path | None, _in_files(metavar="FILE", help=_HTML_HELP)] = None,
    draft: Annotated[bool, typer.Option("--draft", help=_DRAFT_HELP, rich_help_panel="Draft")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help=_OUT_HELP, rich_help_panel="Draft")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a kernel, a space or tuned files, without a GPU.

    Of a space, builds the default and a few configs of each problem: registers, shared memory, and why one does not
    build. For your own kernel it then exports a table of them, loads it into the kernel, and launches every case
    through the kernel's own decorators, with the launch itself left out: a case hits its row or misses it. The exit
    status is 1 if a case misses, nothing builds for it, or the loader refuses the table.

    Of tuned files of fused MoE and block-fp8 kernels, finds stale and broken ones, and imports no engine. The exit
    status is 1 if the engine fails by a file, computes a wrong result, or runs a config tuned for other work. With a
    table that was tuned on a GPU, entries that lose to its rows are named, too.

    In a draft, what a person must still say stands below a line with TODO(gemmtune), which check and tune refuse. Look
    the rest over, too. A file that is there stays as it is.
    """
    first, *others = targets
    is_class = ":" in first or first.endswith(".py")
    if (draft or is_class or problem) and others:
        raise UsageError(f"{first} and {others[0]}: name one kernel or space at a time")
    if draft:
        refuse_others(context, "check --draft", "targets", "draft", "out")
        _draft(first, out)
        return
    if is_class or problem or first in names(Kind.SPACES):
        read = ("targets", "problem", "device", "configs", "builders", "as_json")
        refuse_others(context, "check of a kernel or a space", *read)
        report, holds = _built(first, problem or (), device or "H200", configs, builders, is_class, quiet=as_json)
    else:
        refuse_others(context, "check of tuned files", "targets", "device", "triton", "table", "html", "as_json")
        report, holds = _audited(targets, device, triton, table, html, quiet=as_json)
    output.show(report, as_json=as_json)
    raise typer.Exit(0 if holds else 1)


def _draft(kernel: str, out: Path | None) -> None:
    """Write the first draft of a class for a kernel: tensors with their shapes, sizes, strides and the grid."""
    where, _, name = kernel.rpartition(":")
    folder = Path(where).parent if where.endswith(".py") else Path()
    target = folder / f"{name}_adapter.py" if out is None else out
    if target.exists():
        raise UsageError(f"{target} is there already; name another file with --out")
    if where.endswith(".py") and target.parent.resolve() != folder.resolve():
        raise UsageError(f"the draft imports {Path(where).name}: write it beside that, into {folder.resolve()}")
    with show_work(f"reading {kernel}", quiet=False):
        title, text = kind_of("triton").draft(kernel)
    write_whole(target, text.encode())
    left = text.count("# TODO(gemmtune): ")
    print_text(f"{target}: {left} to fill in, below TODO(gemmtune); then gemmtune check {target}:{title}")


def _built(
    target: str,
    problems: Sequence[str],
    device: str,
    configs: int,
    builders: int | None,
    is_class: bool,
    *,
    quiet: bool,
) -> tuple[Report, bool]:
    """Return what was built of a class or a space, and whether it holds."""
    with show_work(f"building {target}", quiet=quiet):
        from gemmtune.engine.api.checking import check as check_problems

        if is_class and ".py:" not in target:
            text = "name the class in it" if target.endswith(".py") else "a class is read from its file"
            raise UsageError(f"{target}: {text}: gemmtune check FILE.py:CLASS")
        if is_class and problems:
            raise UsageError(f"{target} has its own cases: leave out --problem, or name one case, {target}:SIZE=N")
        if not is_class and not problems:
            raise UsageError(f"space {target} is built for a problem: name it with --problem, or check FILE.py:CLASS")
        found = check_problems(
            [f"triton:{target}"] if is_class else problems,
            space=None if is_class else target,
            device=device,
            configs=configs,
            builders=builders,
        )
    return found.report, found.holds


def _audited(
    sources: list[str], device: str | None, triton: str, table: Path | None, html: Path | None, *, quiet: bool
) -> tuple[Report, bool]:
    """Return what is wrong with tuned files, and whether they hold; write the page, if one is wanted."""
    from gemmtune.engine.api.table import read_table
    from gemmtune.engine.consumers.serving.audit import audit_all, joined
    from gemmtune.engine.consumers.serving.losses import EntryLoss, entry_losses, with_losses
    from gemmtune.engine.consumers.serving.report.report import audit_report

    losses: list[EntryLoss] = []
    with show_work(f"reading {', '.join(sources)}", quiet=quiet):
        measured = read_table(table) if table is not None else None
        audits = audit_all(sources, device, triton)
        if measured is not None:
            for index, found in enumerate(audits):
                of_source = entry_losses(found, measured)
                audits[index] = with_losses(found, of_source, measured.margin)
                losses += of_source
        found = joined(audits)
    if html is not None:
        from gemmtune.engine.consumers.serving.report.page import audit_html  # matplotlib takes a while to import

        write_whole(html, audit_html(found).encode())
    report = audit_report(found, losses)
    return replace(report, sections=[*report.sections, *([f"written: {html}"] if html else [])]), found.holds
