"""The commands that study samplers on recorded landscapes: replay and compare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gemmtune.engine.campaign.replayed_backend import read_all
from gemmtune.engine.cli import output
from gemmtune.engine.cli.options import AsJson
from gemmtune.engine.cli.out_folder import make_folder, write_all
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report import studies as study_report
from gemmtune.engine.report.curves import check_drawing, curves_html, curves_png
from gemmtune.engine.report.progress.display import progress_bar
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.studies.comparison import compare as compare_arms
from gemmtune.engine.studies.sampler_study import replay_study, replays, searchable

__all__ = ["compare", "replay"]

_LANDSCAPE_HELP = "Landscapes: CSV, cache files of Kernel Tuner or T4 results (JSON); .gz is fine."


def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Landscapes (CSV or gzip CSV).")],
    sampler: Annotated[str, typer.Option(help="The sampler to measure.")] = "transfer",
    budget: Annotated[int, typer.Option(min=1, help="Evaluations a problem, failures included.")] = 64,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, with seeds 0 to S-1.")] = 10,
    batch: Annotated[int, typer.Option(min=1, help="Configs asked for at once.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the result does not depend on it.")] = 1,
    cold: Annotated[bool, typer.Option("--cold", help="Without the starting points of the recorded space.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure a sampler on recorded landscapes: optimum over best found, mean over problems and seeds."""
    registry.sampler(sampler)
    landscapes = read_all(files)
    terms = {"seeds": seeds, "batch": batch, "workers": workers}
    with progress_bar("searches", quiet=as_json) as count:
        study = replay_study(landscapes, sampler, budget, **terms, cold=cold, progress=count)
    if as_json:
        output.print_json(study.to_json())
    else:
        print(study_report.study(study))


def compare(
    files: Annotated[list[Path], typer.Argument(metavar="LANDSCAPE...", help=_LANDSCAPE_HELP)],
    samplers: Annotated[str, typer.Option(metavar="A,B,C", help="The samplers.")] = "random,tpe,evolution,transfer",
    budget: Annotated[int, typer.Option(min=1, help="Evaluations a problem, failures included.")] = 128,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, with seeds 0 to S-1.")] = 20,
    out: Annotated[Path, typer.Option(help="Folder for the curves and the results.")] = Path("comparison"),
    batch: Annotated[int, typer.Option(min=1, help="Configs asked for at once.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the result does not depend on it.")] = 1,
    cold: Annotated[bool, typer.Option("--cold", help="Without the starting points of the recorded space.")] = False,
    apart: Annotated[bool, typer.Option("--apart", help="No search learns from those of other landscapes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put samplers side by side on recorded landscapes: best-so-far curves, a table, and the performance score P.

    Writes OUT/curves.png, OUT/curves.html and OUT/comparison.json. Unless they are apart, the searches of one seed are
    a campaign, in the order of the landscapes, as for replay.
    """
    names = list(dict.fromkeys(filter(None, map(str.strip, samplers.split(",")))))
    if not names:
        raise UsageError(f"--samplers {samplers!r} names none; known: {', '.join(registry.names(Sampler))}")
    for name in names:
        registry.sampler(name)
    check_drawing()
    landscapes = searchable(read_all(files))
    make_folder(out)  # before hours of searching, not after
    terms = {"seeds": seeds, "batch": batch, "workers": workers}
    found = {}
    for name in names:
        with progress_bar(f"searches of {name}", quiet=as_json) as count:
            found[name] = list(replays(landscapes, name, budget, **terms, cold=cold, apart=apart, progress=count))
    result = compare_arms(landscapes, found, budget)
    record = {**result.to_json(), "batch": batch, "cold": cold, "apart": apart}
    contents: dict[str, str | bytes] = {
        "comparison.json": json.dumps(record, indent=1) + "\n",
        "curves.png": curves_png(result),
        "curves.html": curves_html(result),
    }
    written = write_all(contents, out)
    if as_json:
        output.print_json(record)
    else:
        print(study_report.comparison(result, output.columns()))
        print("\n" + "\n".join(map(str, written)))
