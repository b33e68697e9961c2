"""How good a sampler is on recorded landscapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

from gemmtune.engine.campaign.tuner import Tuner
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import Space
from gemmtune.engine.store.landscape_cells import file_stem

__all__ = ["StudyResult", "replay_study"]


@dataclass(frozen=True, slots=True)
class StudyResult:
    """What a sampler found, as the fraction optimum time / best time found; 0 where it found nothing."""

    sampler: str
    """The sampler's name."""
    budget: int
    """Evaluations of each search, failures included."""
    seeds: int
    """Searches of each landscape, seeds 0 to seeds - 1."""
    problems: Mapping[str, float]
    """Mean fraction over the seeds, by the landscape's name."""

    @property
    def fraction_of_optimum(self) -> float:
        """Mean over problems and seeds."""
        return fmean(self.problems.values())

    def to_json(self) -> dict[str, object]:
        """The object `gemmtune replay --json` prints."""
        return {
            "sampler": self.sampler,
            "budget": self.budget,
            "seeds": self.seeds,
            "fraction_of_optimum": self.fraction_of_optimum,
            "problems": dict(self.problems),
        }


def replay_study(
    landscapes: Sequence[Landscape],
    sampler_name: str,
    budget: int,
    *,
    seeds: int,
    batch: int = 1,
    workers: int = 1,
    cold: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> StudyResult:
    """Search each landscape once a seed.

    A landscape of a single config, such as a baseline's, leaves nothing to search and is left out.

    Args:
        landscapes: what to search; recorded configs are feasible unless they were invalid.
        sampler_name: a registered sampler.
        budget: evaluations a search, at least 1.
        seeds: searches a landscape, at least 1.
        batch: configs asked for at once.
        workers: processes; the result does not depend on it.
        cold: keep from the sampler the seeds of the space that a landscape names; by default it has them, as in a
            campaign. A landscape that names no registered space has none.
        progress: called with the searches done and their total, as they end.

    Raises:
        UnknownPlugin: no sampler of that name.
        LandscapeError: no landscape is left.
        ValueError: budget, seeds, batch or workers is below 1.
    """
    for name, value in {"budget": budget, "seeds": seeds, "batch": batch, "workers": workers}.items():
        if value < 1:
            raise ValueError(f"{name}={value} is below 1")
    registry.sampler(sampler_name)  # an unknown name fails here, not in a worker
    searched = [landscape for landscape in landscapes if len(_feasible(landscape)) > 1]
    if not searched:
        names = ", ".join(landscape.name for landscape in landscapes) or "none given"
        raise LandscapeError(f"nothing to search: no landscape with 2 feasible configs or more ({names})")
    step = -(-seeds // workers)  # a landscape travels once a chunk, not once a seed
    chunks = [range(start, min(start + step, seeds)) for start in range(0, seeds, step)]
    starts = [() if cold else _starting_points(landscape) for landscape in searched]
    jobs = [
        (landscape, points, sampler_name, budget, chunk, batch)
        for landscape, points in zip(searched, starts, strict=True)
        for chunk in chunks
    ]
    fractions: list[float] = []
    for result in _results(jobs, workers):
        fractions.extend(result)
        progress(len(fractions), seeds * len(searched))
    means = [fmean(fractions[start : start + seeds]) for start in range(0, len(fractions), seeds)]
    return StudyResult(sampler_name, budget, seeds, dict(zip(_labels(searched), means, strict=True)))


_Job = tuple[Landscape, tuple[Config, ...], str, int, range, int]


def _results(jobs: Sequence[_Job], workers: int) -> Iterator[list[float]]:
    """Each job's fractions, in the order of the jobs."""
    if workers == 1:
        yield from (_fractions(*job) for job in jobs)
        return
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn")) as pool:
        yield from (future.result() for future in [pool.submit(_fractions, *job) for job in jobs])


def _starting_points(landscape: Landscape) -> tuple[Config, ...]:
    """The seeds a campaign would give the sampler; none where the file does not say what was recorded, and where."""
    name, sku = landscape.context.get("space"), landscape.context.get("device")
    if landscape.problem is None or name not in registry.names(Space) or sku is None:
        return ()
    task = Task(landscape.problem, catalogue.device(sku), name)
    feasible = {point.config for point in _feasible(landscape)}
    return tuple(config for config in registry.space(name).seeds(task) if config in feasible)


def _fractions(
    landscape: Landscape,
    starting_points: tuple[Config, ...],
    sampler_name: str,
    budget: int,
    seeds: range,
    batch: int,
) -> list[float]:
    feasible = tuple(point.config for point in _feasible(landscape))
    sampler = registry.sampler(sampler_name)
    fractions = []
    for seed in seeds:
        search = Search(params=landscape.params, feasible=feasible, seeds=starting_points, budget=budget, seed=seed)
        tuner = Tuner(sampler(search), budget, batch)
        while not tuner.done:
            points = [landscape.points[config] for config in tuner.next_batch()]
            tuner.tell([Trial(point.config, point.status, point.time_ns) for point in points])
        found = None if tuner.best is None else tuner.best.score
        fractions.append(0.0 if found is None else landscape.optimum_ns / found)
    return fractions


def _feasible(landscape: Landscape) -> list[Point]:
    return [point for point in landscape.points.values() if point.status is not Status.INVALID]


def _labels(landscapes: Sequence[Landscape]) -> list[str]:
    """Each landscape's name, made unique where several share it: by file, then device and space, then number."""
    labels = [landscape.name for landscape in landscapes]
    labels = _qualify(labels, (file_stem(Path(landscape.source)) for landscape in landscapes))
    facts = (landscape.context for landscape in landscapes)
    labels = _qualify(labels, ("/".join(fact[k] for k in ("device", "space") if k in fact) for fact in facts))
    return _qualify(labels, (str(number) for number in range(1, len(labels) + 1)))


def _qualify(labels: Sequence[str], prefixes: Iterable[str]) -> list[str]:
    count = Counter(labels)
    return [
        f"{prefix}/{label}" if count[label] > 1 and prefix not in ("", label) else label
        for label, prefix in zip(labels, prefixes, strict=True)
    ]
