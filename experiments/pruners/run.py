"""Measure what pruners save and cost on the H200 landscapes. Usage: run.py --json OUT [--orders random search].

The order `random` has configs in random order, the best one among them. The order `search` has the configs that
`evolution` asks for, with dropped ones as failures. The script needs no GPU, and keeps the results that OUT has.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmtune.engine.execution.pruning import UNBUILT, prune_recorded
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Measurement, Status, Trial
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.seams import registry
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes

ARMS = ("static", "prior")
COUNT = 64
"""Number of configs per order, and of evaluations per search."""
NEAR = 1.005
"""Factor on the optimum within which a config counts as good as it."""


@dataclass
class Tally:
    """Counts of what happened to the candidates of an arm."""

    candidates: int = 0
    unbuilt: int = 0
    untimed: int = 0
    launches: int = 0
    launches_recorded: int = 0
    searches: int = 0
    optimum_seen: int = 0
    optimum_dropped: int = 0
    near_seen: int = 0
    near_lost: int = 0
    fraction: float = 0.0

    def add(self, landscape: Landscape, found: Sequence[Measurement]) -> None:
        optimum_ns = landscape.optimum_ns
        recorded = {m.config: landscape.points[m.config] for m in found}
        times = [m.estimate.time_ns for m in found if m.estimate is not None]
        near = [c for c, point in recorded.items() if point.time_ns and point.time_ns <= NEAR * optimum_ns]
        kept = {m.config for m in found if m.status is Status.OK}
        best = [c for c, point in recorded.items() if point.time_ns == optimum_ns]
        self.searches += 1
        self.fraction += optimum_ns / min(times) if times else 0.0
        self.optimum_seen += bool(best)
        self.optimum_dropped += bool(best) and not kept & set(best)
        self.near_seen += bool(near)
        self.near_lost += bool(near) and not kept & set(near)
        for m in found:
            dropped = m.reason.startswith("pruned by")
            self.candidates += 1
            self.unbuilt += m.protocol == UNBUILT
            self.untimed += dropped and m.protocol != UNBUILT
            self.launches += len(m.samples_ns)
            self.launches_recorded += len(recorded[m.config].samples_ns)

    def record(self) -> dict[str, object]:
        dropped = {"unbuilt": self.unbuilt, "built": self.untimed}
        return {
            "dropped": {when: round(count / self.candidates, 4) for when, count in dropped.items()},
            "launches avoided": round(1 - self.launches / self.launches_recorded, 4),
            "optimum dropped": [self.optimum_dropped, self.optimum_seen],
            "all within 0.5 % dropped": [self.near_lost, self.near_seen],
            "of optimum": round(self.fraction / self.searches, 4),
        }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", type=Path, required=True, help="file for the results")
    arguments.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS))
    arguments.add_argument("--seeds", type=int, default=20)
    given = arguments.parse_args()
    landscapes = [landscape for path in embedded("triton_mm") for landscape in read_landscapes(path)]
    results = json.loads(given.json.read_text()) if given.json.exists() else []
    known = {(result["order"], result["pruner"]) for result in results}
    for order in given.orders:
        visit = ORDERS[order]
        for arm in ("none", *ARMS):
            if (order, arm) in known:
                continue
            began, total = time.process_time(), Tally()
            for landscape in landscapes:
                answer = answers(landscape)
                for seed in range(given.seeds):
                    total.add(landscape, visit(landscape, answer, pruner_of(arm), seed))
            seconds = time.process_time() - began
            ms = round(1e3 * seconds / total.candidates, 2)
            results.append(
                {"order": order, "pruner": arm, "seeds": given.seeds, **total.record(), "cpu ms a candidate": ms}
            )
            print(json.dumps(results[-1]), flush=True)
            given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


Answer = Callable[[Config], Measurement]
Pruned = Callable[[Measurement, Sequence[Measurement]], Measurement]


def pruner_of(arm: str) -> Pruned:
    """Return a function that says what an arm's pruner leaves of a measurement, given those before it."""
    pruners = {} if arm == "none" else {arm: registry.pruner(arm)}
    return lambda found, history: prune_recorded(found, pruners, history)


def answers(landscape: Landscape) -> Answer:
    """Return a function from a config to its recorded measurement, as an executor reports it."""
    task = Task(landscape.problem, catalogue.device(landscape.context["device"]), landscape.context["space"])
    executor = ReplayExecutor([landscape])

    def answer(config: Config) -> Measurement:
        executor.submit(task, config)
        [measurement] = executor.collect(0.0)
        return measurement

    return answer


def randomly(landscape: Landscape, answer: Answer, pruned: Pruned, seed: int) -> list[Measurement]:
    """Judge COUNT configs in random order, the best one among them."""
    best = min((p for p in landscape.points.values() if p.time_ns), key=lambda p: p.time_ns).config
    draw = random.Random(f"{landscape.name}/{seed}")
    order = draw.sample([config for config in landscape.points if config != best], COUNT - 1)
    order.insert(draw.randrange(COUNT), best)
    history: list[Measurement] = []
    for config in order:
        history.append(pruned(answer(config), history))
    return history


def searching(landscape: Landscape, answer: Answer, pruned: Pruned, seed: int) -> list[Measurement]:
    """Judge the configs of a search of COUNT evaluations; a dropped config counts, as a failure."""
    history: list[Measurement] = []
    tuner = LandscapeSearch(landscape).begin(registry.sampler("evolution"), COUNT, seed=seed)
    while not tuner.done:
        trials = []
        for config in tuner.next_batch():
            found = pruned(answer(config), history)
            history.append(found)
            trials.append(Trial(config, found.status, found.estimate.time_ns if found.estimate else None))
        tuner.tell(trials)
    return history


ORDERS = {"random": randomly, "search": searching}


if __name__ == "__main__":
    main()
