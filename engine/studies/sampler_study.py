"""Measure samplers by replaying recorded landscapes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import SourceTask
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.scheduling.tuner import own_seed
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.store.files import file_stem

Replay = list[tuple[Trial, ...]]
"""Trials of each landscape's search, by one sampler with one seed."""


class TimedReplay(list[tuple[Trial, ...]]):
    """Replay that was searched here, with the sampler's own time."""

    def __init__(self) -> None:
        super().__init__()
        self.sampler_seconds: list[tuple[float, ...]] = []
        """CPU seconds of the sampler until it asked for each config, per landscape."""


SamplerLike = str | type[Sampler]
"""Name of a registered sampler, or a Sampler class."""


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Fractions of the optimum a sampler found: optimum time / best time found, 0 where it found nothing."""

    sampler: str
    """Name of the sampler."""
    budget: int
    """Evaluations per search, failures included."""
    seeds: int
    """Searches per landscape, with seeds 0 to seeds - 1."""
    problems: Mapping[str, float]
    """Mean fraction over the seeds, per landscape name."""

    @property
    def fraction_of_optimum(self) -> float:
        """Mean fraction over problems and seeds."""
        return fmean(self.problems.values())


def study_result(
    searched: Sequence[Landscape], sampler: SamplerLike, budget: int, found: Sequence[Replay]
) -> StudyResult:
    """Return how close to the optimum a sampler got, as a mean over the seeds, at least one, per landscape."""
    means = [
        fmean(_fraction(landscape, replay[number]) for replay in found) for number, landscape in enumerate(searched)
    ]
    return StudyResult(sampler_label(sampler), budget, len(found), dict(zip(labels(searched), means, strict=True)))


def replays(
    landscapes: Sequence[Landscape],
    sampler: SamplerLike,
    budget: int,
    *,
    seeds: int,
    batch: int = 1,
    workers: int = 1,
    cold: bool = False,
    apart: bool = False,
    noise: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Replay]:
    """Search every landscape in order, once per seed; yield one replay per seed.

    Each landscape draws from its own stream of a seed, as a task of a campaign does. Within a replay, a sampler that
    learns is given the earlier searches of the same space, each with the same budget, unless they are kept `apart`.
    `cold` withholds the seeds of the space that a landscape names. With `noise`, a sampler is told single launches; the
    trials of the replay are the recorded ones. The result does not depend on the number of
    `workers`, processes that must be able to import the sampler's class. `progress` is called with the searches done
    and their total.

    Raises:
        UnknownPlugin: no sampler of that name.
    """
    # An unknown name fails here, not in a worker process.
    kind = registry.sampler(sampler) if isinstance(sampler, str) else sampler
    search = partial(_replay, landscapes, kind, budget, batch, cold, apart, noise)
    found = _in_processes(search, seeds, workers) if workers > 1 else map(search, range(seeds))
    for done, replay in enumerate(found, 1):
        progress(done * len(landscapes), seeds * len(landscapes))
        yield replay


def sampler_label(sampler: SamplerLike) -> str:
    """Return the name that reports show for a sampler."""
    return sampler if isinstance(sampler, str) else sampler.__name__


def searchable(landscapes: Sequence[Landscape]) -> list[Landscape]:
    """Return the landscapes with at least two feasible configs.

    Raises:
        LandscapeError: no landscape has two.
    """
    searched = [x for x in landscapes if sum(p.status is not Status.INVALID for p in x.points.values()) > 1]
    if not searched:
        names = ", ".join(landscape.name for landscape in landscapes) or "none given"
        raise LandscapeError(f"nothing to search: no landscape with 2 feasible configs or more ({names})")
    return searched


def labels(landscapes: Sequence[Landscape]) -> list[str]:
    """Return each landscape's name; names that repeat get the file, then device and space, then a number in front."""
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


def _in_processes(search: Callable[[int], Replay], seeds: int, workers: int) -> Iterator[Replay]:
    """Yield the replays in the order of the seeds; one chunk per process, so that the landscapes travel once."""
    with ProcessPoolExecutor(min(seeds, workers), mp_context=get_context("spawn")) as pool:
        yield from pool.map(search, range(seeds), chunksize=-(-seeds // workers))


def _replay(
    landscapes: Sequence[Landscape],
    sampler: type[Sampler],
    budget: int,
    batch: int,
    cold: bool,
    apart: bool,
    noise: bool,
    seed: int,
) -> TimedReplay:
    history: dict[object, list[SourceTask]] = {}
    replay = TimedReplay()
    for task in (LandscapeSearch(landscape, cold=cold, noise=noise) for landscape in landscapes):
        earlier = history.setdefault(task.kind, [])
        own = own_seed(seed, task.key)
        begun = task.begin(sampler, budget, seed=own, campaign_seed=seed, batch=batch, history=earlier)
        tuner = task.finish(begun, own)
        told = tuner.trials
        replay.sampler_seconds.append(tuple(tuner.sampler_seconds))
        replay.append(tuple(task.outcome(trial.config) for trial in told) if noise else told)
        if not apart:
            earlier.append(task.as_source(told))
    return replay


def _fraction(landscape: Landscape, trials: Sequence[Trial]) -> float:
    best = min((trial.score for trial in trials if trial.score is not None), default=None)
    return 0.0 if best is None else landscape.optimum_ns / best
