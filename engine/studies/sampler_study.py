"""How good a sampler is on recorded landscapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import SourceTask
from gemmtune.engine.scheduling.landscape_search import RecordedTask
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.store.landscapes.cells import file_stem

__all__ = ["Campaign", "StudyResult", "campaigns", "labels", "replay_study", "searchable"]

Campaign = list[tuple[Trial, ...]]
"""The trials of each landscape's search, by one sampler with one seed."""


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
    """Search the landscapes in their order, once a seed.

    The searches of one seed are a campaign: a sampler that learns is given what the earlier searches of the same space
    found, each with the same budget. A landscape of a single config, such as a baseline's, leaves nothing to search and
    is left out.

    Args:
        landscapes: what to search; recorded configs are feasible unless they were invalid.
        sampler_name: a registered sampler.
        budget: evaluations a search, at least 1.
        seeds: searches a landscape, at least 1.
        batch: configs asked for at once.
        workers: processes; the result does not depend on it.
        cold: keep from the sampler the seeds of the space that a landscape names; by default it has them, as in a
            campaign. A landscape that names no registered space has none.
        progress: called with the searches done and their total, after each campaign.

    Raises:
        UnknownPlugin: no sampler of that name.
        LandscapeError: no landscape is left.
        ValueError: budget, seeds, batch or workers is below 1.
    """
    searched = searchable(landscapes)
    found = list(
        campaigns(
            searched, sampler_name, budget, seeds=seeds, batch=batch, workers=workers, cold=cold, progress=progress
        )
    )
    means = [
        fmean(_fraction(landscape, campaign[number]) for campaign in found) for number, landscape in enumerate(searched)
    ]
    return StudyResult(sampler_name, budget, seeds, dict(zip(labels(searched), means, strict=True)))


def searchable(landscapes: Sequence[Landscape]) -> list[Landscape]:
    """Those that leave something to search.

    Raises:
        LandscapeError: none does.
    """
    searched = [landscape for landscape in landscapes if len(_feasible(landscape)) > 1]
    if not searched:
        names = ", ".join(landscape.name for landscape in landscapes) or "none given"
        raise LandscapeError(f"nothing to search: no landscape with 2 feasible configs or more ({names})")
    return searched


def campaigns(
    landscapes: Sequence[Landscape],
    sampler_name: str,
    budget: int,
    *,
    seeds: int,
    batch: int = 1,
    workers: int = 1,
    cold: bool = False,
    apart: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Campaign]:
    """Search the landscapes in their order, once a seed, in the order of the seeds.

    The arguments are those of `replay_study`, and it raises what that raises; `apart` keeps from each search what those
    before it found.
    """
    for name, value in {"budget": budget, "seeds": seeds, "batch": batch, "workers": workers}.items():
        if value < 1:
            raise ValueError(f"{name}={value} is below 1")
    registered = registry.sampler(sampler_name)  # an unknown name fails here, not in a worker
    step = -(-seeds // workers)  # the landscapes travel once a chunk, not once a seed
    chunks = [range(start, min(start + step, seeds)) for start in range(0, seeds, step)]
    jobs = [(landscapes, registered, budget, chunk, batch, cold, apart) for chunk in chunks]
    done = 0
    for found in _results(jobs, workers):
        done += len(found)
        progress(done * len(landscapes), seeds * len(landscapes))
        yield from found


_Job = tuple[Sequence[Landscape], type[Sampler], int, range, int, bool, bool]


def _results(jobs: Sequence[_Job], workers: int) -> Iterator[list[Campaign]]:
    """Campaigns, in the order of the seeds."""
    if workers == 1:
        for landscapes, sampler, budget, seeds, batch, cold, apart in jobs:
            yield from (_campaigns(landscapes, sampler, budget, range(s, s + 1), batch, cold, apart) for s in seeds)
        return
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn")) as pool:
        yield from (future.result() for future in [pool.submit(_campaigns, *job) for job in jobs])


def _campaigns(
    landscapes: Sequence[Landscape],
    sampler: type[Sampler],
    budget: int,
    seeds: range,
    batch: int,
    cold: bool,
    apart: bool,
) -> list[Campaign]:
    """One campaign a seed: the later searches learn from those before, unless they are apart."""
    tasks = [RecordedTask(landscape, cold=cold) for landscape in landscapes]
    found = []
    for seed in seeds:
        history: dict[object, list[SourceTask]] = {}
        campaign = []
        for task in tasks:
            earlier = history.setdefault(task.kind, [])
            campaign.append(task.search(sampler, budget, seed=seed, batch=batch, history=earlier))
            if not apart:
                earlier.append(task.as_source(campaign[-1]))
        found.append(campaign)
    return found


def _fraction(landscape: Landscape, trials: Sequence[Trial]) -> float:
    best = min((trial.score for trial in trials if trial.score is not None), default=None)
    return 0.0 if best is None else landscape.optimum_ns / best


def _feasible(landscape: Landscape) -> list[Point]:
    return [point for point in landscape.points.values() if point.status is not Status.INVALID]


def labels(landscapes: Sequence[Landscape]) -> list[str]:
    """Each landscape's name, made unique where several share it: by file, then device and space, then number."""
    names = [landscape.name for landscape in landscapes]
    names = _qualify(names, (file_stem(Path(landscape.source)) for landscape in landscapes))
    facts = (landscape.context for landscape in landscapes)
    names = _qualify(names, ("/".join(fact[k] for k in ("device", "space") if k in fact) for fact in facts))
    return _qualify(names, (str(number) for number in range(1, len(names) + 1)))


def _qualify(names: Sequence[str], prefixes: Iterable[str]) -> list[str]:
    count = Counter(names)
    return [
        f"{prefix}/{name}" if count[name] > 1 and prefix not in ("", name) else name
        for name, prefix in zip(names, prefixes, strict=True)
    ]
