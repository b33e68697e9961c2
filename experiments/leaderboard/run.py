"""Rank samplers on recorded landscapes. Usage: run.py SOURCE ... --out OUT [--json result.json] [--seeds 30].

Kernel Tuner's strategies need kernel_tuner 1.5.0; nothing needs a GPU. Each source is a file or folder of further
landscapes. Every core searches. Searches that OUT holds are not repeated: a run that was stopped goes on. Pages and
results are made with --json alone, of the samplers whose searches are all there.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from multiprocessing import TimeoutError as Late
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

from threadpoolctl import threadpool_limits

import gemmtune as gt
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.studies.sampler_study import Replay, labels, replays
from gemmtune.engine.studies.study_file import (
    StudySettings,
    code_of,
    landscape_hash,
    read_record,
    replays_of,
    study_record,
    write_record,
)

KERNEL_TUNER = """
    adaptive_tabu_greywolf basinhopping diff_evo dual_annealing firefly_algorithm genetic_algorithm greedy_ils
    greedy_mls hybrid_vndx minimize mls ordered_greedy_mls pso random_sample simulated_annealing
"""
"""Strategies of one objective that need no further package, but bayes_opt; brute_force asks in order."""
SAMPLERS = (
    *("random", "evolution", "transfer", "nsga2", "cmaes", "tpe"),
    *(f"kt_{name}" for name in KERNEL_TUNER.split()),
    *("gp", "kt_bayes_opt"),
)
"""Samplers in the order in which they search."""
MOST = {"gp": 64}
"""Largest budget of samplers that take seconds per evaluation beyond it; they search last."""
SHARE = "5 %"
BUDGETS = ("16", "32", "64", SHARE)
"""Evaluations per search, or a share of the landscape's configs."""
SETTINGS = StudySettings(batch=1, apart=True)


@dataclass(frozen=True, slots=True)
class Searches:
    """Searches of one landscape by one sampler, a seed each, and their file."""

    path: Path
    sampler: str
    landscape: Landscape
    budget: int
    seeds: int

    def run(self) -> None:
        """Search, and write the trials to the file."""
        kind = sampler(self.sampler)
        found = list(replays([self.landscape], kind, self.budget, seeds=self.seeds, batch=1, apart=True))
        kinds = {self.sampler: code_of(kind)}
        record = study_record([self.landscape], kinds, {self.sampler: found}, self.budget, SETTINGS)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(f".{os.getpid()}")
        part.write_text(write_record(record), encoding="utf-8")
        part.rename(self.path)

    def read(self) -> list[Replay]:
        """Return the trials of the file, a replay per seed."""
        record = read_record(self.path)
        if (record.landscapes[0].sha256, len(record.seeds)) != (landscape_hash(self.landscape), self.seeds):
            raise SystemExit(f"{self.path} has another landscape or {len(record.seeds)} seeds: choose another --out")
        return replays_of(record, self.path, [self.landscape])[self.sampler]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("sources", nargs="+", type=Path)
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--json", type=Path)
    arguments.add_argument("--seeds", type=int, default=30)
    arguments.add_argument("--seconds", type=float, default=1e9, help="after which no search goes on")
    arguments.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    arguments.add_argument("--samplers", nargs="+", default=SAMPLERS)
    arguments.add_argument("--budgets", nargs="+", default=BUDGETS, choices=BUDGETS)
    given = arguments.parse_args()
    end = time.monotonic() + given.seconds
    landscapes = [*gt.landscapes(space="triton_mm"), *(x for source in given.sources for x in gt.landscapes(source))]
    wanted = {label: plan(landscapes, given.out, label, given.samplers, given.seeds) for label in given.budgets}
    searches = [each for of in wanted.values() for some in of.values() for each in some]
    search(sorted(searches, key=lambda each: each.sampler in MOST), given.processes, end)
    if given.json:
        every = [(of, landscapes, given.out / label, label) for label, of in wanted.items()]
        with get_context("spawn").Pool(len(every), threadpool_limits, (1,)) as pool:
            results = dict(zip(wanted, pool.starmap(result, every), strict=True))
        given.json.write_text(json.dumps(results) + "\n", encoding="utf-8")


