"""Repeat campaign-100's searches with the noise of single looks. Usage: noisy.py [--campaigns 48] [--budget 24].

Problems are those of `builds.py`. Each time that a search is told has a log-normal error, the larger the shorter the
kernel, as five campaigns on an H200 differ from each other. A final with an error of its own chooses among the best
eight, and its choice is judged by the recorded time. `--ends` judges rules that end a search before its budget.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np
from unseen import described, records, sampler

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import SourceTask
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.seams.sampler import Sampler

LOOK_ERRORS = ((5e3, 0.06), (2e4, 0.02), (math.inf, 0.012))
"""Longest optimum, ns, and the standard deviation of the logarithm of one look's time."""
FINALISTS, FINAL_ERROR = 8, 0.004
BUDGETS = (8, 12, 16, 20, 24, 32)
TARGETS = ((0.99, 0.96), (0.997, 0.985))
"""Mean and worst problem that a campaign is asked for."""

Looks = list[tuple[Config, float | None]]
"""A search's configs in the order asked, with the time that it was told, ns."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--samplers", nargs="+", default=["transfer"], help="or MODULE:CLASS(argument=value)")
    arguments.add_argument("--problems", choices=("twelve", "ten"), default="twelve")
    arguments.add_argument("--all-known", action="store_true", help="the history is all other 21 recorded problems")
    arguments.add_argument("--campaigns", type=int, default=48)
    arguments.add_argument("--first", type=int, default=0, help="number of the first campaign, its seed")
    arguments.add_argument("--budget", type=int, default=24)
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--ends", action="store_true", help="judge rules that end a search")
    given = arguments.parse_args()
    for name in given.samplers:
        print(f"{name}, {given.problems}, batches of {given.batch}, {given.campaigns} campaigns")
        kind = traced(sampler(name)) if given.ends else sampler(name)
        seeds = range(given.first, given.first + given.campaigns)
        found = [campaign(kind, given, seed) for seed in seeds]
        for line in ends(found, given.budget) if given.ends else budgets(found, given.budget):
            print(f"  {line}", flush=True)


class Searched:
    """A search that has ended, in a campaign with noise."""

    def __init__(self, task: LandscapeSearch, looks: Looks, expected: dict[int, float], seed: int) -> None:
        self.name = task.landscape.name.partition(":")[0]
        self.expected = expected
        self._landscape, self._looks, self._seed = task.landscape, looks, seed

    def after(self, builds: int) -> float:
        """Return optimum over what a final chooses of the first `builds`."""
        draw = np.random.default_rng([self._seed, builds])
        worked = [(time_ns, i, config) for i, (config, time_ns) in enumerate(self._looks[:builds]) if time_ns]
        finalists = [self._landscape.points[config].time_ns for _, _, config in sorted(worked)[:FINALISTS]]
        measured = [time_ns * math.exp(draw.normal(0, FINAL_ERROR)) for time_ns in finalists]
        return self._landscape.optimum_ns / finalists[int(np.argmin(measured))]


def campaign(kind: type[Sampler], given: argparse.Namespace, seed: int) -> list[Searched]:
    numbers = range(10, 22) if given.problems == "twelve" else range(10)
    return [searched(kind, number, given, seed) for number in numbers]


def searched(kind: type[Sampler], number: int, given: argparse.Namespace, seed: int) -> Searched:
    task = described(number, False)
    draw = np.random.default_rng([seed, number])
    error = next(error for longest, error in LOOK_ERRORS if task.landscape.optimum_ns < longest)
    tuner = task.begin(kind, given.budget, seed=seed, batch=given.batch, history=history(number, given))
    while not tuner.done:
        told = []
        for trial in map(task.outcome, tuner.next_batch()):
            factor = math.exp(draw.normal(0, error))  # drawn for a failure, too: the next times stay
            told.append(Trial(trial.config, trial.status, trial.score and factor * trial.score))
        tuner.tell(told)
    looks = [(trial.config, trial.score) for trial in tuner.trials]
    return Searched(task, looks, getattr(tuner._sampler, "expected", {}), seed)


def history(number: int, given: argparse.Namespace) -> Sequence[SourceTask]:
    """Return the records of the ten without the problem itself, or of all others."""
    known = everything() if given.all_known else records()
    return [source for i, source in enumerate(known) if i != number]


def everything() -> Sequence[SourceTask]:
    if not _EVERYTHING:
        tasks = [described(number, False) for number in range(22)]
        _EVERYTHING.extend(task.as_source() for task in tasks)
    return _EVERYTHING


_EVERYTHING: list[SourceTask] = []


def traced(kind: type[Sampler]) -> type[Sampler]:
    """Return a `transfer` that notes, before each batch, the largest improvement that its process expects."""

    class Traced(kind):
        def __init__(self, search) -> None:
            super().__init__(search)
            self.expected: dict[int, float] = {}

        def ask(self, count: int) -> list[Config]:
            if self._process.outcomes:
                self.expected[self._asked] = float(self._process.improvement(0)[self._free].max())
            return super().ask(count)

    return Traced


def budgets(found: list[list[Searched]], most: int) -> list[str]:
    lines = []
    for builds in (b for b in BUDGETS if b <= most):
        fractions = np.array([[search.after(builds) for search in one] for one in found])
        lines.append(f"{builds:3} builds: {summary(fractions)}")
        names, missed = [search.name for search in found[0]], (fractions < TARGETS[0][1]).mean(axis=0)
        missing = ", ".join(f"{name} {share:.2f}" for name, share in zip(names, missed, strict=True) if share >= 0.02)
        if missing:
            lines.append(f"           share below {TARGETS[0][1]}: {missing}")
    return lines


def ends(found: list[list[Searched]], most: int) -> list[str]:
    """Judge an end where the process expects less than a threshold, and one that knows what is still to come."""
    lines = []
    for threshold in (0.0, 0.001, 0.002, 0.003, 0.005, 0.008, 0.012, 0.02, 0.03):
        builds = np.array([[end(search, threshold, most) for search in one] for one in found])
        pairs = zip(found, builds, strict=True)
        fractions = np.array([[s.after(n) for s, n in zip(*pair, strict=True)] for pair in pairs])
        lines.append(f"expects less than {threshold:5}: {builds.mean():4.1f} builds, {summary(fractions)}")
    for loss in (0.0, 0.003, 0.015):
        needed = [[needs(search, loss, most) for search in one] for one in found]
        lines.append(f"an oracle that gives up {loss:5} of what {most} find: {np.mean(needed):4.1f} builds")
    return lines


def end(search: Searched, threshold: float, most: int) -> int:
    return next((n for n, expected in search.expected.items() if n >= 8 and expected < threshold), most)


def needs(search: Searched, loss: float, most: int) -> int:
    last = search.after(most)
    return next(n for n in range(1, most + 1) if search.after(n) >= last - loss)


def summary(fractions: np.ndarray) -> str:
    means, worst = fractions.mean(axis=1), fractions.min(axis=1)
    reached = ", ".join(
        f"{np.mean((means >= mean) & (worst >= least)):.2f} of {mean}/{least}" for mean, least in TARGETS
    )
    return (
        f"mean {means.mean():.4f} (5 %: {np.quantile(means, 0.05):.4f}), worst {np.median(worst):.3f} "
        f"(5 %: {np.quantile(worst, 0.05):.3f}); reached: {reached}"
    )


if __name__ == "__main__":
    main()
