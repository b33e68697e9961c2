"""The best of a problem meet in a final, once, after its searches; it decides what ships, and screening without it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from gemmtune.engine.campaign.backend import Backend
from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.result import Result
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist, FinalNotHeld
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.scheduling.scheduler import Scheduler
from gemmtune.engine.scheduling.task_search import TaskSearch, exhaustive_search
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.space import Space
from gemmtune.engine.store.database import Database

H200 = catalogue.device("H200")
PROBLEMS = (Problem(16, 64, 64), Problem(32, 64, 64))
TOOLS = Toolchain((("toy", "1.0"),))
CONFIGS = tuple(Config({"x": x}) for x in range(20))
BASELINE = Config({})
PLAN = Plan(PROBLEMS)


class Toy(Space):
    """Twenty configs; that of x = 4 looks fastest, that of x = 6 is."""

    def params(self, task):
        return (Param("x", tuple(range(20))),)

    def check(self, task, config):
        raise NotImplementedError

    def seeds(self, task):
        return ()

    def toolchain(self):
        return TOOLS

    def build(self, task, config, folder):
        raise NotImplementedError

    def load(self, artifact, task):
        raise NotImplementedError


def screened_ns(config: Config) -> float:
    """The baseline's lies between those of x = 9 and x = 10; x = 19 fails."""
    return 1000.0 + 10 * abs(config.integer("x") - 4) if config else 1055.0


def settled_ns(config: Config) -> float:
    return 1000.0 + 10 * abs(config.integer("x") - 6) if config else 1055.0


def estimate(time_ns: float) -> Estimate:
    return Estimate(time_ns, time_ns - 1, time_ns + 1)


def xs(configs: Iterable[tuple[Task, Config]]) -> list[int | None]:
    return [config.get("x") for _, config in configs]


class ScriptedExecutor(Executor):
    """Screens a few at a time, and holds finals at once unless it loses them."""

    evidence = Evidence.MEASURED
    holds_finals = True
    parallel = 1

    def __init__(self, *, refutes: Sequence[int] = (), loses: bool = False, tools: Toolchain = TOOLS) -> None:
        self.refutes, self.loses, self.tools = refutes, loses, tools
        self.submitted: list[tuple[Task, Config]] = []
        self.running: list[tuple[Task, Config]] = []
        self.asked: list[Sequence[tuple[Task, Config]]] = []
        self.over: list[Final | FinalNotHeld] = []

    def toolchain(self, task):
        return self.tools

    def protocol(self, task):
        return "graph-cold-l2"

    def submit(self, task, config):
        self.submitted.append((task, config))
        self.running.append((task, config))

    def hold_final(self, candidates):
        problems = {task.problem for task, _ in candidates}
        assert len(problems) == 1
        assert not problems & {task.problem for task, _ in self.running}, "a search of the problem still runs"
        self.asked.append(candidates)
        (problem,) = problems
        self.over.append(FinalNotHeld(problem, "its process ended") if self.loses else self.final(candidates))

    def collect(self, timeout_seconds):
        finished = [self.measured(task, config) for task, config in self.running[:3]]
        self.running = self.running[3:]
        over, self.over = self.over, []
        return [*finished, *over]

    def load(self):
        return None

    def close(self):
        pass

    def measured(self, task, config):
        fails = config.get("x") == 19
        return Measurement(
            task=task,
            config=config,
            status=Status.RUN_FAILED if fails else Status.OK,
            evidence=self.evidence,
            protocol=self.protocol(task),
            toolchain=self.tools,
            worker="scripted",
            created_at="2026-11-21T12:00:00+00:00",
            reason="x = 19 crashes" if fails else "",
            samples_ns=() if fails else (screened_ns(config),) * 35,
            estimate=None if fails else estimate(screened_ns(config)),
        )

    def final(self, candidates):
        out = [(task, config) for task, config in candidates if config.get("x") in self.refutes]
        met = sorted((pair for pair in candidates if pair not in out), key=lambda pair: settled_ns(pair[1]))
        best_ns = settled_ns(met[0][1])
        finalists = [
            Finalist(task, config, self.tools, estimate(time_ns), (time_ns,) * 48, behind)
            for task, config in met
            for time_ns in (settled_ns(config),)
            for behind in (
                (0.0, 0.0) if time_ns == best_ns else (time_ns / best_ns - 1.015, time_ns / best_ns - 0.985),
            )
        ]
        failed = tuple(FailedFinalist(task, config, "off by 0.3") for task, config in out)
        return Final(tuple(finalists), "graph-cold-l2", "scripted", "2026-11-21T13:00:00+00:00", failed)


