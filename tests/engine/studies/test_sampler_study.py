"""Tests of studies that replay landscapes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar

import pytest

from gemmtune.engine.records.catalogue import device
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.errors import LandscapeError, UnknownPlugin
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.studies import study_report
from gemmtune.engine.scheduling.tuner import own_seed
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes
from gemmtune.engine.studies.sampler_study import StudyResult, replays, searchable, study_result

OK, FAILED, INVALID = Status.OK, Status.RUN_FAILED, Status.INVALID


class FromSeed(Sampler):
    """Asks the feasible configs in their order, from the seed on."""

    searches: ClassVar[list[Search]] = []
    told: ClassVar[list[Trial]] = []

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self.searches.append(search)
        self.left = list(search.feasible[search.campaign_seed :] + search.feasible[: search.campaign_seed])

    def ask(self, count: int) -> list[Config]:
        asked, self.left = self.left[:count], self.left[count:]
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        self.told.extend(trials)


def replay_study(landscapes: Sequence[Landscape], sampler: str, budget: int, **terms: object) -> StudyResult:
    searched = searchable(landscapes)
    return study_result(searched, sampler, budget, list(replays(searched, sampler, budget, **terms)))


@pytest.fixture(autouse=True)
def from_seed(monkeypatch):
    monkeypatch.setattr(FromSeed, "searches", [])
    monkeypatch.setattr(FromSeed, "told", [])


def landscape(times: Sequence[float | Status], name: str = "p", source: str = "f.csv.gz", **context: str) -> Landscape:
    points = {}
    for number, time in enumerate(times):
        config = Config({"x": number})
        failed = isinstance(time, Status)
        points[config] = Point(config, time, None) if failed else Point(config, OK, time)
    return Landscape(name, source, (Param("x", tuple(range(len(times)))),), points, context=context)


def test_fraction_is_optimum_over_best_found_averaged_over_seeds():
    result = replay_study([landscape([40.0, 20.0, 10.0, 50.0])], FromSeed, 2, seeds=3)
    assert result.problems == {"p": pytest.approx((10 / 20 + 1 + 1) / 3)}
    assert result.fraction_of_optimum == result.problems["p"]


def test_mean_of_a_study_is_over_its_problems():
    studied = [landscape([40.0, 20.0, 10.0], "a"), landscape([10.0, 20.0, 30.0], "b")]
    result = replay_study(studied, FromSeed, 1, seeds=2)
    assert result.problems == {"a": pytest.approx((0.25 + 0.5) / 2), "b": pytest.approx((1 + 0.5) / 2)}
    assert result.fraction_of_optimum == pytest.approx((0.375 + 0.75) / 2)


def test_a_failed_evaluation_counts_and_nothing_found_is_zero():
    result = replay_study([landscape([FAILED, FAILED, 10.0])], FromSeed, 2, seeds=1)
    assert result.problems == {"p": 0.0}
    assert [(trial.status, trial.score) for trial in FromSeed.told] == [(FAILED, None)] * 2


def test_a_landscape_without_any_success_is_zero():
    assert replay_study([landscape([FAILED, FAILED])], FromSeed, 2, seeds=2).fraction_of_optimum == 0.0


def test_every_recorded_config_that_was_not_invalid_is_feasible():
    replay_study([landscape([5.0, INVALID, FAILED, 7.0])], FromSeed, 9, seeds=2)
    for seed, search in enumerate(FromSeed.searches):
        assert [config.integer("x") for config in search.feasible] == [0, 2, 3]
        assert (search.seeds, search.budget, search.campaign_seed) == ((), 9, seed)
    assert len(FromSeed.told) == 2 * 3


def test_each_landscape_draws_from_its_own_stream_of_a_seed_as_in_a_campaign():
    shipped = [x for x in read_landscapes(embedded("triton_mm")[0]) if len(x.points) > 1][:2]
    replay_study([*shipped, landscape([1.0, 2.0])], FromSeed, 1, seeds=2)
    found = [search.seed for search in FromSeed.searches]
    assert len(set(found)) == 6
    task = Task(shipped[1].problem, device("H200"), "triton_mm")
    assert found[4] == own_seed(1, task.key)


def test_a_landscape_with_nothing_to_search_is_left_out():
    baseline = landscape([3.0], "baseline")
    assert set(replay_study([landscape([1.0, 2.0]), baseline], FromSeed, 1, seeds=1).problems) == {"p"}
    with pytest.raises(LandscapeError, match=r"nothing to search.*baseline"):
        replay_study([baseline], FromSeed, 1, seeds=1)
    with pytest.raises(LandscapeError, match="none given"):
        replay_study([], FromSeed, 1, seeds=1)


def test_names_shared_by_files_are_prefixed_and_only_those():
    studied = [
        landscape([1.0, 2.0], "shared", "folder/h200.csv.gz"),
        landscape([1.0, 2.0], "shared", "h100.csv"),
        landscape([1.0, 2.0], "own", "h100.csv"),
    ]
    result = replay_study(studied, FromSeed, 1, seeds=1)
    assert list(result.problems) == ["h200/shared", "h100/shared", "own"]


def test_names_shared_within_a_file_are_prefixed_by_space_or_number():
    studied = [
        landscape([1.0, 2.0], "p", space="a", device="H200"),
        landscape([1.0, 2.0], "p", space="b", device="H200"),
        landscape([1.0, 2.0], "gemm", "one/gemm.csv"),
        landscape([1.0, 2.0], "gemm", "two/gemm.csv"),
    ]
    result = replay_study(studied, FromSeed, 1, seeds=1)
    assert list(result.problems) == ["H200/a/f/p", "H200/b/f/p", "3/gemm", "4/gemm"]


def test_json_object_has_the_documented_keys():
    printed = json.dumps(
        study_report(
            replay_study([landscape([10.0, 20.0])], FromSeed, 1, seeds=2), {"batch": 8, "cold": False, "apart": True}
        ).to_json()
    )
    assert printed == (
        '{"sampler": "FromSeed", "budget": 1, "seeds": 2, "fraction_of_optimum": 0.75, "problems": {"p": 0.75}}'
    )


def test_processes_and_batches_of_one_seed_give_the_same_result():
    studied = [landscape([float(100 - number) for number in range(50)], name) for name in ("a", "b")]
    alone = replay_study(studied, "random", 8, seeds=3)
    assert replay_study(studied, "random", 8, seeds=3, workers=2) == alone
    assert 0.5 < alone.fraction_of_optimum < 1


def test_an_unknown_sampler_is_refused():
    with pytest.raises(UnknownPlugin, match=r"no sampler 'nosuch'; known: .*random"):
        replay_study([landscape([1.0, 2.0])], "nosuch", 1, seeds=1)


def test_sampler_is_given_the_seeds_of_a_known_space_unless_the_study_is_cold():
    recorded = [x for path in embedded("triton_mm") for x in read_landscapes(path) if x.name == "16x4096x4096:bf16:nt"]
    replay_study(recorded, FromSeed, 1, seeds=1)
    replay_study(recorded, FromSeed, 1, seeds=1, cold=True)
    replay_study([landscape([3.0, 1.0])], FromSeed, 1, seeds=1)
    warm, cold, foreign = FromSeed.searches
    assert warm.seeds
    assert set(warm.seeds) <= set(warm.feasible)
    assert cold.seeds == foreign.seeds == ()


def test_progress_is_reported_after_each_seed():
    reported = []
    replay_study(
        [landscape([3.0, 1.0]), landscape([2.0, 1.0], "q")],
        FromSeed,
        2,
        seeds=3,
        progress=lambda done, total: reported.append((done, total)),
    )
    assert reported == [(2, 6), (4, 6), (6, 6)]


class Learner(FromSeed):
    """Learns from earlier searches, and keeps what it was given."""

    learns = True


def test_sampler_that_learns_is_given_the_earlier_searches_of_its_space():
    problems = [landscape([3.0, 1.0], "a"), landscape([2.0, 4.0], "b"), landscape([5.0, 6.0], "c", space="another")]
    replay_study(problems, Learner, 1, seeds=2)
    given = [[[t.score for t in past.trials] for past in search.history] for search in Learner.searches]
    assert given == [[], [[3.0]], [], [], [[1.0]], []]
