"""The search of one task within a campaign, with the batch that is being evaluated."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.search import Search, SourceTask
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.tuner import Tuner, check_objectives, created, own_seed
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space
from gemmtune.engine.search.samplers.exhaustive import ExhaustiveSampler

History = Callable[[Task], tuple[SourceTask, ...]]
"""Function from a task to the trials of other tasks that its sampler may learn from."""


def no_history(task: Task) -> tuple[SourceTask, ...]:
    """Return no trials of other tasks."""
    return ()


class TaskSearch(Tuner):
    """The search of one task.

    It begins when its first configs are asked for: a campaign builds and times its first tasks before it has enumerated
    the configs of the last.
    """

    def __init__(
        self,
        task: Task,
        space: Space,
        configs: Callable[[], Iterable[Config]],
        sampler: type[Sampler],
        budget: int,
        *,
        seed: int,
        batch: int,
        objectives: int = 1,
        history: History = no_history,
    ) -> None:
        """Describe the search; nothing is enumerated yet.

        Args:
            task: task to search.
            space: space of the task.
            configs: returns the feasible configs in the order of enumeration; called once, when the search begins.
            sampler: proposes the configs.
            budget: evaluations to spend, at most the number of configs.
            seed: the campaign's seed; every task draws from its own stream of it.
            batch: configs that the sampler is asked for at once.
            objectives: scores per trial.
            history: returns the trials of other tasks; called once, when the search begins, if the sampler learns.

        Raises:
            UsageError: there are several objectives, and the sampler takes one.
        """
        check_objectives(sampler, objectives)
        super().__init__(None, budget, batch)
        made_of = partial(TaskSearch.__init__, task=task, space=space, configs=configs, sampler=sampler, budget=budget)
        self._make = partial(made_of, seed=seed, batch=batch, objectives=objectives)
        self.objectives = objectives
        self.task = task
        self.space = space
        self.sampler = sampler
        self.history = history
        """Function that returns the trials of other tasks, called once at the begin if the sampler learns."""
        self.batch: list[Config] = []
        """Configs that are being evaluated, in the order they were asked."""
        self.results: dict[Config, Measurement] = {}
        """Measurements of the batch so far."""
        self.elsewhere: set[Config] = set()
        """Configs of the batch that another driver on the database evaluates."""
        self.held: Mapping[Config, Measurement] = {}
        """Stored measurements of all that an exhaustive search will ask, so that the database is not read again."""
        self.is_swept = sampler is ExhaustiveSampler
        """Whether a campaign evaluates the configs in their order, and compares the search with no other space's."""
        self.cut_short = False
        """Whether the campaign's time was over before the search ended."""
        self._candidates: Callable[[], Iterable[Config]] | None = configs  # None once the search has begun
        self._seed = seed

    def begin(self) -> None:
        """Make the sampler, once. The first one of a space may take seconds: it imports libraries, and learns."""
        if self._candidates is None:
            return
        from gemmtune.engine.search.task_features import TaskFeatures  # imports NumPy

        configs, self._candidates = tuple(self._candidates()), None
        members = set(configs)
        seeds = () if self.sampler is ExhaustiveSampler else self.space.seeds(self.task)  # it ignores them
        seeds = tuple(config for config in seeds if config in members)
        search = Search(
            params=self.space.params(self.task),
            feasible=configs,
            seeds=seeds,
            first=seeds if self.space.seeds_first and len(seeds) <= self.budget else (),
            budget=self.budget,
            seed=own_seed(self._seed, self.task.key),
            campaign_seed=self._seed,
            objectives=self.objectives,
            features=TaskFeatures(self.space, self.task),
            history=self.history(self.task) if self.sampler.learns else (),
        )
        self.start(created(self.sampler, search))

    def restart(self) -> None:
        """Forget what was asked and told: the search is as fresh as it was made, without its history."""
        self._make(self)

    def next_batch(self) -> list[Config]:
        """Return the configs to evaluate next, as a tuner does; the first call begins the search."""
        self.begin()
        return super().next_batch()

    @property
    def in_work(self) -> int:
        """Number of configs of the batch that this driver's executor has."""
        return len(self.batch) - len(self.results) - len(self.elsewhere)

    def close(self) -> None:
        """Drop everything but the trials. A search that has not begun ends without any."""
        super().close()
        self._candidates, self.history = None, no_history
        self.batch, self.results, self.held, self.elsewhere = [], {}, {}, set()


def exhaustive_search(task: Task, space: Space, configs: Sequence[Config], objectives: int = 1) -> TaskSearch:
    """Return a search that evaluates all of these configs in one batch."""
    count = len(configs)
    return TaskSearch(
        task, space, lambda: configs, ExhaustiveSampler, count, seed=0, batch=max(count, 1), objectives=objectives
    )


def ended_search(search: TaskSearch, digests: Sequence[str], held: Mapping[Config, Measurement]) -> TaskSearch:
    """Return a search that asks what another one asked before it ended.

    Args:
        search: fresh search of the task.
        digests: digests of the configs that were asked, in order.
        held: stored measurements of these configs.
    """
    configs = {config.digest: config for config in held}
    found = exhaustive_search(search.task, search.space, [configs[digest] for digest in digests], search.objectives)
    found.held, found.is_swept = held, search.is_swept
    return found
