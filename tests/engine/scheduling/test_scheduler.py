"""The scheduler keeps the executor fed and the database first, whatever order results come in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import pytest

from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status, Trial
from gemmtune.engine.records.search import SourceTask
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.scheduling import scheduler
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.scheduling.scheduler import Scheduler
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.scheduling.task_search import Answer, TaskSearch, ended_search
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.executor import Executor, Load
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space
from gemmtune.engine.statistics import median_interval
from gemmtune.engine.store.database import Database
from gemmtune.engine.tables.ranking import rank
from gemmtune.engine.tables.rows import build_table
from gemmtune.engine.tables.table_file import table_text

H200 = Device("H200", "NVIDIA H200", "sm_90a", 132, 232448, 233472, 60 << 20, 65536, 2048, 1024, 32, 1980, 4800)
pytestmark = pytest.mark.slow(8)

TASKS = tuple(Task(Problem(m, 64, 64), H200, "toy") for m in (1, 2, 3, 4, 5, 6))
MANY = tuple(Task(Problem(m, 64, 64), H200, "toy") for m in range(1, 21))
"""More than one worker has in work."""
TOOLS = Toolchain((("toy", "1.0"),))
CONFIGS = tuple(Config({"x": x, "y": y}) for x in range(6) for y in range(5))
EVOLUTION: Any = registry.sampler("evolution")
RANDOM = registry.sampler("random")  # takes a sixth of evolution's time
UNLIMITED = Limits()


class Toy(Space):
    """Thirty configs; the first of the seeds is feasible."""

    def params(self, task):
        return (Param("x", tuple(range(6))), Param("y", tuple(range(5))))

    def check(self, task, config):
        return Verdict.yes()

    def seeds(self, task):
        return (CONFIGS[17], Config({"x": 99, "y": 0}))

    def toolchain(self):
        return TOOLS

    def build(self, task, config, folder):
        raise NotImplementedError

    def load(self, artifact, task):
        raise NotImplementedError


class InOrder(Sampler):
    """Proposes the configs in their order."""

    def ask(self, count):
        asked = self.search.feasible[self.told : self.told + count]
        self.told += count
        return list(asked)

    def tell(self, trials):
        pass

    told = 0


class Median(Objective):
    protocol = "fake"
    unit = "ns"

    def score(self, measurement):
        return median_interval(measurement.samples_ns)[0]


def outcome(task: Task, config: Config) -> Measurement:
    """Best at (4, 3); x = 0 fails. Kernels of the space `slow` take twice as long, those of `close` 4 % longer."""
    x, y = config.integer("x"), config.integer("y")
    good = x > 0
    time_ns = 1000.0 * task.problem.size + 100 * abs(x - 4) + 10 * abs(y - 3)
    time_ns *= {"toy": 1.0, "slow": 2.0, "close": 1.04}[task.space]
    return Measurement(
        task=task,
        config=config,
        status=Status.OK if good else Status.RUN_FAILED,
        evidence=Evidence.MEASURED,
        protocol="fake",
        toolchain=TOOLS,
        worker="scripted",
        created_at="2026-11-21T00:00:00+00:00",
        reason="" if good else "x = 0 crashes",
        samples_ns=(time_ns,) * 9 if good else (),
        estimate=Estimate(time_ns, time_ns, time_ns) if good else None,
    )


class ScriptedExecutor(Executor):
    """Finishes in an order of its own, some at a time, and sometimes nothing; holds no finals."""

    evidence = Evidence.MEASURED
    holds_finals = False
    parallel = 1

    def __init__(self, seed: int | None = None, at_a_time: int = 3) -> None:
        self.random = None if seed is None else random.Random(seed)
        self.at_a_time = at_a_time
        self.submitted: list[tuple[Task, Config]] = []
        self.running: list[tuple[Task, Config]] = []
        self.waits = 0

    def toolchain(self, task):
        return TOOLS

    def protocol(self, task):
        return "fake"

    def submit(self, task, config):
        self.submitted.append((task, config))
        self.running.append((task, config))

    def collect(self, timeout_seconds):
        assert timeout_seconds >= 0
        if self.random is None:
            finished, self.running = self.running[: self.at_a_time], self.running[self.at_a_time :]
        else:
            if self.random.random() < 0.2:
                self.waits += timeout_seconds > 0
                return []
            self.random.shuffle(self.running)
            count = self.random.randint(1, self.at_a_time)
            finished, self.running = self.running[:count], self.running[count:]
        return [outcome(task, config) for task, config in finished]

    def hold_final(self, candidates):
        raise NotImplementedError

    def load(self):
        return None

    def close(self):
        self.running = []


class Listener(Callback):
    """Keeps every event."""

    def __init__(self) -> None:
        self.searches: list[TaskSearch] = []
        self.heard: list[tuple[Measurement, float | None, bool]] = []
        self.notices: list[str] = []
        self.looks: list[tuple[Load | None, float | None]] = []
        self.ends: list[tuple[Task, str]] = []

    def on_begin(self, searches):
        self.searches.extend(searches)

    def on_measurement(self, measurement, score, *, known):
        self.heard.append((measurement, score, known))

    def on_search_end(self, search, reason):
        self.ends.append((search.task, reason))

    def on_final(self, final):
        raise AssertionError(final)

    def on_notice(self, line):
        self.notices.append(line)

    def on_load(self, load, seconds_left):
        self.looks.append((load, seconds_left))


@pytest.fixture
def database(tmp_path):
    with Database.open(tmp_path / "m.db") as opened:
        yield opened


def searches(tasks: Sequence[Task] = TASKS, sampler: type[Sampler] = RANDOM, budget=15, seed=0, batch=4):
    budget = min(budget, len(CONFIGS))
    return [TaskSearch(task, Toy(), lambda: CONFIGS, sampler, budget, seed=seed, batch=batch) for task in tasks]


def scheduled(
    database: Database, executor, found: list[TaskSearch] | None = None, limits: Limits = UNLIMITED, **more
) -> tuple[list[TaskSearch], Listener]:
    found, listener = found or searches(), Listener()
    Scheduler(found, executor, database, Median(), [listener], limits=limits, **more).run()
    return found, listener


def trials(found: Sequence[TaskSearch]) -> list[tuple[Trial, ...]]:
    return [search.trials for search in found]


def test_each_task_draws_from_its_own_stream_of_the_seed():
    first, second, again = (searches(TASKS[at : at + 1], EVOLUTION, seed=1) for at in (0, 1, 0))
    asked = [search[0].next_batch() for search in (first, second, again)]
    assert asked[0] == asked[2] != asked[1]
    assert asked[0] != searches(TASKS[:1], EVOLUTION, seed=2)[0].next_batch()
    assert asked[0][0] == CONFIGS[17]  # the feasible seed; the other never reaches a sampler


def test_a_budget_is_at_most_what_is_feasible():
    assert [search.budget for search in searches(budget=7)] == [7] * 6
    assert [search.budget for search in searches(budget=10**9)] == [30] * 6


def test_the_first_sampler_of_each_space_learns_before_the_executor_is_waited_for(database):
    slow, collected, made = [Task(task.problem, H200, "slow") for task in TASKS[:3]], [], []

    class Learner(InOrder):
        def __init__(self, search):
            super().__init__(search)
            made.append((len(executor.submitted) > 0, len(collected)))

    class Executor(ScriptedExecutor):
        def collect(self, timeout_seconds):
            collected.append(timeout_seconds)
            return super().collect(timeout_seconds)

    executor = Executor()
    scheduled(database, executor, searches([*TASKS[:2], *slow], sampler=Learner))
    assert made[:2] == [(False, 0), (True, 0)]
    assert all(collects for _, collects in made[2:])


@pytest.mark.parametrize(("seed", "sampler"), [(0, EVOLUTION), (1, RANDOM), (2, RANDOM)])
def test_the_order_of_completion_changes_nothing(tmp_path, seed, sampler):
    tables = []
    for number, executor in enumerate(
        (ScriptedExecutor(at_a_time=10**6), ScriptedExecutor(seed, 1), ScriptedExecutor(seed, 7))
    ):
        with Database.open(tmp_path / f"{number}.db") as database:
            found, _ = scheduled(database, executor, searches(sampler=sampler))
            table = build_table(H200, "latency", rank(H200, Median(), database.measurements()))
        tables.append((trials(found), table_text(table)))
    assert tables[0] == tables[1] == tables[2]


def test_samplers_are_told_each_batch_in_the_order_they_asked(database):
    witnesses = {}

    class Witness(EVOLUTION):
        def __init__(self, search):
            super().__init__(search)
            self.asked, self.told = [], []
            witnesses[search.seed] = self

        def ask(self, count):
            self.asked.extend(batch := super().ask(count))
            return batch

        def tell(self, told):
            self.told.extend(trial.config for trial in told)
            assert self.told == self.asked
            known = database.known(task_of[self.search.seed], "fake", Evidence.MEASURED, TOOLS)
            assert set(self.told) <= set(known)  # what a sampler hears is in the database already
            super().tell(told)

    found = searches(sampler=Witness)
    for search in found:
        search.begin()
    task_of = {search._sampler.search.seed: search.task for search in found}
    scheduled(database, ScriptedExecutor(3), found)
    assert [len(witnesses[seed].told) for seed in task_of] == [15] * 6


def test_failures_reach_the_sampler_the_budget_and_the_database(database):
    (found,), listener = scheduled(database, ScriptedExecutor(), searches(TASKS[:1], budget=30))
    failed = [trial for trial in found.trials if trial.status is Status.RUN_FAILED]
    assert len(found.trials) == 30
    assert {trial.config["x"] for trial in failed} == {0}
    assert len(failed) == 5
    assert all(trial.score is None for trial in failed)
    assert sum(m.reason == "x = 0 crashes" for m in database.measurements()) == 5
    assert sum(score is None for _, score, _ in listener.heard) == 5
    assert found.best.config == Config({"x": 4, "y": 3})


def test_a_few_tasks_are_in_work_at_once(database):
    executor = ScriptedExecutor(at_a_time=1)
    most = 0
    real = executor.collect

    def collect(timeout_seconds):
        nonlocal most
        most = max(most, len({task for task, _ in executor.running}))
        return real(timeout_seconds)

    executor.collect = collect
    scheduled(database, executor, searches(MANY, batch=8))
    assert 1 < most < len(MANY)
    assert {task for task, _ in executor.submitted} == set(MANY)


def order(executor: ScriptedExecutor) -> list[Task]:
    """The tasks in the order of their batches."""
    return [
        task
        for place, (task, _) in enumerate(executor.submitted)
        if not place or executor.submitted[place - 1][0] != task
    ]


def test_tasks_of_one_weight_take_turns(database, monkeypatch):
    monkeypatch.setattr(scheduler, "_CONFIGS_PER_WORKER", 64)
    executor = ScriptedExecutor(at_a_time=1)
    scheduled(database, executor, searches(MANY, batch=8, budget=24))
    turns = order(executor)
    assert turns[:20] == list(MANY)
    assert set(turns[20:40]) == set(turns[40:60]) == set(MANY)


def test_a_heavier_task_gets_its_batches_earlier(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "_CONFIGS_PER_WORKER", 64)
    thirds = []
    for number, weight in enumerate((1.0, 1e6)):
        first = Task(Problem(1, 64, 64, weight=weight), H200, "toy")
        executor = ScriptedExecutor(at_a_time=1)
        with Database.open(tmp_path / f"{number}.db") as database:
            scheduled(database, executor, searches((first, *MANY[1:]), batch=8, budget=24))
        assert order(executor)[:20] == [first, *MANY[1:]]
        thirds.append([place for place, task in enumerate(order(executor)) if task == first][2])
    assert thirds[0] >= 40 > thirds[1]


def test_the_executor_is_collected_between_two_asks(database):
    """Samplers take their time, and a builder that is done must not wait for all of them."""
    executor = ScriptedExecutor(at_a_time=2)
    asked, looks = [], []

    def configs():
        asked.append(len(looks))
        return CONFIGS

    found = [TaskSearch(task, Toy(), configs, EVOLUTION, 12, seed=0, batch=4) for task in TASKS]
    real = executor.collect
    executor.collect = lambda timeout: looks.append(timeout) or real(timeout)
    scheduled(database, executor, found)
    assert len(set(asked)) == len(TASKS)
    assert set(looks[: max(asked)]) == {0.0}  # it goes on at once
    assert looks[-1] > 0.0


class Ticking:
    """A clock that moves with each look at it."""

    def __init__(self, step: float) -> None:
        self.at, self.step = 0.0, step

    def __call__(self) -> float:
        self.at += self.step
        return self.at


@pytest.mark.parametrize("limits", [Limits(seconds=20), Limits(gpu_seconds=20)])
def test_when_time_is_over_submitted_configs_finish_and_every_search_ends(database, limits):
    executor = ScriptedExecutor(at_a_time=2)
    found, listener = scheduled(database, executor, searches(batch=8, budget=30), limits, now=Ticking(1.0))
    assert 0 < len(executor.submitted) < 6 * 30
    assert sorted(task.key for task, _ in listener.ends) == sorted(task.key for task in TASKS)
    assert "time is over" in {why for _, why in listener.ends}
    assert sum(len(search.trials) for search in found) == len(executor.submitted) == len(listener.heard)
    again = ScriptedExecutor()
    scheduled(database, again, searches(batch=8, budget=30))
    assert len(again.submitted) == 6 * 30 - len(executor.submitted)  # the rest, and nothing twice


def drawing(drawn: list[Task]) -> list[TaskSearch]:
    """Searches that note when the feasible configs of a task are enumerated."""

    def configs(task):
        drawn.append(task)
        return CONFIGS

    return [TaskSearch(task, Toy(), partial(configs, task), EVOLUTION, 15, seed=0, batch=4) for task in MANY]


def test_the_first_job_is_submitted_before_later_tasks_are_enumerated(database):
    drawn, before = [], []

    class Noting(ScriptedExecutor):
        def submit(self, task, config):
            before.append(list(drawn))
            super().submit(task, config)

    found = drawing(drawn)
    scheduled(database, Noting(), found)
    assert before[0] == [MANY[0]]
    assert drawn == list(MANY)


def test_a_search_that_never_begins_enumerates_nothing(database):
    drawn = []
    found, listener = scheduled(database, ScriptedExecutor(), drawing(drawn), Limits(seconds=2), now=Ticking(1.0))
    begun = [search.task for search in found if search.trials]
    assert drawn == begun != list(MANY)
    assert len(listener.ends) == 20


def test_an_executor_of_many_gpus_spends_gpu_seconds_as_fast(tmp_path):
    spent = []
    for parallel in (1, 4):
        executor = ScriptedExecutor(at_a_time=2)
        executor.parallel = parallel
        with Database.open(tmp_path / f"{parallel}.db") as database:
            limits = Limits(gpu_seconds=40)
            scheduled(database, executor, searches(batch=2, budget=30), limits, now=Ticking(1.0))
        spent.append(len(executor.submitted))
    assert spent[1] < spent[0]


def test_a_task_is_done_when_its_regret_bound_is_under_the_target(database):
    wanted = Limits(regret=0.05)
    found, listener = scheduled(database, ScriptedExecutor(2), searches(batch=8, budget=30), wanted)
    stopped = [search for search in found if len(search.trials) < 30]
    assert stopped
    assert all(search.regret_bound <= 0.05 for search in stopped)
    ends = dict(listener.ends)
    for search in found:
        assert ends[search.task] == f"regret at most {search.regret_bound:.2%}"
    best = [search.best.score / (1000.0 * search.task.problem.size) - 1 for search in stopped]
    assert all(regret <= search.regret_bound for regret, search in zip(best, stopped, strict=True))


def test_with_a_regret_target_the_order_of_completion_changes_nothing(tmp_path):
    ends = []
    for number, executor in enumerate(
        (ScriptedExecutor(at_a_time=10**6), ScriptedExecutor(7, 1), ScriptedExecutor(8, 7))
    ):
        with Database.open(tmp_path / f"{number}.db") as database:
            found, _ = scheduled(database, executor, searches(batch=8, budget=30), Limits(regret=0.05))
        ends.append(trials(found))
    assert ends[0] == ends[1] == ends[2]


def test_a_search_says_why_it_ended(database):
    _, listener = scheduled(
        database, ScriptedExecutor(), [*searches(TASKS[:1], budget=7), *searches(TASKS[1:2], budget=30)]
    )
    assert dict(listener.ends) == {TASKS[0]: "budget spent", TASKS[1]: "all evaluated"}


def test_a_callback_is_given_every_measurement(database):
    executor = ScriptedExecutor(11)
    found, listener = scheduled(database, executor)
    assert listener.searches == found
    assert len(listener.heard) == sum(search.budget for search in found) == 90
    assert {(m.task, m.config) for m, _, _ in listener.heard} == set(executor.submitted)
    assert all(score == (Median().score(m) if m.status is Status.OK else None) for m, score, _ in listener.heard)
    assert not any(known for _, _, known in listener.heard)
    assert len(listener.looks) >= executor.waits > 0


def test_a_callback_is_given_the_load_and_the_time_left(tmp_path):
    load = Load(queued=3, building=2, timing=1, workers={"gpu0": True})

    class Says(ScriptedExecutor):
        def load(self):
            return load

    with Database.open(tmp_path / "silent.db") as database:
        _, listener = scheduled(database, ScriptedExecutor(), searches(TASKS[:1]))
    assert dict(listener.looks) == {None: None}
    with Database.open(tmp_path / "says.db") as database:
        _, listener = scheduled(database, Says(), searches(TASKS[:1]), Limits(seconds=100), now=Ticking(1.0))
    assert all(heard == load for heard, _ in listener.looks)
    left = [seconds for _, seconds in listener.looks]
    assert left == sorted(left, reverse=True)
    assert 0 < left[-1] < left[0] < 100


def test_a_stored_measurement_is_not_submitted_again(database):
    found, _ = scheduled(database, ScriptedExecutor(5))
    executor = ScriptedExecutor(6)
    again, listener = scheduled(database, executor)
    assert executor.submitted == []
    assert trials(again) == trials(found)
    assert len(listener.heard) == 90
    assert all(known for _, _, known in listener.heard)


def test_a_campaign_killed_anywhere_continues_to_the_same_end(tmp_path):
    class CutError(Exception):
        pass

    class Dies(ScriptedExecutor):
        limit = 0

        def collect(self, timeout_seconds):
            if len(self.submitted) > self.limit:
                raise CutError
            return super().collect(timeout_seconds)

    with Database.open(tmp_path / "whole.db") as database:
        expected = trials(scheduled(database, ScriptedExecutor())[0])
    with Database.open(tmp_path / "cut.db") as database:
        submitted = []
        for limit in (10, 25, 26, 40):
            dying = Dies(limit, at_a_time=2)
            dying.limit = limit
            with pytest.raises(CutError):
                scheduled(database, dying)
            stored = {(m.task, m.config) for m in database.measurements()}
            submitted += [pair for pair in dying.submitted if pair in stored]
        last = ScriptedExecutor(1)
        assert trials(scheduled(database, last)[0]) == expected
        measured = submitted + last.submitted
    assert len(measured) == len(set(measured)) == 90


def test_a_replayed_campaign_is_the_same_as_the_landscape_says(database):
    points = {}
    for config in CONFIGS:
        m = outcome(TASKS[0], config)
        points[config] = Point(config, m.status, m.samples_ns[0] if m.samples_ns else None, reason=m.reason)
    context = {"space": "toy", "device": "H200", "protocol": "fake", "toolchain": TOOLS.text}
    landscape = Landscape("p", "toy.csv", Toy().params(TASKS[0]), points, TASKS[0].problem, context)
    replayed, _ = scheduled(database, ReplayExecutor([landscape]), searches(TASKS[:1]))
    scripted, _ = scheduled(database, ScriptedExecutor(), searches(TASKS[:1]))
    assert trials(replayed) == trials(scripted)
    assert {m.evidence for m in database.measurements()} == {Evidence.REPLAYED, Evidence.MEASURED}


def test_another_toolchain_or_protocol_is_measured_anew(database):
    scheduled(database, ScriptedExecutor())
    newer = ScriptedExecutor()
    newer.toolchain = lambda task: Toolchain((("toy", "2.0"),))
    scheduled(database, newer)
    assert len(newer.submitted) == 90


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (lambda task, config: [outcome(TASKS[5], config)], r"H200/toy/6x64x64:bf16:nt .*, which was not submitted"),
        (lambda task, config: [outcome(task, Config({"x": 77, "y": 0}))], r"x=77, y=0.*, which was not submitted"),
        (lambda task, config: [outcome(task, config)] * 2, r"executor .*Broken returned .*, again"),
    ],
)
def test_an_executor_that_breaks_its_contract_is_named(database, returned, said):
    class Broken(ScriptedExecutor):
        def collect(self, timeout_seconds):
            return returned(*self.running[0])

    with pytest.raises(ContractError, match=said):
        scheduled(database, Broken(), searches(TASKS[:1]))


def test_a_sampler_that_breaks_its_contract_is_named(database):
    class Stuck(EVOLUTION):
        def ask(self, count):
            return [CONFIGS[0]]

    with pytest.raises(ContractError, match=r"sampler .*Stuck asked for Config\(x=0, y=0\) again"):
        scheduled(database, ScriptedExecutor(), searches(TASKS[:1], Stuck))


@pytest.mark.parametrize("score", [0.0, -1.0, float("inf"), float("nan")])
def test_an_objective_that_breaks_its_contract_is_named(database, score):
    class Broken(Median):
        def score(self, measurement):
            return score

    with pytest.raises(ContractError, match=rf"objective .*Broken gave .* the score {score}"):
        Scheduler(searches(TASKS[:1]), ScriptedExecutor(), database, Broken(), ()).run()


SPACES = tuple(Task(Problem(m, 64, 64), H200, space) for m in (1, 2) for space in ("slow", "toy", "close"))


def counts(found: Sequence[TaskSearch]) -> list[int]:
    return [search.evaluations for search in found]


@pytest.mark.parametrize("seed", range(3))
def test_a_space_that_stays_behind_ends_after_eight_whatever_comes_first(tmp_path, seed):
    found_trials = []
    for number, executor in enumerate((ScriptedExecutor(), ScriptedExecutor(seed, 1), ScriptedExecutor(seed, 40))):
        with Database.open(tmp_path / f"{number}.db") as database:
            found, listener = scheduled(database, executor, searches(SPACES, budget=30, batch=4))
            again, _ = scheduled(database, ScriptedExecutor(), searches(SPACES, budget=30, batch=4))
        assert counts(found) == [8, 30, 30] * 2
        assert trials(again) == trials(found)  # from the database alone
        reasons = {reason for task, reason in listener.ends if task.space == "slow"}
        assert all("behind toy after 8 evaluations" in reason for reason in reasons)
        found_trials.append(trials(found))
    assert found_trials[0] == found_trials[1] == found_trials[2]


def test_a_space_is_compared_with_one_that_has_ended_and_a_sweep_goes_on(database):
    few = [config for config in CONFIGS if config["x"] == 1]
    slow = TaskSearch(SPACES[0], Toy(), lambda: CONFIGS[5:], InOrder, 20, seed=0, batch=4)
    ended = TaskSearch(SPACES[1], Toy(), lambda: few, InOrder, 5, seed=0, batch=4)
    sweep = TaskSearch(SPACES[3], Toy(), lambda: CONFIGS, registry.sampler("exhaustive"), 30, seed=0, batch=4)
    scheduled(database, ScriptedExecutor(), [slow, ended, sweep])
    assert counts([slow, ended, sweep]) == [8, 5, 30]


def test_a_search_that_ended_before_is_compared_with_as_if_it_ran_now(tmp_path):
    with Database.open(tmp_path / "m.db") as database:
        found, _ = scheduled(database, ScriptedExecutor(), searches(SPACES[:2], budget=30, batch=4))
        slow, toy = searches(SPACES[:2], budget=30, batch=4)
        ended = repeated(database, toy, found[1])
        scheduled(database, ScriptedExecutor(), [slow, ended])
    assert counts([slow, ended]) == counts(found) == [8, 30]


def test_no_search_is_compared_with_a_baseline_that_ended_before(tmp_path):
    def begun():
        sampler = registry.sampler("exhaustive")
        baseline = TaskSearch(SPACES[1], Toy(), lambda: CONFIGS, sampler, 30, seed=0, batch=30)
        return [*searches(SPACES[:1], budget=30, batch=4), baseline]

    with Database.open(tmp_path / "m.db") as database:
        found, _ = scheduled(database, ScriptedExecutor(), begun())
        slow, baseline = begun()
        scheduled(database, ScriptedExecutor(), [slow, repeated(database, baseline, found[1])])
    assert counts([slow]) == counts(found[:1]) == [30]


def repeated(database: Database, fresh: TaskSearch, found: TaskSearch) -> TaskSearch:
    """Return a search that asks what one asked that the database holds."""
    held = database.known(fresh.task, "fake", Evidence.MEASURED, TOOLS)
    return ended_search(fresh, [trial.config.digest for trial in found.trials], held)


def test_searches_that_wait_for_one_another_end_with_the_time(database):
    clock = iter(range(10**6))
    found = searches(SPACES, budget=30, batch=4)
    _, listener = scheduled(database, ScriptedExecutor(at_a_time=1), found, Limits(seconds=60), now=lambda: next(clock))
    assert len(listener.ends) == len(SPACES)
    assert all(search.cut_short for search in found if search.evaluations not in (8, 30))


class Elsewhere:
    """A search that is looked at a few times before its next batch is there."""

    def __init__(self, search: TaskSearch) -> None:
        self.search, self.looks = TaskSearch(**search.terms), 0

    @property
    def is_thinking(self) -> bool:
        self.looks += 1
        return self.looks < 4

    def next(self) -> Answer:
        return Answer(tuple(self.search.next_batch()), self.search.feasible, "")

    def tell(self, trials) -> None:
        self.looks = 0
        self.search.tell(trials)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("limit", [None, 30])
def test_searches_elsewhere_are_waited_for_until_the_time_is_over(database, limit):
    there, clock = searches(), iter(range(10**4))
    for search in there:
        search.begin_elsewhere = Elsewhere
    scheduled(database, ScriptedExecutor(), there, Limits(seconds=limit), now=lambda: next(clock) / 10)
    assert any(search.cut_short for search in there) is (limit is not None)
    assert not any(search.is_elsewhere for search in there)
    if limit is None:
        assert trials(there) == trials(scheduled(database, ScriptedExecutor())[0])


class Slow(Elsewhere):
    """A search whose first batch is never there."""

    begun: ClassVar[list[TaskSearch]] = []

    def __init__(self, search: TaskSearch) -> None:
        super().__init__(search)
        self.begun.append(search)

    @property
    def is_thinking(self) -> bool:
        return True


@pytest.mark.parametrize("limits", [Limits(seconds=30), Limits(gpu_seconds=30)])
def test_every_search_begins_at_once_where_time_may_be_over_first(database, monkeypatch, limits):
    monkeypatch.setattr(scheduler, "_MOST_THINKING", 1)
    monkeypatch.setattr(Slow, "begun", [])
    there, clock = searches(), iter(range(10**4))
    for search in there:
        search.begin_elsewhere = Slow
    scheduled(database, ScriptedExecutor(), there, limits, now=lambda: next(clock) / 10)
    assert len(Slow.begun) == len(there) > 1


class Interrupted(ScriptedExecutor):
    """Finishes results on two GPUs, and is interrupted while some more are gathered."""

    parallel = 2
    finished = 0

    def collect(self, timeout_seconds):
        if timeout_seconds == scheduler._GATHER_SECONDS:
            raise KeyboardInterrupt
        found = super().collect(timeout_seconds)
        self.finished += len(found)
        return found


def test_results_that_were_gathered_before_an_interrupt_are_stored(database):
    executor = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        scheduled(database, executor)
    assert len(database) == executor.finished > 0


class Learner(InOrder):
    """Proposes the configs in their order, from the one on that its history has the number of."""

    learns = True

    def ask(self, count):
        first = self.told + len(self.search.history)
        self.told += count
        return [self.search.feasible[number % len(CONFIGS)] for number in range(first, first + count)]


class Lost(Elsewhere):
    """A search whose process ends with the second batch."""

    def __init__(self, search: TaskSearch) -> None:
        super().__init__(search)
        self.search.history = search.history

    def next(self):
        return None if self.search.evaluations else super().next()


def test_a_search_that_comes_back_goes_on_with_the_history_that_it_began_with(database):
    known = []

    def history(_task):
        known.append(SourceTask(()))  # another one whenever it is asked for
        return tuple(known)

    asked = []
    for begin in (Lost, None):
        known.clear()
        search = TaskSearch(TASKS[0], Toy(), lambda: CONFIGS, Learner, 12, seed=0, batch=4, history=history)
        search.begin_elsewhere = begin
        scheduled(database, ScriptedExecutor(), [search])
        asked.append(search.trials)
    assert asked[0] == asked[1]
    assert asked[0][0].config == CONFIGS[1]
