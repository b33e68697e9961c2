"""The commands that study samplers on recorded landscapes: replay and compare."""

from pathlib import Path
from typing import Annotated

import typer

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.cli import output
from gemmtune.engine.cli.options import AsJson, plan_option
from gemmtune.engine.io.printing import print_json, print_text
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.plugin_class import class_named
from gemmtune.engine.seams.sampler import Sampler

_LANDSCAPES_HELP = (
    "Landscapes: a device that is recorded, such as h200; CSV, Kernel Tuner cache files or T4 results (JSON), or .gz. "
    "[default: all that ship with gemmtune]"
)
Landscapes = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE", help=_LANDSCAPES_HELP, show_default=False),
]
_SAMPLERS_HELP = "The samplers, by name or as classes: ./FILE.py:CLASS."
Seeds = Annotated[int, typer.Option(min=1, metavar="N", help="Searches per landscape, with seeds 0 to N-1.")]
Budget = Annotated[int, plan_option("budget")]
Batch = Annotated[int, plan_option("batch")]
Workers = Annotated[int, typer.Option(min=1, help="Processes; the result does not depend on their number.")]
Cold = Annotated[bool, typer.Option("--cold", help="Keep the recorded space's starting points from the sampler.")]
Apart = Annotated[bool, typer.Option("--apart", help="Let no search learn from other landscapes.")]


def replay(
    files: Landscapes = None,
    sampler: Annotated[str, plan_option("sampler")] = "transfer",
    budget: Budget = Plan.budget,
    seeds: Seeds = 10,
    batch: Batch = 1,
    workers: Workers = 1,
    cold: Cold = False,
    apart: Apart = False,
    as_json: AsJson = False,
) -> None:
    """Measure one sampler on recorded landscapes.

    The figure is the recorded optimum over the best time found, per problem and as a mean over problems and seeds.
    """
    with show_work("at work", quiet=as_json):
        from gemmtune.engine.api.landscapes import landscapes
        from gemmtune.engine.api.replaying import replay as replay_samplers
        from gemmtune.engine.report.progress.display import progress_bar
        from gemmtune.engine.report.studies import study_report

    with progress_bar("searches", quiet=as_json) as count:
        study = replay_samplers(
            files or landscapes(),
            sampler,
            budget=budget,
            seeds=seeds,
            batch=batch,
            workers=workers,
            cold=cold,
            apart=apart,
            progress=count,
        )
    output.show(study_report(next(iter(study.results.values())), study.settings), as_json=as_json)


def compare(
    files: Landscapes = None,
    samplers: Annotated[str, typer.Option(metavar="A,B,C", help=_SAMPLERS_HELP)] = "random,tpe,evolution,transfer",
    budget: Budget = 128,
    seeds: Seeds = 20,
    out: Annotated[Path, typer.Option(help="Folder for the curves and the results.")] = Path("comparison"),
    batch: Batch = 1,
    workers: Workers = 1,
    cold: Cold = False,
    apart: Apart = False,
    as_json: AsJson = False,
) -> None:
    """Compare samplers on recorded landscapes: curves and scores.

    Writes a report (OUT/report.html), its curves as a picture (OUT/curves.png) and the results with the performance
    score P (OUT/comparison.json). Unless --apart is given, the searches of one seed are a campaign in the order of the
    landscapes, as for replay.
    """
    with show_work("at work", quiet=as_json):
        from gemmtune.engine.api.landscapes import landscapes
        from gemmtune.engine.api.replaying import replay as replay_samplers
        from gemmtune.engine.report.progress.display import progress_bar
        from gemmtune.engine.report.studies import comparison_report

    names = list(dict.fromkeys(filter(None, map(str.strip, samplers.split(",")))))
    if not names:
        raise UsageError(f"--samplers {samplers!r} names none; known: {', '.join(registry.names(Sampler))}")
    with progress_bar("searches", quiet=as_json) as count:
        study = replay_samplers(
            files or landscapes(),
            [class_named(Sampler, name, Path()) for name in names],
            budget=budget,
            seeds=seeds,
            batch=batch,
            workers=workers,
            cold=cold,
            apart=apart,
            out=out,
            progress=count,
        )
    if as_json:
        print_json(study.to_json())
    else:
        report = comparison_report(study.comparison, study.settings).to_text(output.columns())
        print_text("\n".join([report, "", *map(str, study.written)]))
