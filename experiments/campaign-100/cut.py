"""Cut finished campaigns after fewer builds. Usage: cut.py FOLDER... Each holds a campaign's measurements.db.

`triton_mm` counts as the best config of the final among the first builds of its problem, and what ships as the faster
of that and the vendor library. Both are compared with the whole campaign's. No GPU is needed. `LOOKS` end a problem
where its best is behind the vendor library by a factor.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from gemmtune.engine.records.config import Config
from gemmtune.engine.store.database import Database

SPACE, BASELINE = "triton_mm", "aten"
BUILDS = (4, 8, 12, 16, 20)
LOOKS = (
    ((8, 1.5), (16, 1.1)),
    ((8, 1.3), (12, 1.2), (16, 1.07), (20, 1.03)),
    ((8, 1.1),),
    ((8, 1.05), (12, 1.02), (16, 1.0)),
)
"""Builds after which a problem ends, and the factor behind the vendor library, per rule."""
Looks = list[tuple[Config, float]]
"""A problem's configs in the order measured, with their single looks, ns."""


def main() -> None:
    campaigns = [Campaign(Path(folder)) for folder in sys.argv[1:]]
    most = max(len(looks) for campaign in campaigns for looks in campaign.looks.values())
    for builds in BUILDS:
        report(f"{builds} builds", campaigns, lambda campaign, problem, builds=builds: builds)
    for rule in LOOKS:
        report(f"ends at {rule}", campaigns, lambda campaign, problem, rule=rule: campaign.end(problem, rule, most))


class Campaign:
    """Measurements and finals of a campaign."""

    def __init__(self, folder: Path) -> None:
        self.looks: defaultdict[str, Looks] = defaultdict(list)
        self.vendor: dict[str, float] = {}
        with Database.open(folder / "measurements.db", read_only=True) as store:
            for m in store.measurements():
                time_ns = math.inf if m.estimate is None else m.estimate.time_ns
                if m.task.space == SPACE:
                    self.looks[m.task.problem.name].append((m.config, time_ns))
                elif m.task.space == BASELINE:
                    self.vendor[m.task.problem.name] = time_ns
            self.finals = {
                final.problem.name: {(f.task.space, f.config): f.estimate.time_ns for f in final.finalists}
                for final in store.finals()
            }

    def end(self, problem: str, rule: tuple[tuple[int, float], ...], most: int) -> int:
        behind = (
            builds
            for builds, factor in rule
            if min(t for _, t in self.looks[problem][:builds]) > factor * self.vendor[problem]
        )
        return next(behind, most)

    def kept(self, problem: str, builds: int) -> tuple[float, float]:
        """Return the fraction that the first builds keep of the best of `triton_mm`, and of what ships."""
        looks, final = self.looks[problem], self.finals[problem]
        times = {config: time_ns for (space, config), time_ns in final.items() if space == SPACE}
        best = min(times.values())
        among = [times[config] for config, _ in looks[:builds] if config in times]
        behind = min(t for _, t in looks[:builds]) / min(t for _, t in looks)
        found = min(among) if among else best * behind
        vendor = min(time_ns for (space, _), time_ns in final.items() if space == BASELINE)
        return best / found, min(best, vendor) / min(found, vendor)


def report(what: str, campaigns: list[Campaign], builds_of) -> None:
    for campaign in campaigns:
        spent = {problem: min(builds_of(campaign, problem), len(looks)) for problem, looks in campaign.looks.items()}
        kept = [campaign.kept(problem, builds) for problem, builds in spent.items() if problem in campaign.finals]
        ours, ships = zip(*kept, strict=True)
        print(
            f"{what}: {sum(spent.values())} builds; {SPACE} {fmean(ours):.4f}, worst {min(ours):.3f}; "
            f"ships {fmean(ships):.4f}, worst {min(ships):.3f}"
        )


if __name__ == "__main__":
    main()