class Listener(Callback):
    """Keeps the finals it is given."""

    def __init__(self) -> None:
        self.finals: list[Final | FinalNotHeld] = []

    def on_final(self, final):
        self.finals.append(final)


@pytest.fixture
def database(tmp_path):
    with Database.open(tmp_path / "m.db") as opened:
        yield opened


def searches(
    problems: Sequence[Problem] = PROBLEMS, spaces: Sequence[str] = ("toy",), configs: Sequence[Config] = CONFIGS
) -> list[TaskSearch]:
    """The baseline's search and one a space, of each problem."""
    found = []
    for problem in problems:
        found.append(exhaustive_search(Task(problem, H200, "aten"), Toy(), (BASELINE,)))
        tasks = [Task(problem, H200, space) for space in spaces]
        found += [exhaustive_search(task, Toy(), tuple(configs)) for task in tasks]
    return found


def scripted(executor: ScriptedExecutor, found: Sequence[TaskSearch]) -> Backend:
    return Backend(H200, executor, PLAN.plugins.sampler, tuple(found), lambda: None)


def executed(database: Database, executor: ScriptedExecutor, found: list[TaskSearch] | None = None) -> Result:
    return execute(PLAN, scripted(executor, found or searches()), database, ())


def shipped(result: Result) -> list[int | None]:
    return [row.choices[0].config.get("x") for row in result.table.rows]


def test_the_last_final_that_was_held_decides_whatever_the_clock_of_another_driver_said(database):
    executed(database, ScriptedExecutor(), searches(configs=CONFIGS[:4]))
    ahead = [replace(final, created_at="2026-11-21T14:00:00+00:00") for final in database.finals()]
    with database._transactions.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM finals")
    database.add_finals(ahead)
    assert shipped(executed(database, executor := ScriptedExecutor())) == [6, 6]
    assert len(executor.asked) == 2
    executed(database, again := ScriptedExecutor())
    Scheduler(searches(), again, database, registry.objective("latency"), []).run()
    assert again.asked == []


def test_the_best_eight_and_the_baseline_meet_once_every_search_of_the_problem_has_ended(database):
    executor, listener = ScriptedExecutor(), Listener()
    Scheduler(searches(), executor, database, registry.objective("latency"), [listener]).run()
    assert [{task.problem for task, _ in asked} for asked in executor.asked] == [{problem} for problem in PROBLEMS]
    for asked in executor.asked:
        assert xs(asked) == [4, 3, 5, 2, 6, 1, 7, 0, None]  # 8 is as fast as 0; the earlier by name goes first
        assert asked[-1] == (Task(asked[0][0].problem, H200, "aten"), BASELINE)
    assert database.finals() == listener.finals == [executor.final(asked) for asked in executor.asked]


def test_the_spaces_of_a_problem_meet_in_one_final(database):
    executor = ScriptedExecutor()
    executed(database, executor, searches(PROBLEMS[:1], ("toy", "other")))
    (asked,) = executor.asked
    assert [(task.space, config.get("x")) for task, config in asked[:4]] == [
        ("other", 4),
        ("toy", 4),
        ("other", 3),
        ("other", 5),
    ]
    assert len(asked) == 8 + 1
    assert [task.space for task, _ in asked].count("other") == 5


def test_the_winner_of_the_final_is_found_and_ships(database):
    result = executed(database, ScriptedExecutor())
    assert shipped(result) == [6, 6]
    for row, finding in zip(result.table.rows, result.findings, strict=True):
        assert (finding.config, finding.score, finding.baseline_score) == (CONFIGS[6], 1000.0, 1055.0)
        assert row.choices[0].time_ns == 1000.0
        assert set(row.tie_band) == {CONFIGS[5], CONFIGS[6], CONFIGS[7]}
        assert row.regret_bound == pytest.approx(0.005)


def test_a_second_run_holds_no_final(database):
    first = executed(database, ScriptedExecutor())
    again = ScriptedExecutor()
    second = executed(database, again)
    assert (again.submitted, again.asked) == ([], [])
    assert (second.table, second.findings) == (first.table, first.findings)
    assert len(database.finals()) == 2


def test_a_smaller_campaign_later_holds_no_final(database):
    whole = executed(database, ScriptedExecutor())
    executor = ScriptedExecutor()
    part = executed(database, executor, searches(configs=CONFIGS[10:]))
    assert executor.asked == []
    assert part.table == whole.table
    assert [finding.config for finding in part.findings] == [CONFIGS[6]] * 2


