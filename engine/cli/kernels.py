"""The commands about kernels that need no GPU: adapt and check."""

from pathlib import Path
from typing import Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.choices import Kind, one_of
from gemmtune.engine.cli.options import AsJson, Builders, Problems, named
from gemmtune.engine.io.printing import print_text
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.seams.kinds import kind_of
from gemmtune.engine.store.files import write_whole

_KERNEL_HELP = "A kernel of Triton as your program decorates it; a module is imported from this folder."
_OUT_HELP = "The file to write. [default: KERNEL_adapter.py, beside FILE.py or here]"
_TARGET_HELP = "A class that describes your own Triton kernel, or a space, which needs --problem."
_DEVICE_HELP = f"The GPU to build for, {one_of(Kind.DEVICES)}."
_CONFIGS_HELP = "Configs to build per problem beside its default."


def adapt(
    kernel: Annotated[str, typer.Argument(metavar="MODULE:KERNEL|FILE.py:KERNEL", help=_KERNEL_HELP)],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help=_OUT_HELP)] = None,
) -> None:
    """Write the first draft of a class for your own kernel.

    Reads the kernel's signature, source, configs and key: tensors with their shapes, sizes, strides and the grid. What
    a person must still say stands below a line with TODO(gemmtune), which gemmtune check and tune refuse. Look the rest
    over, too. A file that is there stays as it is.
    """
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


def check(
    target: Annotated[str, typer.Argument(metavar="FILE.py:CLASS|SPACE", help=_TARGET_HELP)],
    problem: Problems = None,
    device: Annotated[str, named(Kind.DEVICES, _DEVICE_HELP, "Where")] = "H200",
    configs: Annotated[int, typer.Option(min=1, metavar="N", help=_CONFIGS_HELP)] = 3,
    builders: Builders = None,
    as_json: AsJson = False,
) -> None:
    """Try a kernel or a space without a GPU.

    Builds the default and a few configs of each problem: registers, shared memory, and why one does not build. For your
    own kernel it then exports a table of them, loads it into the kernel, and launches every case through the kernel's
    own decorators, with the launch itself left out: a case hits its row or misses it. The exit status is 1 if a case
    misses, nothing builds for it, or the loader refuses the table.
    """
    with show_work(f"building {target}", quiet=as_json):
        from gemmtune.engine.api.checking import check as check_problems

        is_class = ":" in target or target.endswith(".py")
        if is_class and ".py:" not in target:
            text = "name the class in it" if target.endswith(".py") else "a class is read from its file"
            raise UsageError(f"{target}: {text}: gemmtune check FILE.py:CLASS")
        if is_class and problem:
            raise UsageError(f"{target} has its own cases: leave out --problem, or name one case, {target}:SIZE=N")
        if not is_class and not problem:
            raise UsageError(f"space {target} is built for a problem: name it with --problem, or check FILE.py:CLASS")
        found = check_problems(
            [f"triton:{target}"] if is_class else problem or (),
            space=None if is_class else target,
            device=device,
            configs=configs,
            builders=builders,
        )
    output.show(found.report, as_json=as_json)
    raise typer.Exit(0 if found.holds else 1)
