"""The tuner keeps the budget and holds a sampler to its contract."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import pytest

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.errors import ContractError, UsageError
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.scheduling.tuner import Tuner
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.samplers.evolution import EvolutionSampler

CONFIGS = tuple(Config({"x": number}) for number in range(10))
STRANGER = Config({"x": 99})


class InOrder(Sampler):
    """Asks the feasible configs in their order."""

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self.left = list(search.feasible)
        self.told: list[Trial] = []

    def ask(self, count: int) -> list[Config]:
        asked, self.left = self.left[:count], self.left[count:]
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        self.told.extend(trials)


class Several(InOrder):
    """Takes several objectives."""

    multi_objective = True


class Scripted(InOrder):
    """Asks what it is told to, right or wrong."""

    script: Callable[[int], list[Config]]

    def ask(self, count: int) -> list[Config]:
        return self.script(count)


def search(budget: int = 10, objectives: int = 1) -> Search:
    return Search((Param("x", tuple(range(10))),), CONFIGS, (), budget, 0, objectives)


def scored(config: Config) -> Trial:
    """Best at x = 3; x = 0 fails."""
    x = config.integer("x")
    return Trial(config, Status.OK, 1.0 + abs(x - 3)) if x else Trial(config, Status.RUN_FAILED, None)


def tuned(tuner: Tuner) -> list[int]:
    sizes = []
    while not tuner.done:
        batch = tuner.next_batch()
        tuner.tell([scored(config) for config in batch])
        sizes.append(len(batch))
    return sizes


def test_the_budget_is_spent_to_the_last_evaluation_and_no_further():
    sampler = InOrder(search())
    tuner = Tuner(sampler, budget=7, batch=3)
    assert tuned(tuner) == [3, 3, 1]
    assert [trial.config for trial in tuner.trials] == list(CONFIGS[:7])
    assert sampler.told == list(tuner.trials)
    assert tuner.next_batch() == []


def test_a_search_ends_when_every_feasible_config_is_told():
    tuner = Tuner(InOrder(search()), budget=1000, batch=4)
    assert tuned(tuner) == [4, 4, 2]
    assert tuner.done


def test_a_smaller_batch_than_wanted_is_fine():
    sampler = Scripted(search())
    sampler.script = lambda _count: InOrder.ask(sampler, 1)
    assert tuned(Tuner(sampler, budget=3, batch=8)) == [1, 1, 1]


def test_a_budget_of_nothing_is_done_at_once():
    tuner = Tuner(InOrder(search()), budget=0)
    assert tuner.done
    assert (tuner.next_batch(), tuner.best, tuner.trials) == ([], None, ())


def test_the_best_is_the_lowest_score_and_the_earliest_of_equals():
    tuner = Tuner(InOrder(search()), budget=10)
    bests = []
    while not tuner.done:
        tuner.tell([scored(config) for config in tuner.next_batch()])
        bests.append(tuner.best and tuner.best.config.integer("x"))
    assert bests == [None, 1, 2, 3, 3, 3, 3, 3, 3, 3]
    level = Tuner(InOrder(search()), budget=2, batch=2)
    level.tell([Trial(config, Status.OK, 5.0) for config in level.next_batch()])
    assert level.best == Trial(CONFIGS[0], Status.OK, 5.0)


def test_the_trials_are_those_told():
    tuner = Tuner(InOrder(search(budget=2)), 2, 2)
    built, failed = tuner.next_batch()
    told = (
        Trial(built, Status.OK, 5.0),
        Trial(failed, Status.RUN_FAILED, None),
    )
    tuner.tell(told)
    assert tuner.trials == told


def test_a_closed_search_lets_go_of_its_sampler_and_keeps_its_trials():
    sampler = InOrder(search())
    alive, tuner = weakref.ref(sampler), Tuner(sampler, 7, 3)
    tuned(tuner)
    told, best = tuple(sampler.told), tuner.best
    del sampler
    tuner.close()
    assert alive() is None
    assert (tuner.trials, tuner.best, tuner.evaluations) == (told, best, 7)


def test_the_same_trials_give_the_same_batches():
    first, second = Tuner(InOrder(search()), 10, 3), Tuner(InOrder(search()), 10, 3)
    tuned(first)
    tuned(second)
    assert first.trials == second.trials


@pytest.mark.parametrize(
    ("script", "what"),
    [
        (lambda count: list(CONFIGS[: count + 1]), r"asked for 3 configs where 2 were wanted"),
        (lambda _count: [STRANGER], r"asked for Config\(x=99\), which is not feasible"),
        (lambda _count: [CONFIGS[4], CONFIGS[4]], r"asked for Config\(x=4\) again"),
        (lambda _count: [], r"asked for nothing while 10 feasible configs were left"),
    ],
)
def test_a_sampler_that_breaks_its_contract_is_named(script, what):
    sampler = Scripted(search())
    sampler.script = script
    with pytest.raises(ContractError, match=f"^sampler Scripted {what}$"):
        Tuner(sampler, budget=10, batch=2).next_batch()


def test_a_config_asked_in_an_earlier_batch_counts_as_repeated():
    sampler = Scripted(search())
    sampler.script = lambda _count: [CONFIGS[1]]
    tuner = Tuner(sampler, budget=10)
    tuner.tell([scored(config) for config in tuner.next_batch()])
    with pytest.raises(ContractError, match="again"):
        tuner.next_batch()


def test_a_batch_must_be_told_before_the_next_is_asked():
    tuner = Tuner(InOrder(search()), budget=10, batch=2)
    tuner.next_batch()
    assert not tuner.done
    with pytest.raises(RuntimeError, match="2 configs of the last batch have not been told"):
        tuner.next_batch()


@pytest.mark.parametrize("told", [CONFIGS[1::-1], CONFIGS[:1], CONFIGS[:3], (), CONFIGS[5:7]])
def test_only_the_asked_batch_in_its_order_may_be_told(told):
    sampler = InOrder(search())
    tuner = Tuner(sampler, budget=10, batch=2)
    tuner.next_batch()
    with pytest.raises(ValueError, match="in its order"):
        tuner.tell([scored(config) for config in told])
    assert sampler.told == []
    tuner.tell([scored(config) for config in CONFIGS[:2]])
    assert len(tuner.trials) == 2


@pytest.mark.parametrize(("status", "score"), [(Status.OK, None), (Status.RUN_FAILED, 1.0)])
def test_a_score_stands_for_ok_alone(status, score):
    tuner = Tuner(InOrder(search()), budget=10)
    (config,) = tuner.next_batch()
    with pytest.raises(ValueError, match="ok alone has a score"):
        tuner.tell([Trial(config, status, score)])


@pytest.mark.parametrize(("budget", "batch"), [(-1, 1), (5, 0)])
def test_bounds_are_checked(budget, batch):
    with pytest.raises(ValueError, match="below"):
        Tuner(InOrder(search()), budget, batch)


@pytest.mark.parametrize(("sampler", "name"), [(EvolutionSampler, "evolution"), (InOrder, "InOrder")])
def test_several_objectives_need_a_sampler_for_several(sampler, name):
    several = "auto, exhaustive, gp, nsga2, random, tpe"
    said = f"sampler {name} takes one objective, the search has 2; samplers for several: {several}"
    with pytest.raises(UsageError, match=f"^{said}$"):
        Tuner(sampler(search(objectives=2)), budget=10)


def test_of_several_scores_the_first_ranks():
    sampler = Several(search(objectives=2))
    tuner = Tuner(sampler, budget=3, batch=3)
    trials = [
        Trial(CONFIGS[0], Status.OK, 2.0, (2.0, 1.0)),
        Trial(CONFIGS[1], Status.OK, 1.0, (1.0, 2.0)),
        Trial(CONFIGS[2], Status.RUN_FAILED, None),
    ]
    tuner.next_batch()
    tuner.tell(trials)
    assert (tuner.best, sampler.told, list(tuner.trials)) == (trials[1], trials, trials)


@pytest.mark.parametrize(
    ("objectives", "status", "scores", "said"),
    [
        (2, Status.OK, (), "0 scores where 2 are due"),
        (2, Status.OK, (1.0,), "1 scores where 2 are due"),
        (1, Status.OK, (1.0, 2.0), "2 scores where 0 are due"),
        (2, Status.TIMED_OUT, (1.0, 2.0), "2 scores where 0 are due"),
    ],
)
def test_a_success_has_a_score_an_objective(objectives, status, scores, said):
    tuner = Tuner(Several(search(objectives=objectives)), budget=10)
    (config,) = tuner.next_batch()
    with pytest.raises(ValueError, match=said):
        tuner.tell([Trial(config, status, 1.0 if status is Status.OK else None, scores)])
