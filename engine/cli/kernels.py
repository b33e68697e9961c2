"""The commands about kernels that need no GPU: check."""

from typing import Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.choices import Kind, one_of
from gemmtune.engine.cli.options import AsJson, Builders, Problems, named
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.work import show_work

_TARGET_HELP = "A class that describes your own Triton kernel, or a space, which needs --problem."
_DEVICE_HELP = f"The GPU to build for, {one_of(Kind.DEVICES)}."
_CONFIGS_HELP = "Configs to build per problem beside its default."


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

        is_class = ".py:" in target
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