def plan(
    landscapes: Sequence[Landscape], out: Path, label: str, samplers: Sequence[str], seeds: int
) -> dict[str, list[Searches]]:
    """Return the searches by sampler, one per landscape; none of samplers that the budget is too large for."""
    budgets = [ceil(0.05 * len(each.points)) if label == SHARE else int(label) for each in landscapes]
    names = [label_of.replace("/", " ") for label_of in labels(landscapes)]
    return {
        name: [
            Searches(out / label / f"{names[i]} {name}.json", name, landscapes[i], budget, seeds)
            for i, budget in enumerate(budgets)
        ]
        for name in samplers
        if max(budgets) <= MOST.get(name, max(budgets))
    }


def search(wanted: Sequence[Searches], processes: int, end: float) -> None:
    """Run the searches whose files are missing, in their order, until `end` by the monotonic clock."""
    left = [each for each in wanted if not each.path.exists()]
    with get_context("spawn").Pool(processes, threadpool_limits, (1,)) as pool:
        done = pool.imap_unordered(Searches.run, left)
        try:
            for number in range(1, len(left) + 1):
                try:
                    done.next(max(0.0, end - time.monotonic()))
                except gt.ContractError as error:  # of one sampler, which then has no result
                    print(f"\r{error}")
                print(f"\r{number} of {len(left)}", end="", flush=True)
        except Late:
            print(": the time is over; the next run goes on", end="")
        print()


def sampler(name: str) -> type[Sampler]:
    """Return a sampler's class."""
    if not name.startswith("kt_"):
        return registry.sampler(name)
    from kernel_tuner_samplers import strategy

    return strategy(name.removeprefix("kt_"))


def result(
    of: Mapping[str, Sequence[Searches]], landscapes: Sequence[Landscape], folder: Path, label: str
) -> dict[str, object]:
    """Write the page of the samplers whose searches are all there, and return their summary; empty below two."""
    found = {}
    for name, some in of.items():
        if all(each.path.exists() for each in some):
            by_landscape = [each.read() for each in some]
            found[name] = [[trials for [trials] in replay] for replay in zip(*by_landscape, strict=True)]
    if len(found) < 2:
        return {}
    first = next(iter(of.values()))
    whole = gt.Study(landscapes, found, max(each.budget for each in first), first[0].seeds, asdict(SETTINGS))
    whole.save(folder)
    return summary(whole, has_score=label != SHARE)


def summary(study: gt.Study, *, has_score: bool) -> dict[str, object]:
    """Return the critical difference, and of each sampler optimum / best found with its interval, its rank, and P.

    P is of searches with one budget alone.
    """
    comparison = study.comparison
    ranks = comparison.ranking.ranks
    kinds = list(map(kind_of, study.landscapes))
    found = {"landscapes": Counter(kinds), "seeds": study.seeds}
    found |= {"critical difference": comparison.ranking.critical_difference}
    for name in ranks:
        curve = comparison.curve(name)
        ends = [comparison.curve(name, landscape).mean[-1] for landscape in comparison.landscapes]
        of_optimum = {"all": [curve.mean[-1], curve.low[-1], curve.high[-1]]}
        of_optimum |= {kind: fmean(x for x, own in zip(ends, kinds, strict=True) if own == kind) for kind in set(kinds)}
        score = [curve.score.value, curve.score.low, curve.score.high] if has_score and curve.score else None
        found[name] = {"of optimum": of_optimum, "rank": ranks[name], "P": score}
    return json.loads(json.dumps(found), parse_float=lambda text: round(float(text), 4))


def kind_of(landscape: Landscape) -> str:
    """Return the group of a landscape in the summary."""
    if landscape.problem is None:
        return "hub"
    return "H200" if landscape.context["device"] == "H200" else "families"


if __name__ == "__main__":
    main()
