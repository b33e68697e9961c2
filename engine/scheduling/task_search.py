"""The search of one task within a campaign, with the batch that is being evaluated."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.measurement import Measurement, Trial
from gemmtune.engine.records.search import Search, SourceTask
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.tuner import Tuner, check_objectives, created, own_seed
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space
from gemmtune.engine.search.enumeration import DrawnConfigs, permission
from gemmtune.engine.search.samplers.exhaustive import ExhaustiveSampler

History = Callable[[Task], tuple[SourceTask, ...]]
"""Function from a task to the trials of other tasks that its sampler may learn from."""


def no_history(task: Task) -> tuple[SourceTask, ...]:
    """Return no trials of other tasks."""
    return ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Next batch of a search that runs elsewhere."""

    batch: tuple[Config, ...]
    """Configs to evaluate; none where the search is done."""
    feasible: int
    """Number of feasible configs."""
    notice: str
    """Line of the sampler for a person; may be empty."""


class Elsewhere(Protocol):
    """A search that runs in another process."""

    @property
    def is_thinking(self) -> bool:
        """Whether the next batch is not there yet."""

    def next(self) -> Answer | None:
        """Return the next batch, which is waited for; None if the search must go on here."""

    def tell(self, trials: Sequence[Trial]) -> None:
        """Pass on the outcomes of the batch."""

    def close(self) -> None:
        """Drop the search; nothing is asked of it or told to it afterwards."""


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
        self.terms: Mapping[str, Any] = {
            "task": task,
            "space": space,
            "configs": configs,
            "sampler": sampler,
            "budget": budget,
            "seed": seed,
            "batch": batch,
            "objectives": objectives,
        }
        """Arguments of the constructor but for the history."""
        self.objectives = objectives
        self.task = task
        self.space = space
        self.sampler = sampler
        self.history = history
        """Function that returns the trials of other tasks; once the search has begun, those that it began with."""
        self.begin_elsewhere: Callable[[TaskSearch], Elsewhere | None] | None = None
        """Function that begins the search in another process, or returns None where it cannot; None to run it here."""
        self._elsewhere: Elsewhere | None = None
        self._notice = ""  # of the sampler in another process
        self._batches: list[int] = []  # sizes of the batches that another process asked for
        self.batch: list[Config] = []
        """Configs that are being evaluated, in the order they were asked."""
        self.results: dict[Config, Measurement] = {}
        """Measurements of the batch so far."""
        self.elsewhere: set[Config] = set()
        """Configs of the batch that another driver on the database evaluates."""
        self.held: Mapping[Config, Measurement] = {}
        """Stored measurements of all that an exhaustive search will ask, so that the database is not read again."""
        self.stored: Set[str] | None = None
        """Digests of the configs that the database held when the first batch was asked; None before."""
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
        history = self.history(self.task) if self.sampler.learns else ()
        self.history = lambda task: history  # a search that comes back from another process begins with it again
        if self.begin_elsewhere is not None and (begun := self.begin_elsewhere(self)) is not None:
            self._elsewhere, self._candidates = begun, None
            return
        from gemmtune.engine.search.task_features import TaskFeatures  # imports NumPy

        found, self._candidates = self._candidates(), None
        configs = tuple(found)
        members = set(configs)
        seeds = () if self.sampler is ExhaustiveSampler else self.space.seeds(self.task)  # it ignores them
        seeds = tuple(config for config in seeds if config in members)
        params, is_drawn = self.space.params(self.task), isinstance(found, DrawnConfigs)
        search = Search(
            params=params,
            feasible=configs,
            seeds=seeds,
            first=seeds if self.space.seeds_first and len(seeds) <= self.budget else (),
            budget=self.budget,
            seed=own_seed(self._seed, self.task.key),
            campaign_seed=self._seed,
            objectives=self.objectives,
            features=TaskFeatures(self.space, self.task),
            guess=partial(self.space.guess, self.task),
            history=history,
            may_ask=permission(params, partial(self.space.check, self.task)) if is_drawn else None,
        )
        self.start(created(self.sampler, search))
        if isinstance(found, DrawnConfigs):
            self.feasible = found.size

    def restart(self) -> None:
        """Forget what was asked and told: the search is as fresh as it was made, without its history."""
        self.close()
        begin_elsewhere = self.begin_elsewhere
        TaskSearch.__init__(self, **self.terms)
        self.begin_elsewhere = begin_elsewhere

    @property
    def done(self) -> bool:
        """Whether the budget or the feasible set is used up and every trial is told."""
        if self._elsewhere is None:
            return super().done
        return not self._pending and bool(self._batches) and self.evaluations >= min(self.budget, self.feasible)

    @property
    def notice(self) -> str:
        """Line of the sampler for a person about how it searches; may be empty."""
        return super().notice or self._notice

    @property
    def is_elsewhere(self) -> bool:
        """Whether another process runs the search."""
        return self._elsewhere is not None

    @property
    def is_thinking(self) -> bool:
        """Whether another process works on the next batch."""
        return self._elsewhere is not None and not self.done and self._elsewhere.is_thinking

    def next_batch(self) -> list[Config]:
        """Return the configs to evaluate next, as a tuner does; the first call begins the search."""
        self.begin()
        if self._elsewhere is None or self.done:
            return super().next_batch()
        if (answer := self._elsewhere.next()) is None:
            self._bring_here()
            return super().next_batch()
        self.feasible, self._notice = answer.feasible, answer.notice
        self._pending = list(answer.batch)
        self._batches.append(len(answer.batch))
        return list(answer.batch)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Pass the outcomes of the last batch to the sampler, as a tuner does."""
        super().tell(trials)
        if self._elsewhere is not None and not self.done:
            self._elsewhere.tell(trials)

    def _bring_here(self) -> None:
        """Run the search here from now on, with a sampler that was asked and told all that the lost one was."""
        here, told = TaskSearch(**self.terms, history=self.history), iter(self.trials)
        here.begin()
        for count in self._batches:
            here.next_batch()
            here.tell(list(islice(told, count)))
        self._elsewhere = None
        self._sampler, self._unasked, self.feasible = here._sampler, here._unasked, here.feasible

    @property
    def in_work(self) -> int:
        """Number of configs of the batch that this driver's executor has."""
        return len(self.batch) - len(self.results) - len(self.elsewhere)

    def close(self) -> None:
        """Drop everything but the trials. A search that has not begun ends without any."""
        super().close()
        if self._elsewhere is not None:
            self._elsewhere.close()
            self._elsewhere = None
        self._candidates, self.history = None, no_history
        self.batch, self.results, self.held, self.elsewhere, self.stored = [], {}, {}, set(), None


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


def accept(measurement: Measurement, search: TaskSearch | None, executor: Executor) -> None:
    """Add a measurement to its search's results; raises ContractError if it was not submitted, or came back before."""
    config = measurement.config
    if search is None or config not in search.batch or config in search.results:
        what = "again" if search and config in search.results else "which was not submitted"
        raise ContractError(f"executor {type(executor).__qualname__} returned {measurement.task.key} {config}, {what}")
    search.results[config] = measurement
