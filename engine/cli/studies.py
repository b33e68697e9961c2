"""The command that studies samplers on recorded landscapes: compare."""

import re
from pathlib import Path
from typing import Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.choices import Kind
from gemmtune.engine.cli.options import AsJson, in_output, named, plan_option, refuse_others
from gemmtune.engine.io.printing import print_json, print_text
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.plugin_class import class_named
from gemmtune.engine.seams.sampler import Sampler

_LANDSCAPES_HELP = (
    "Landscapes: a device that is recorded, such as h200; CSV, BAT's too; files of Kernel Tuner, T4, KTT or CLTune "
    "(JSON); or .gz. [default: all that ship with gemmtune]"
)
_SAMPLERS = ("random", "tpe", "evolution", "transfer")
_SAMPLER_HELP = (
    "A sampler, by name or as a class, ./FILE.py:CLASS; with options as in 'evolution(children=64)'. Repeat for more. "
    f"[default: {', '.join(_SAMPLERS)}]"
)
_NOISE_HELP = "Tell the sampler one recorded launch of a config, not its time."
_EXTEND_HELP = (
    "Add the samplers to a study that was saved (its folder, or study.json), on its landscapes with its budget, seeds "
    "and settings. FILE names its landscapes where they moved."
)
_OUT_HELP = "Folder for the curves and the results. [default: comparison, of several samplers]"


def compare(
    context: typer.Context,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help=_LANDSCAPES_HELP, show_default=False)
    ] = None,
    sampler: Annotated[list[str] | None, named(Kind.SAMPLERS, _SAMPLER_HELP)] = None,
    budget: Annotated[int, plan_option("budget")] = 128,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Searches per landscape, with seeds 0 to N-1.")] = 20,
    batch: Annotated[int, plan_option("batch")] = 8,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the result does not depend on their number.")] = 1,
    cold: Annotated[
        bool, typer.Option("--cold", help="Keep the recorded space's starting points from the sampler.")
    ] = False,
    apart: Annotated[bool, typer.Option("--apart", help="Let no search learn from other landscapes.")] = False,
    noise: Annotated[bool, typer.Option("--noise", help=_NOISE_HELP)] = False,
    extend: Annotated[Path | None, typer.Option(metavar="STUDY", help=_EXTEND_HELP)] = None,
    out: Annotated[Path | None, in_output(help=_OUT_HELP)] = None,
    as_json: AsJson = False,
) -> None:
    """Compare samplers on recorded landscapes: curves and scores.

    The figure of a search is the recorded optimum over the best time found. Of one sampler, prints it per landscape and
    as a mean over landscapes and seeds. Of several, prints and writes their curves and scores: a report
    (OUT/report.html), its curves as a picture (OUT/curves.png), the results with the performance score P
    (OUT/comparison.json), and what to publish with them: every trial, versions, seeds and the landscapes' hashes
    (OUT/study.json). Unless --apart is given, the searches of one seed are a campaign in the order of the landscapes.
    """
    if extend is not None:
        refuse_others(context, "compare --extend", "files", "sampler", "workers", "extend", "out", "as_json")
        if sampler is None:
            raise UsageError("compare --extend adds the samplers that --sampler names: name one")
    with show_work("at work", quiet=as_json):
        from gemmtune.engine.api.landscapes import landscapes
        from gemmtune.engine.api.replaying import read_study, replay
        from gemmtune.engine.report.progress.display import progress_bar
        from gemmtune.engine.report.studies import comparison_report, study_report

    given = [name.strip() for each in sampler or _SAMPLERS for name in re.split(r",(?![^(]*\))", each)]
    names = list(dict.fromkeys(filter(None, given)))
    if not names:
        raise UsageError(
            f"--sampler {', '.join(sampler or ())!r} names none; known: {', '.join(registry.names(Sampler))}"
        )
    chosen = [class_named(Sampler, name, Path()) for name in names]
    folder = out or (Path("comparison") if len(names) > 1 or extend else None)
    with progress_bar("searches", quiet=as_json) as count:
        if extend is not None:
            study = read_study(extend, *files or ()).extend(chosen, workers=workers, out=folder, progress=count)
        else:
            study = replay(
                files or landscapes(),
                chosen,
                budget=budget,
                seeds=seeds,
                batch=batch,
                workers=workers,
                cold=cold,
                apart=apart,
                noise=noise,
                out=folder,
                progress=count,
            )
    one = study_report(next(iter(study.results.values())), study.settings) if len(study.results) == 1 else None
    if as_json:
        print_json(one.to_json() if one else study.to_json())
        return
    report = one or comparison_report(study.comparison, study.settings)
    written = [*map(str, study.written), *study.notes]
    print_text("\n".join([report.to_text(output.columns()), *([""] if written else []), *written]))
