"""`gt.landscapes` and `gt.replay`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest

import gemmtune as gt
from gemmtune.engine.records.errors import DeviceError, LandscapeError, UnknownPlugin, UsageError
from gemmtune.engine.store.landscapes.landscape_file import embedded, write_landscapes
from gemmtune.engine.studies.comparison import curves_over_seconds

SMALL = gt.landscapes("h200", space="triton_mm")[:2]


class InOrder(gt.Sampler):
    def __init__(self, search):
        super().__init__(search)
        self.left = list(search.feasible)

    def ask(self, count):
        batch, self.left = self.left[:count], self.left[count:]
        return batch

    def tell(self, trials):
        pass


def test_landscapes_are_those_of_a_device_of_files_or_all():
    assert gt.landscapes() == gt.landscapes("h200") == gt.landscapes(*embedded())
    assert {x.context["space"] for x in gt.landscapes("H200", space="aten")} == {"aten"}
    assert gt.landscapes(*SMALL) == SMALL
    with pytest.raises(DeviceError, match="no device 'h300'"):
        gt.landscapes("h300")
    with pytest.raises(LandscapeError, match=r"nothing is recorded of L4; recorded: H200"):
        gt.landscapes("l4")
    with pytest.raises(LandscapeError, match="nothing is recorded in space quack; recorded: aten, triton_mm"):
        gt.landscapes("h200", space="quack")


def test_a_class_beside_a_registered_sampler(tmp_path):
    study = gt.replay(SMALL, [InOrder, "random"], budget=32, seeds=2, out=tmp_path)
    assert study.samplers == ("InOrder", "random")
    assert sorted(path.name for path in study.written) == ["comparison.json", "curves.png", "report.html", "study.json"]
    first = [point for point in SMALL[0].points.values() if point.status.value != "invalid"][:32]
    expected = SMALL[0].optimum_ns / min(point.time_ns for point in first if point.time_ns is not None)
    assert study.results["InOrder"].problems[SMALL[0].name] == expected
    assert "InOrder" in study.summary()
    figure: Any = study.plot()
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_study_is_a_frame_with_a_line_per_evaluation():
    pytest.importorskip("pandas")
    study: Any = gt.replay(SMALL[0], "random", budget=8, seeds=3)
    frame = study.to_dataframe()
    assert len(frame) == 24
    last = frame[frame.evaluation == 8].fraction_of_optimum
    assert last.mean() == pytest.approx(study.fraction_of_optimum["random"])
    points = [SMALL[0].points[trial.config] for trial in study.found["random"][1][0]]
    gpu, builds = sum(sum(x.samples_ns) for x in points) / 1e9, sum(x.build_seconds for x in points)
    cost = frame[(frame.seed == 1) & (frame.evaluation == 8)].iloc[0]
    assert (cost.gpu_seconds, cost.wall_seconds) == pytest.approx((gpu, gpu + builds))
    [own] = study.found["random"][1].sampler_seconds
    assert 0 < own[0] <= cost.sampler_seconds == own[-1] < 5


def test_regret_over_seconds_adds_the_samplers_own_time_to_the_recorded():
    study: Any = gt.replay(SMALL[0], "random", budget=8, seeds=3)
    [curve] = curves_over_seconds(study.landscapes, study.found)
    for replay in study.found["random"]:
        replay.sampler_seconds = [(0.0,) * 8]
    [recorded] = curves_over_seconds(study.landscapes, study.found)
    assert curve.seconds[-1] > recorded.seconds[-1] > 1
    assert curve.mean[0] == 0
    assert curve.mean[-1] == recorded.mean[-1] == pytest.approx(study.fraction_of_optimum["random"])
    figure: Any = study.plot(over="seconds")
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_saved_study_reads_back_and_takes_a_further_sampler(tmp_path, monkeypatch):
    few = dict(list(SMALL[0].points.items())[:9])
    write_landscapes(tmp_path / "mine.csv", [replace(SMALL[0], points=few)])
    mine = gt.landscapes(tmp_path / "mine.csv")
    study = gt.replay([*mine, SMALL[1]], "random", budget=4, seeds=2, batch=2, apart=True)
    study.save(tmp_path)
    text = (tmp_path / "study.json").read_text()
    record = json.loads(text)
    assert record["versions"]["gemmtune"] == gt.__version__
    assert (record["seeds"], record["settings"]["batch"]) == ([0, 1], 2)
    assert [x["source"] for x in record["landscapes"]] == [str(tmp_path / "mine.csv"), "h200_triton_mm.csv.gz"]
    assert record["samplers"]["random"]["code"] == "gemmtune.engine.search.samplers.random:RandomSampler"
    monkeypatch.setattr(InOrder, "__init__", lambda *_: pytest.fail("reading runs no sampler"))
    back = gt.read_study(tmp_path)
    assert (back.found, back.settings, back.to_json()) == (study.found, study.settings, study.to_json())
    monkeypatch.undo()
    both = back.extend(InOrder)
    assert both.found == gt.replay(back.landscapes, ["random", InOrder], budget=4, seeds=2, batch=2, apart=True).found
    record["versions"] |= {"gemmtune": "0.1, 0.2", "other": "3"}
    (tmp_path / "study.json").write_text(json.dumps(record))
    gt.read_study(tmp_path).extend(InOrder, out=tmp_path / "longer")
    versions = json.loads((tmp_path / "longer" / "study.json").read_text())["versions"]
    assert versions == {**record["versions"], "gemmtune": f"0.1, 0.2, {gt.__version__}"}
    gt.read_study(tmp_path).save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "study.json").read_text())["versions"] == record["versions"]
    with pytest.raises(UsageError, match="has sampler random already"):
        both.extend("random", progress=lambda *_: pytest.fail("it searches first"))
    (tmp_path / "mine.csv").write_text((tmp_path / "mine.csv").read_text().replace(",ok,", ",timed_out,", 1))
    with pytest.raises(LandscapeError, match=r"no landscape is as 1x6144x4096:bf16:nt of .*mine.csv was"):
        gt.read_study(tmp_path)
    assert gt.read_study(tmp_path, *study.landscapes).found == study.found
    for wrong, said in (
        (text.replace('"seeds"', '"sedes"'), "unknown field 'sedes'"),
        (text[:-9], "is truncated"),
        (
            text.replace('"budget": 4', '"budget": 3'),
            "random.trials holds a search of more evaluations than the budget, 3",
        ),
    ):
        (tmp_path / "study.json").write_text(wrong)
        with pytest.raises(UsageError, match=said):
            gt.read_study(tmp_path)
    for trials in ([[[0, 0], [0]]], [[[0], [10**6]]], [[[0, 1]]], [[[0], [1], [2]]]):
        record["samplers"]["random"]["trials"] = trials * 2
        (tmp_path / "study.json").write_text(json.dumps(record))
        with pytest.raises(UsageError, match=r"does not have|does not hold 2 searches for each of 2 seeds"):
            gt.read_study(tmp_path, *study.landscapes)


def test_with_noise_a_sampler_is_told_single_launches_and_the_study_is_of_recorded_times():
    told = []

    class Told(InOrder):
        def tell(self, trials):
            told.extend(trials)

    noisy = gt.replay(SMALL[0], Told, budget=6, seeds=2, noise=True)
    points = SMALL[0].points
    assert all(trial.score in points[trial.config].samples_ns for trial in told)
    assert len({trial.score for trial in told[:6]} & {trial.score for trial in told[6:]}) < 6  # drawn per seed
    assert noisy.found["Told"] == gt.replay(SMALL[0], Told, budget=6, seeds=2).found["Told"]
    bare = {config: replace(point, samples_ns=()) for config, point in points.items()}
    with pytest.raises(LandscapeError, match="no launches of each config"):
        gt.replay(replace(SMALL[0], points=bare), "random", noise=True)


def test_progress_counts_all_searches():
    seen = []
    gt.replay(SMALL, ["random", "exhaustive"], budget=2, seeds=2, progress=lambda *at: seen.append(at))
    assert seen == [(2, 8), (4, 8), (6, 8), (8, 8)]


def test_what_cannot_be_replayed_is_refused(monkeypatch):
    with pytest.raises(UnknownPlugin, match="no sampler 'anneal'"):
        gt.replay(SMALL, "anneal")
    with pytest.raises(LandscapeError, match="no landscape is named"):
        gt.replay([])
    for name in ("budget", "seeds", "batch", "workers"):
        with pytest.raises(UsageError, match=f"{name}=0 is not an integer from 1 on"):
            gt.replay(SMALL, **{name: 0})
    with pytest.raises(UsageError, match="no sampler is named; known: auto"):
        gt.replay(SMALL, [])
    with pytest.raises(UsageError, match="two samplers are named InOrder"):
        gt.replay(SMALL, [InOrder, type("InOrder", (InOrder,), {})])
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    with pytest.raises(UsageError, match="from a notebook: take workers=1"):
        gt.replay(SMALL, type("Mine", (InOrder,), {"__module__": "__main__"}), workers=2)
