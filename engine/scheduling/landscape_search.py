"""Search one recorded landscape with a sampler."""

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property, partial
from time import process_time

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import DeviceError, LandscapeError, UnknownDefinition
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import FeatureFunction, Search, SourceTask, no_features, no_guess
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.tuner import Tuner, created, own_seed
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space
from gemmtune.engine.search.task_features import SM_COUNT, TaskFeatures, problem_features


class LandscapeSearch:
    """Searches of one landscape. Recorded configs are feasible unless they were invalid.

    | the landscape names           | the sampler gets                                          |
    |-------------------------------|-----------------------------------------------------------|
    | a registered space and device | the space's seeds and config features, as in a campaign;   |
    |                               | no seeds where they are in a user's file that was not read |
    | a problem and a known device  | the problem's features and the number of SMs              |
    | a problem alone               | the problem's features                                    |
    | neither                       | the parameters                                            |
    """

    def __init__(self, landscape: Landscape, *, cold: bool = False, noise: bool = False) -> None:
        """Look up the features of the landscape's task.

        Args:
            landscape: the landscape.
            cold: keep the space's seeds from the sampler.
            noise: tell the sampler one recorded launch of a config, drawn per search, in place of its recorded time.

        Raises:
            LandscapeError: noise is wanted, and a config that is ok has no recorded launches.
            DeviceError: the landscape names a registered space, and a device that the catalogue does not know.
        """
        self.landscape = landscape
        self._task, self._cold, self._noise = _task(landscape), cold, noise
        if noise and any(p.time_ns is not None and not p.samples_ns for p in landscape.points.values()):
            raise LandscapeError(f"{landscape.name} has no launches of each config to draw noise from: times_us")
        self.features: FeatureFunction = no_features
        if (task := self._task) is not None:
            self.features = TaskFeatures(registry.space(task.space), task)
        elif landscape.problem is not None:
            constants = {**problem_features(landscape.problem), **_sm_count(landscape)}
            self.features = lambda config: constants

    @cached_property
    def feasible(self) -> tuple[Config, ...]:
        """Recorded configs that were not invalid, in file order."""
        return tuple(trial.config for trial in self._trials())

    @cached_property
    def seeds(self) -> tuple[Config, ...]:
        """Seeds of the space that were recorded."""
        if self._task is None or self._cold:
            return ()
        return _recorded_seeds(registry.space(self._task.space), self._task, set(self.feasible))

    @property
    def key(self) -> str:
        """Key of the task in a campaign; where the landscape names none, its device, space and name."""
        if self._task is not None:
            return self._task.key
        device, space = (self.landscape.context.get(fact, "") for fact in ("device", "space"))
        return f"{device}/{space}/{self.landscape.name}"

    @property
    def kind(self) -> tuple[str | None, str, tuple[str, ...]]:
        """Key that is equal for tasks that can learn from each other: space, kind of workload, and parameters."""
        names = sorted(param.name for param in self.landscape.params)
        problem = self.landscape.problem
        return self.landscape.context.get("space"), problem.learns_from if problem else "", tuple(names)

    def begin(
        self,
        sampler: type[Sampler],
        budget: int,
        *,
        seed: int,
        campaign_seed: int | None = None,
        batch: int = 1,
        history: Sequence[SourceTask] = (),
    ) -> Tuner:
        """Return a search that has asked for nothing yet; `history` reaches a sampler that learns.

        `seed` is the search's own, and the campaign's unless that is given.
        """
        search = Search(
            params=self.landscape.params,
            feasible=self.feasible,
            seeds=self.seeds,
            budget=budget,
            seed=seed,
            campaign_seed=seed if campaign_seed is None else campaign_seed,
            features=self.features,
            guess=no_guess if self._task is None else partial(registry.space(self._task.space).guess, self._task),
            history=tuple(history) if sampler.learns else (),
        )
        began = process_time()
        tuner = Tuner(created(sampler, search), budget, batch)
        tuner.own_seconds = process_time() - began
        return tuner

    def search(
        self,
        sampler: type[Sampler],
        budget: int,
        *,
        seed: int,
        campaign_seed: int | None = None,
        batch: int = 1,
        history: Sequence[SourceTask] = (),
    ) -> tuple[Trial, ...]:
        """Run a search and return its trials, in the order asked; see `begin`."""
        tuner = self.begin(sampler, budget, seed=seed, campaign_seed=campaign_seed, batch=batch, history=history)
        return self.finish(tuner, seed).trials

    def finish(self, tuner: Tuner, seed: int) -> Tuner:
        """Run a search of this seed to its end, and return it."""
        while not tuner.done:
            tuner.tell([self._told(config, seed) for config in tuner.next_batch()])
        return tuner

    def outcome(self, config: Config) -> Trial:
        """Return the recorded outcome of a config, scored by its time in nanoseconds."""
        point = self.landscape.points[config]
        return Trial(config, point.status, point.time_ns)

    def _told(self, config: Config, seed: int) -> Trial:
        outcome, samples_ns = self.outcome(config), self.landscape.points[config].samples_ns
        if not self._noise or outcome.score is None:
            return outcome
        return replace(outcome, score=samples_ns[own_seed(seed, config.digest) % len(samples_ns)])

    def as_source(self, trials: Sequence[Trial] | None = None) -> SourceTask:
        """Return trials of this landscape, by default all that it has, as history for another search."""
        return SourceTask(tuple(self._trials() if trials is None else trials), self.features)

    def _trials(self) -> Iterator[Trial]:
        points = self.landscape.points.values()
        return (Trial(p.config, p.status, p.time_ns) for p in points if p.status is not Status.INVALID)


def _task(landscape: Landscape) -> Task | None:
    """Return the landscape's task; None where it names no registered space, or no problem or device."""
    name, sku = landscape.context.get("space"), landscape.context.get("device")
    if landscape.problem is None or name not in registry.names(Space) or sku is None:
        return None
    return Task(landscape.problem, catalogue.device(sku), name)


def _recorded_seeds(space: Space, task: Task, recorded: Set[Config]) -> tuple[Config, ...]:
    """Return the space's seeds that were recorded; none where the user's code that has them was not read."""
    try:
        return tuple(config for config in space.seeds(task) if config in recorded)
    except UnknownDefinition:
        return ()


def _sm_count(landscape: Landscape) -> Mapping[str, float]:
    """Return the device's number of SMs as a feature; nothing where the device is not known."""
    try:
        return {SM_COUNT: math.log2(catalogue.device(landscape.context.get("device", "")).sm_count)}
    except DeviceError:
        return {}
