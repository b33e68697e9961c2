"""`gt.landscapes` and `gt.replay`."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import gemmtune as gt
from gemmtune.engine.records.errors import DeviceError, LandscapeError, UnknownPlugin, UsageError
from gemmtune.engine.store.landscapes.landscape_file import embedded

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
    assert sorted(path.name for path in study.written) == ["comparison.json", "curves.png", "report.html"]
    first = [point for point in SMALL[0].points.values() if point.status.value != "invalid"][:32]
    expected = SMALL[0].optimum_ns / min(point.time_ns for point in first if point.time_ns is not None)
    assert study.results["InOrder"].problems[SMALL[0].name] == expected
    assert "InOrder" in study.summary()
    figure: Any = study.plot()
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_study_is_a_frame_with_a_line_per_evaluation():
    pytest.importorskip("pandas")
    study = gt.replay(SMALL[0], "random", budget=8, seeds=3)
    frame = study.to_dataframe()
    assert len(frame) == 24
    last = frame[frame.evaluation == 8].fraction_of_optimum
    assert last.mean() == pytest.approx(study.fraction_of_optimum["random"])


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
