"""Tests of databases written as Optuna studies."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import StoreError
from gemmtune.engine.records.measurement import Estimate, Status
from gemmtune.engine.report.optuna_study import WrittenStudy, studies_report, write_studies
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database
from gemmtune.engine.testing.objective_conformance import example_measurement

pytestmark = pytest.mark.slow(8)

MEASURED = replace(
    example_measurement(),
    protocol="graph-cold-l2",
    resources=Resources(168, 98_304, 0, 128),
    created_at="2026-11-21T10:00:00+00:00",
)
TASK = MEASURED.task
NAME = f"{TASK.key}, measured, graph-cold-l2"


def measured(time_ns, **config):
    estimate = Estimate(time_ns, 0.99 * time_ns, 1.01 * time_ns)
    return replace(MEASURED, config=Config(config), estimate=estimate, energy_joules=None)


def failed(status, reason, **config):
    return replace(
        MEASURED, config=Config(config), status=status, reason=reason, estimate=None, samples_ns=(), energy_joules=None
    )


@pytest.fixture
def database(tmp_path):
    with Database.open(tmp_path / "measurements.db") as opened:
        yield opened


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'studies.db'}"


@pytest.fixture
def load(url):
    """A study of the storage by its name. Optuna leaves connections open, which Python 3.13 warns of."""
    storages = []

    def load(name=NAME):
        storages.append(optuna.storages.RDBStorage(url))
        return optuna.load_study(study_name=name, storage=storages[-1])

    yield load
    for storage in storages:
        storage.remove_session()
        storage.engine.dispose()


def test_every_measurement_is_a_trial_with_its_value_or_its_failure(database, url, load):
    database.add([measured(9e4, x=1), failed(Status.WRONG_RESULT, "off by 0.3", x=2), measured(8e4, x=3)])
    assert write_studies(database, url) == [WrittenStudy(NAME, trials=3, new=3)]
    study = load()
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE]
    assert [trial.values for trial in study.trials] == [[90.0], None, [80.0]]
    assert (study.best_params, study.best_value, study.metric_names) == ({"x": 3}, 80.0, ["time µs"])
    ok, wrong, _ = (trial.user_attrs for trial in study.trials)
    assert (wrong["status"], wrong["reason"]) == ("wrong_result", "off by 0.3")
    assert "reason" not in ok
    assert (ok["low_us"], ok["high_us"], ok["registers"], ok["shared_bytes"]) == (89.1, 90.9, 168, 98_304)
    assert ok["worker"] == MEASURED.worker
    at = datetime(2026, 11, 21, 10, tzinfo=UTC).astimezone().replace(tzinfo=None)
    assert (study.trials[0].datetime_start, study.trials[0].datetime_complete) == (at, at)


def test_writing_again_adds_only_new_trials(database, url, load):
    database.add([measured(9e4, x=1)])
    write_studies(database, url)
    database.add([measured(8e4, x=2), replace(measured(7e4, x=1), toolchain=Toolchain((("torch", "9"),)))])
    report = studies_report(write_studies(database, url), url)
    assert report.to_text().splitlines()[0] == f"{NAME}: 3 trials, 2 new"
    assert [trial.value for trial in load().trials] == [90.0, 80.0, 70.0]


def test_a_study_is_one_task_by_one_protocol(database, url, load):
    other = replace(TASK, space="aten")
    database.add(
        [
            measured(9e4, x=1),
            replace(measured(7e4, x=1), protocol="graph-warm-l2"),
            replace(measured(8e4), task=other, protocol="graph-cold-l2"),
        ]
    )
    assert [study.name for study in write_studies(database, url)] == [
        NAME,
        f"{TASK.key}, measured, graph-warm-l2",
        f"{other.key}, measured, graph-cold-l2",
    ]
    assert load(f"{other.key}, measured, graph-cold-l2").trials[0].params == {}


def test_time_and_energy_are_two_objectives(database, url, load):
    database.add(
        [
            replace(measured(9e4, x=1), energy_joules=0.05),
            replace(measured(8e4, x=2), energy_joules=0.06),
            replace(measured(9.5e4, x=3), energy_joules=0.055),
        ]
    )
    write_studies(database, url)
    study = load()
    assert study.metric_names == ["time µs", "energy mJ"]
    assert sorted(trial.values for trial in study.best_trials) == [[80.0, 60.0], [90.0, 50.0]]


@pytest.mark.parametrize(
    ("values", "distribution"),
    [
        ((3, 1, 2), IntDistribution(1, 3)),
        ((16, 128, 32), IntDistribution(16, 128)),
        ((0, 1, 8), IntDistribution(0, 8)),
        ((5,), IntDistribution(5, 5)),
        ((0.5, 2), FloatDistribution(0.5, 2)),
        ((True, False), CategoricalDistribution((False, True))),
        (("n", "t"), CategoricalDistribution(("n", "t"))),
        (("n", 1), CategoricalDistribution(("n", 1))),
    ],
)
def test_unknown_param_ranges_over_the_measured_values(database, url, values, distribution, load):
    database.add([measured(9e4 + number, x=value) for number, value in enumerate(values)])
    write_studies(database, url)
    trials = load().trials
    assert [trial.params["x"] for trial in trials] == list(values)
    found = trials[0].distributions["x"]
    if isinstance(distribution, CategoricalDistribution):
        assert set(found.choices) == set(distribution.choices)
    else:
        assert found == distribution


def test_param_of_a_space_ranges_over_the_spaces_values(database, url, load):
    task = replace(TASK, space="triton_mm")
    space = registry.space("triton_mm")
    seeds = space.seeds(task)[:2]
    database.add([replace(measured(9e4 + n), task=task, config=config) for n, config in enumerate(seeds)])
    (written,) = write_studies(database, url)
    trials = load(written.name).trials
    assert [Config(trial.params) for trial in trials] == list(seeds)
    for param in space.params(task):
        found = trials[0].distributions[param.name]
        assert isinstance(found, IntDistribution)
        assert (found.low, found.high) == (param.values[0], param.values[-1])
        evenly_spaced = len({b - a for a, b in pairwise(param.values)}) == 1
        assert found.log is not evenly_spaced


def test_optunas_importance_analysis_accepts_the_study(database, url, load):
    database.add([measured(1e4 * (x + 10 * y), x=x, y=y) for x in range(1, 6) for y in range(1, 6)])
    write_studies(database, url)
    study = load()
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    assert list(found) == ["y", "x"]


def test_url_that_is_no_optuna_storage_is_refused(database, url, tmp_path):
    database.add([measured(9e4, x=1)])
    with pytest.raises(StoreError, match="holds measurements: give Optuna a storage of its own"):
        write_studies(database, f"sqlite:///{tmp_path / 'measurements.db'}")
    with pytest.raises(StoreError, match=r"Optuna cannot open storage sqlite:///.*its folder must exist"):
        write_studies(database, f"sqlite:///{tmp_path / 'nowhere' / 'studies.db'}")
    with pytest.raises(StoreError, match="Optuna cannot open storage studies: Could not parse"):
        write_studies(database, "studies")


def test_study_with_other_params_is_kept_and_refused(database, url, load):
    database.add([measured(9e4, x="a")])
    write_studies(database, url)
    database.add([measured(9e4, x="b")])
    with pytest.raises(StoreError, match="has other parameters than example has now: write to a new storage"):
        write_studies(database, url)
    assert len(load().trials) == 1
