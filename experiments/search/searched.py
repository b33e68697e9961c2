"""Write what a search measured to a file that ships, and judge what later searches gain from it. Needs no GPU.

    python experiments/search/searched.py --from CAMPAIGN.db --space quack_gemm [--beside OLD.csv.gz] --out FILE.csv.gz
    python experiments/search/searched.py --judge FILE.csv.gz

Problems of campaign-100, which judges searches, are left out. Those that OLD has stay as they are there.
Of a long search 48 configs are kept.

`--judge` compares two orders of each problem's configs: the order in which the search asked for them, and that in which
the forest of `transfer` expects them after it has learned from the other problems. Problems that share two of their
three sizes with the judged one teach nothing.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

from gemmtune.engine.api.recording import landscape_from
from gemmtune.engine.campaign.plan_file import read_plan
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.search import Search
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.seams import registry
from gemmtune.engine.search.models.source_trials import select_trials
from gemmtune.engine.search.models.transfer_model import predict_slowness
from gemmtune.engine.search.task_features import feature_matrix
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes, write_landscapes

CAMPAIGN_100 = Path(__file__).parents[1] / "campaign-100" / "campaign.toml"
EVALUATIONS = (1, 2, 4, 8)
SHARED_SIZES = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="database", type=Path, help="database of a campaign")
    parser.add_argument("--space", default="quack_gemm", help="space whose measurements are taken")
    parser.add_argument("--without", default="^$", help="regular expression of further problems to leave out")
    parser.add_argument("--most", type=int, default=48, help="trials per problem: the fastest half, others spread")
    parser.add_argument("--out", type=Path, help="file to write")
    parser.add_argument("--beside", type=Path, help="file whose problems are kept as they are")
    parser.add_argument("--judge", type=Path, help="file to judge")
    given = parser.parse_args()
    if given.database:
        old = read_landscapes(given.beside) if given.beside else ()
        known = {landscape.problem.name for landscape in old}
        new = [fewer(x, given.most) for x in measured(given.database, given.space, given.without, known)]
        write_landscapes(given.out, sorted((*old, *new), key=lambda landscape: landscape.problem.name))
    if given.judge:
        print(json.dumps(judged(read_landscapes(given.judge)), indent=1))


def measured(database: Path, space: str, without: str, known: set[str]) -> list[Landscape]:
    """Return the times of a space's configs, in the order in which they were measured."""
    known = known | {problem.name for problem in read_plan(CAMPAIGN_100).problems}
    found = []
    with Database.open(database, read_only=True) as store:
        for task in store.tasks():
            measurements = {m.config: m for m in store.measurements(task)}
            name = task.problem.name
            if task.space == space and measurements and name not in known and not re.search(without, name):
                order = sorted(measurements, key=lambda config: measurements[config].created_at)
                found.append(landscape_from(task, registry.space(space), order, measurements))
    bare = {"samples_ns": (), "resources": None, "build_seconds": None}
    return [replace(x, points={c: replace(p, **bare) for c, p in x.points.items()}) for x in found]


def fewer(landscape: Landscape, most: int) -> Landscape:
    """Return a landscape with at most `most` configs, those that a model would learn from."""
    chosen, _ = select_trials(LandscapeSearch(landscape).as_source(), most)
    kept = {trial.config for trial in chosen}
    return replace(landscape, points={c: point for c, point in landscape.points.items() if c in kept})


def judged(landscapes: Sequence[Landscape]) -> dict:
    """Return the best time over the best of the first configs, with the configs as asked and as predicted."""
    searches = [LandscapeSearch(landscape) for landscape in landscapes]
    sources = [search.as_source() for search in searches]
    found: dict[str, list[float]] = {}
    for search in searches:
        asked = search.feasible
        problem = search.landscape.problem
        others = [
            source
            for source, other in zip(sources, searches, strict=True)
            if shared_sizes(problem, other.landscape.problem) < SHARED_SIZES
        ]
        question = Search(
            params=search.landscape.params,
            feasible=asked,
            seeds=(),
            budget=len(asked),
            seed=0,
            campaign_seed=0,
            features=search.features,
            history=tuple(others),
        )
        slowness = predict_slowness(question, feature_matrix(search.features, list(asked)))
        if slowness is None:  # no other problem tells of a fact of this one
            continue
        predicted = [asked[place] for place in slowness.argsort(kind="stable")]
        for name, order in (("asked", asked), ("predicted", predicted)):
            times = [search.landscape.points[config].time_ns or float("inf") for config in order]
            for evaluations in EVALUATIONS:
                found.setdefault(f"{name} {evaluations}", []).append(min(times) / min(times[:evaluations]))
    return {
        name: {
            "mean": round(geometric_mean(its), 4),
            "worst": round(min(its), 3),
            "off by 2 %": sum(x < 0.98 for x in its),
        }
        for name, its in found.items()
    } | {"problems": len(found["asked 1"]), "configs": sum(len(search.feasible) for search in searches)}


def shared_sizes(one, other) -> int:
    """Return how many of a problem's three sizes the other has, too; each counts once."""
    return sum((Counter((one.m, one.n, one.k)) & Counter((other.m, other.n, other.k))).values())


if __name__ == "__main__":
    main()
