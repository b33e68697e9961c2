"""Drive a sampler as a state machine: batches out, trials in, no I/O."""

import hashlib
import math
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import process_time

from gemmtune.engine.io.blame import STOPS, account
from gemmtune.engine.io.numbers import shown
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ContractError, GemmtuneError, UsageError
from gemmtune.engine.records.measurement import Measurement, Status, Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.scheduling.stopping import regret_bound
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.sampler import Sampler


def own_seed(campaign_seed: int, task: str) -> int:
    """Return the seed of one task's own random choices, from 0 to 2³² - 1, for the key of a task."""
    return int.from_bytes(hashlib.sha256(f"{campaign_seed}/{task}".encode()).digest()[:4], "big")


class Tuner:
    """A sampler within a budget, held to its contract.

    `next_batch` and `tell` alternate until `done`. Equal trials lead to equal batches, so a killed search resumes by
    telling the trials that the database holds.
    """

    def __init__(self, sampler: Sampler | None, budget: int, batch: int = 1) -> None:
        """Begin the search.

        Args:
            sampler: a fresh sampler, owned by the tuner from here on; None for one that `start` brings later.
            budget: evaluations to spend, failures included; at least 0.
            batch: configs to ask for at once, at most; at least 1.

        Raises:
            ValueError: the budget or the batch is below its bound.
            UsageError: the search has several objectives, and the sampler takes one; the message names those that
                take several.
            ContractError: the sampler's constructor does not call Sampler's.
        """
        if budget < 0 or batch < 1:
            raise ValueError(f"budget={budget} is below 0 or batch={batch} below 1")
        self.budget = budget
        """Evaluations to spend."""
        self.most_at_once = batch
        """Number of configs that the sampler is asked for at once, at most."""
        self.objectives = 1
        """Number of scores per trial."""
        self.sampler_seconds = array("d")
        """CPU seconds of the sampler until it asked for each config that was told, in order."""
        self.own_seconds = 0.0
        """CPU seconds of the sampler so far."""
        self.feasible = 0
        """Number of feasible configs, estimated for a space too large to enumerate; 0 before the search begins."""
        self.best: Trial | None = None
        """Trial with the lowest score, the earliest of equal ones; None before the first success."""
        self._best_score = math.inf
        self._sampler: Sampler | None = None
        self._unasked: set[Config] = set()
        self._added: set[Config] = set()  # asked, though they were not among those drawn of a large space
        self._pending: list[Config] = []
        # Columns take a quarter of the memory of Trial objects. A campaign keeps hundreds of thousands to its end.
        self._configs: list[Config] = []
        self._statuses: list[Status] = []
        self._scores = array("d")  # one per objective and trial; NaN where a trial has no score
        if sampler is not None:
            self.start(sampler)

    def start(self, sampler: Sampler) -> None:
        """Search with this fresh sampler; the errors are those of the constructor."""
        if not hasattr(sampler, "search"):
            raise ContractError(f"{type(sampler).__qualname__}.__init__ does not call super().__init__(search)")
        check_objectives(type(sampler), sampler.search.objectives)
        self._sampler = sampler
        self.objectives = sampler.search.objectives
        self.feasible = len(sampler.search.feasible)
        self._unasked = set(sampler.search.feasible)

    @property
    def notice(self) -> str:
        """Line of the sampler for a person about how it searches; may be empty."""
        return self._sampler.notice if self._sampler else ""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Trials told so far, in order."""
        return tuple(map(self._trial, range(self.evaluations)))

    @property
    def evaluations(self) -> int:
        """Number of trials told so far."""
        return len(self._configs)

    @property
    def regret_bound(self) -> float:
        """Fraction by which the best found may be slower than the best of the feasible set."""
        scores = (score for score in self._scores[:: self.objectives] if not math.isnan(score))
        return regret_bound(scores, self.evaluations, self.feasible)

    @property
    def done(self) -> bool:
        """Whether the budget or the feasible set is used up and every trial is told."""
        return not self._pending and (self.evaluations >= self.budget or not self._unasked)

    def next_batch(self) -> list[Config]:
        """Return the configs to evaluate next; none only when `done`.

        Raises:
            RuntimeError: the last batch has not been told.
            ContractError: the sampler failed, or asked for more than it may, for a config twice, for something outside
                the feasible set, or for nothing while something was left.
        """
        if self._pending:
            raise RuntimeError(f"{len(self._pending)} configs of the last batch have not been told")
        sampler = self._sampler
        if self.done or sampler is None:
            return []
        count = min(self.most_at_once, self.budget - self.evaluations)
        with self._counting(), _blaming(type(sampler), "ask"):
            asked = sampler.ask(count)
        if not isinstance(asked, Sequence) or not all(isinstance(config, Config) for config in asked):
            raise self._broken(f"returned {shown(asked)} from ask, not a list of configs")
        if len(asked) > count:
            raise self._broken(f"asked for {len(asked)} configs where {count} were wanted")
        if not asked:
            raise self._broken(f"asked for nothing while {len(self._unasked)} feasible configs were left")
        for config in asked:
            if config not in self._unasked and not self._may_add(sampler.search, config):
                again = config in sampler.search.feasible or config in self._added
                raise self._broken(
                    f"asked for {config} again" if again else f"asked for {config}, which is not feasible"
                )
            self._unasked.discard(config)
        self._pending = list(asked)
        return list(asked)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Pass the outcomes of the last batch to the sampler, in the order they were asked.

        Raises:
            ContractError: the sampler failed.
            ValueError: the configs are not those of the last batch in its order, or an outcome does not have one score
                per objective if its status is ok, and none otherwise.
        """
        told = [trial.config for trial in trials]
        if told != self._pending:
            raise ValueError(f"told {told} where {self._pending} was asked; tell the whole batch in its order")
        for trial in trials:
            if (trial.score is None) is (trial.status is Status.OK):
                raise ValueError(
                    f"{trial.config}: score {trial.score} with status {trial.status}; ok alone has a score"
                )
            due = self.objectives if self.objectives > 1 and trial.score is not None else 0
            if len(trial.scores) != due:
                raise ValueError(f"{trial.config}: {len(trial.scores)} scores where {due} are due, one per objective")
        self._pending = []
        self.sampler_seconds.extend([self.own_seconds] * len(trials))
        for trial in trials:
            self._configs.append(trial.config)
            self._statuses.append(trial.status)
            score = math.nan if trial.score is None else trial.score
            self._scores.extend(trial.scores or [score] * self.objectives)
            if trial.score is not None and trial.score < self._best_score:
                self.best, self._best_score = trial, trial.score
        if self._sampler is not None:
            with self._counting(), _blaming(type(self._sampler), "tell"):
                self._sampler.tell(trials)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Count the block's CPU seconds as the sampler's."""
        began = process_time()
        yield
        self.own_seconds += process_time() - began

    def _may_add(self, search: Search, config: Config) -> bool:
        """Return whether a config that is not among those left of the feasible set may be asked for, and note it."""
        if search.may_ask is None or config in search.feasible or config in self._added or not search.may_ask(config):
            return False
        self._added.add(config)
        return True

    def close(self) -> None:
        """Drop the sampler and the configs left to ask. The trials, the best and the counts stay."""
        self._unasked, self._added = set(), set()
        self._pending = []
        self._sampler = None

    def _trial(self, place: int) -> Trial:
        config, status = self._configs[place], self._statuses[place]
        if status is not Status.OK:
            return Trial(config, status, None)
        scores = tuple(self._scores[place * self.objectives : (place + 1) * self.objectives])
        return Trial(config, status, scores[0], scores if self.objectives > 1 else ())

    def _broken(self, what: str) -> ContractError:
        return ContractError(f"sampler {type(self._sampler).__qualname__} {what}")


def created(sampler: type[Sampler], search: Search) -> Sampler:
    """Create a sampler for a search; raises ContractError if its constructor failed."""
    with _blaming(sampler, "__init__"):
        return sampler(search)


@contextmanager
def _blaming(sampler: type[Sampler], method: str) -> Iterator[None]:
    """Name the sampler that fails in the block; one of gemmtune's own, which has a bug, fails as it is."""
    package = sampler.__module__.partition(".")[0]
    try:
        yield
    except (GemmtuneError, *STOPS):
        raise
    except BaseException as error:
        if package == "gemmtune":
            raise
        raise ContractError(
            f"sampler {sampler.__qualname__} failed in {method}: {account(error, {package})}"
        ) from error


def check_objectives(sampler: type[Sampler], objectives: int) -> None:
    """Raise a UsageError for a sampler of one objective where there are several; it names those that take several."""
    if objectives == 1 or sampler.multi_objective:
        return
    several = ", ".join(name for name in registry.names(Sampler) if registry.sampler(name).multi_objective)
    raise UsageError(
        f"sampler {registry.name_of(sampler)} takes one objective, the search has {objectives}; "
        f"samplers for several: {several}"
    )


def trial_of(measurement: Measurement, objective: Objective) -> Trial:
    """Return the config with its status and scores; raises ContractError if the score is no finite number above 0."""
    score = score_of(measurement, objective)
    scores = () if score is None or not objective.parts else objective.scores(measurement)
    return Trial(measurement.config, measurement.status, score, scores)


def score_of(measurement: Measurement, objective: Objective) -> float | None:
    """Return the objective's score, to minimise; None for a measurement that is not ok.

    Raises:
        ContractError: the score is no finite number above 0.
    """
    if measurement.status is not Status.OK:
        return None
    score = objective.score(measurement)
    if not 0 < score < math.inf:
        name = type(objective).__qualname__
        raise ContractError(f"objective {name} gave {measurement.config} the score {score}, not a number above 0")
    return score
