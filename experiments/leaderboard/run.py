"""Rank samplers on recorded landscapes. Usage: run.py FOLDER --out OUT [--json result.json] [--seeds 30].

The script needs kernel_tuner 1.5.0 and no GPU. FOLDER has further landscapes. Searches that OUT holds are not repeated:
a killed run goes on, and several runs of other samplers may share OUT. Pages and results are made with --json alone.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from math import ceil
from pathlib import Path
from statistics import fmean

import kernel_tuner_samplers

import gemmtune as gt
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.studies.sampler_study import Replay
from gemmtune.engine.studies.study_file import (
    StudySettings,
    landscape_hash,
    read_record,
    replays_of,
    study_record,
    write_record,
)

KERNEL_TUNER = {f"kt_{name}": kernel_tuner_samplers.sampler(name) for name in kernel_tuner_samplers.STRATEGIES}
SAMPLERS = ("random", "evolution", "transfer", "tpe", "nsga2", "cmaes", "gp", *KERNEL_TUNER)
MOST = {"gp": 64, "kt_bayes_opt": 64}
"""Largest budget of samplers that take seconds per evaluation beyond it."""
SHIPPED = 10
"""Landscapes that ship with gemmtune; they come first."""
SHARE = "5 %"
BUDGETS = ("16", "32", "64", SHARE)
"""Evaluations per search, or a share of the landscape's configs."""
SETTINGS = StudySettings(batch=1, apart=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--json", type=Path)
    arguments.add_argument("--seeds", type=int, default=30)
    arguments.add_argument("--samplers", nargs="+", default=SAMPLERS)
    arguments.add_argument("--budgets", nargs="+", default=BUDGETS, choices=BUDGETS)
    given = arguments.parse_args()
    landscapes = [*gt.landscapes(space="triton_mm"), *gt.landscapes(given.folder)]
    hashes = list(map(landscape_hash, landscapes))
    results = {}
    for label in given.budgets:
        budgets = [ceil(0.05 * len(each.points)) if label == SHARE else int(label) for each in landscapes]
        samplers = [name for name in given.samplers if max(budgets) <= MOST.get(name, max(budgets))]
        found = {}
        for name in samplers:
            searches = [
                searched(given.out / label, landscape, sha256, name, budget, given.seeds)
                for landscape, sha256, budget in zip(landscapes, hashes, budgets, strict=True)
            ]
            found[name] = [[trials for [trials] in replays] for replays in zip(*searches, strict=True)]
        if given.json:
            whole = gt.Study(landscapes, found, max(budgets), given.seeds, asdict(SETTINGS))
            whole.save(given.out / label)
            results[label] = summary(whole)
            given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def searched(folder: Path, landscape: Landscape, sha256: str, name: str, budget: int, seeds: int) -> list[Replay]:
    """Return a sampler's searches of one landscape from their file, which is written where it is missing."""
    path = folder / f"{landscape.name} {name}.json"
    if not path.exists():
        study = gt.replay(landscape, KERNEL_TUNER.get(name, name), budget=budget, seeds=seeds, batch=1, apart=True)
        record = study_record([landscape], study.code, study.found, budget, SETTINGS)
        folder.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".part").write_text(write_record(record), encoding="utf-8")
        path.with_suffix(".part").rename(path)
    record = read_record(path)
    if (record.landscapes[0].sha256, len(record.seeds)) != (sha256, seeds):
        raise SystemExit(f"{path} is of another landscape or of {len(record.seeds)} seeds: choose another --out")
    return replays_of(record, path, [landscape])[name]


def summary(study: gt.Study) -> dict[str, object]:
    """Return the critical difference, and of each sampler optimum / best found with its interval, its rank, and P."""
    ranks = study.comparison.ranking.ranks
    found = {"critical difference": study.comparison.ranking.critical_difference}
    for name in ranks:
        curve = study.comparison.curve(name)
        score = curve.score and [curve.score.value, curve.score.low, curve.score.high]
        of_each = [study.comparison.curve(name, landscape).mean[-1] for landscape in study.comparison.landscapes]
        of_optimum = {"all": [curve.mean[-1], curve.low[-1], curve.high[-1]]}
        of_optimum |= {"H200": fmean(of_each[:SHIPPED]), "others": fmean(of_each[SHIPPED:])}
        found[name] = {"of optimum": of_optimum, "rank": ranks[name], "P": score}
    return json.loads(json.dumps(found), parse_float=lambda text: round(float(text), 4))


if __name__ == "__main__":
    main()