def test_a_larger_campaign_later_holds_a_final_of_all_known_configs(database):
    executed(database, ScriptedExecutor(), searches(configs=CONFIGS[8:]))
    executor = ScriptedExecutor()
    assert shipped(executed(database, executor)) == [6, 6]
    assert [xs(asked)[0] for asked in executor.asked] == [4, 4]
    assert len(database.finals()) == 4


def test_another_toolchain_holds_a_final_of_its_own(database):
    executed(database, ScriptedExecutor())
    newer = ScriptedExecutor(tools=Toolchain((("toy", "2.0"),)))
    executed(database, newer)
    assert len(newer.asked) == 2


def test_a_lost_final_leaves_the_campaign_whole_and_screening_ranks(database):
    executor, listener = ScriptedExecutor(loses=True), Listener()
    result = execute(PLAN, scripted(executor, searches()), database, [listener])
    assert listener.finals == [FinalNotHeld(problem, "its process ended") for problem in PROBLEMS]
    assert database.finals() == []
    assert sum(1 for _ in database.measurements()) == 2 * 21
    assert shipped(result) == [4, 4]
    assert [(f.config, f.score) for f in result.findings] == [(CONFIGS[4], 1000.0)] * 2
    assert [row.regret_bound for row in result.table.rows] == [None, None]
    assert shipped(executed(database, ScriptedExecutor())) == [6, 6]  # it is held when the command is given again


def test_a_config_that_failed_in_a_final_is_not_shipped(database):
    executor = ScriptedExecutor(refutes=(4, 6))
    result = executed(database, executor)
    assert shipped(result) == [5, 5]
    assert [finding.config for finding in result.findings] == [CONFIGS[5]] * 2
    for row in result.table.rows:
        assert not {CONFIGS[4], CONFIGS[6]} & {choice.config for choice in row.choices}
    again = ScriptedExecutor()
    assert executed(database, again).table == result.table
    assert again.asked == []
    executed(database, newer := ScriptedExecutor(tools=Toolchain((("toy", "2.0"),))))
    assert all({4, 6}.isdisjoint(xs(asked)) for asked in newer.asked)


def test_a_failed_finalist_is_no_finding_even_if_it_was_the_last_of_its_space(database):
    result = executed(database, ScriptedExecutor(refutes=range(10)), searches(PROBLEMS[:1]))
    (row,), (finding,) = result.table.rows, result.findings
    assert row.choices[0].config == BASELINE
    assert finding.config.integer("x") >= 8
    assert finding.score == screened_ns(finding.config)


def test_a_campaign_killed_between_search_and_final_resumes_with_the_final_alone(database):
    class KilledError(Exception):
        pass

    class Dies(ScriptedExecutor):
        def hold_final(self, candidates):
            raise KilledError

    with pytest.raises(KilledError):
        executed(database, Dies(), searches(PROBLEMS[:1]))
    assert database.finals() == []
    resumed = ScriptedExecutor()
    assert shipped(executed(database, resumed, searches(PROBLEMS[:1]))) == [6]
    assert resumed.submitted == []
    assert len(resumed.asked) == len(database.finals()) == 1


def test_a_sweep_holds_no_final(database):
    executor = ScriptedExecutor()
    Scheduler(searches(), executor, database, registry.objective("latency"), (), hold_finals=False).run()
    assert executor.asked == []
    assert len(executor.submitted) == 2 * 21


def test_one_ok_config_alone_holds_no_final(database):
    executor = ScriptedExecutor()
    result = executed(database, executor, searches(PROBLEMS[:1], configs=CONFIGS[19:]))
    assert executor.asked == []
    assert [row.choices[0].space for row in result.table.rows] == ["aten"]


@pytest.mark.slow(1, together="waiting")
def test_drivers_on_one_server_hold_each_final_once(postgres_server):
    url = postgres_server.new_database()
    executors = [ScriptedExecutor(), ScriptedExecutor()]

    def drive(executor):
        with Database.open(url) as opened:
            return executed(opened, executor)

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(drive, executors)
    submitted = [pair for executor in executors for pair in executor.submitted]
    assert len(submitted) == len(set(submitted)) == len(PROBLEMS) * (len(CONFIGS) + 1)
    held = [asked[0][0].problem.name for executor in executors for asked in executor.asked]
    assert sorted(held) == sorted(problem.name for problem in PROBLEMS)
    assert first.table == second.table
    with Database.open(url) as opened:
        assert len(opened.finals()) == len(PROBLEMS)
