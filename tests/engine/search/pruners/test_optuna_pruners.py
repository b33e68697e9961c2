"""Optuna's pruners judge by launches, as Optuna does, and say why they drop."""

from __future__ import annotations

from contextlib import nullcontext
from statistics import median

import optuna
import pytest

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.pruner import Candidate

TASK = Task(Problem(m=64, n=64, k=64), Device("TOY", "Toy", "sm_90a", 1, 1000, 1000, 1, 1, 1, 1, 32, 1, 1), "toy")
NAMES = ("hyperband", "median", "successive_halving", "wilcoxon")


def launches(time_ns: float, count: int = 9) -> tuple[float, ...]:
    """Launches about a time, with a spread of 1 %."""
    return tuple(time_ns * (1 + (3 * i % 5 - 2) / 200) for i in range(count))


def measured(number: int, time_ns: float, count: int = 9, status: Status = Status.OK) -> Measurement:
    return Measurement(
        task=TASK,
        config=Config({"x": number}),
        status=status,
        evidence=Evidence.REPLAYED,
        protocol="toy",
        toolchain=Toolchain(()),
        worker="toy",
        created_at="",
        reason="" if status is Status.OK else "a reason",
        samples_ns=launches(time_ns, count),
        estimate=Estimate(time_ns, time_ns, time_ns) if status is Status.OK else None,
    )


def dropped_after(name: str, time_ns: float, history: list[Measurement]) -> int | None:
    """The launches after which the candidate is dropped; None where it is kept to its end."""
    pruner, samples = registry.pruner(name), launches(time_ns)
    for count in range(1, len(samples)):
        if not pruner.judge(Candidate(TASK, Config({"x": -1}), samples_ns=samples[:count]), history):
            return count
    return None


HISTORY = [measured(i, 1e5 + 2e4 * i) for i in range(8)]


@pytest.mark.parametrize("name", NAMES)
def test_each_pruner_drops_a_far_slower_and_keeps_a_far_faster_config(name):
    histories = [HISTORY[:count] for count in range(5, 9)]
    assert any(dropped_after(name, 1e6, history) is not None for history in histories)
    assert all(dropped_after(name, 5e4, history) is None for history in histories)


def test_hyperband_waits_longer_in_some_brackets():
    after = {dropped_after("hyperband", 1e6, [*HISTORY, *HISTORY][:count]) for count in range(4, 16)}
    assert {1, 3, None} == after


@pytest.mark.parametrize("name", NAMES)
def test_each_pruner_keeps_a_config_without_launches(name):
    pruner = registry.pruner(name)
    assert pruner.judges_launches
    assert pruner.judge(Candidate(TASK, Config({"x": -1})), HISTORY)
    assert not registry.pruner("static").judges_launches


def test_median_drops_the_slower_half_after_one_launch_once_five_are_measured():
    assert dropped_after("median", 1.75e5, HISTORY) == 1
    assert dropped_after("median", 1.65e5, HISTORY) is None
    assert dropped_after("median", 1.75e5, HISTORY[-4:]) is None


def test_successive_halving_compares_with_dropped_configs_too():
    pruned = [measured(20 + i, 2e5, 1, Status.INVALID) for i in range(8)]
    assert dropped_after("successive_halving", 1.3e5, HISTORY) == 1
    # Of sixteen others four go on after a launch; of the eight that had four launches two go on.
    assert dropped_after("successive_halving", 1.3e5, [*HISTORY, *pruned]) == 4


def test_wilcoxon_tells_two_percent_from_noise_and_not_half_a_percent():
    assert dropped_after("wilcoxon", 1.02e5, HISTORY) is not None
    assert dropped_after("wilcoxon", 0.999e5, HISTORY) is None


def test_failures_without_launches_change_no_verdict():
    failed = [measured(50 + i, 1e5, 0, Status.RUN_FAILED) for i in range(9)]
    for name in NAMES:
        assert dropped_after(name, 1.3e5, [*failed, *HISTORY]) == dropped_after(name, 1.3e5, HISTORY)


def test_a_rejection_names_the_number_of_rivals_and_of_launches():
    verdict = registry.pruner("median").judge(Candidate(TASK, Config({"x": -1}), samples_ns=(2e5, 2.2e5)), HISTORY)
    assert verdict.rule == "slower than the median"
    assert verdict.reason == "slower than the median of 8 before it, after 1 launch of 200.00 µs in the median"


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_equal_those_of_a_plain_optuna_study(name):
    """Against a study that Optuna runs from first to last, with the same trials in the same order."""
    own = {
        "median": optuna.pruners.MedianPruner,
        "successive_halving": lambda: optuna.pruners.SuccessiveHalvingPruner(min_resource=1),
        "hyperband": lambda: optuna.pruners.HyperbandPruner(min_resource=1),
        "wilcoxon": optuna.pruners.WilcoxonPruner,
    }
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with pytest.warns(optuna.exceptions.ExperimentalWarning) if name == "wilcoxon" else nullcontext():
        study = optuna.create_study(study_name=TASK.key, pruner=own[name]())
    pruner, history = registry.pruner(name), []
    for number in range(30):
        time_ns = 1e5 + 1e4 * (7 * number % 30)
        trial, theirs, ours = study.ask(), None, None
        for count in range(1, 10):
            samples = launches(time_ns)[:count]
            trial.report(samples[-1] if name == "wilcoxon" else median(samples), count)
            theirs = count if trial.should_prune() else None
            candidate = Candidate(TASK, Config({"x": number}), samples_ns=samples)
            ours = None if pruner.judge(candidate, history) else count
            if theirs or ours:
                break
        assert ours == theirs
        if theirs is None:
            study.tell(trial, time_ns)
            history.append(measured(number, time_ns))
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            history.append(measured(number, time_ns, theirs, Status.INVALID))
    assert 0 < sum(m.status is Status.OK for m in history) < 30
