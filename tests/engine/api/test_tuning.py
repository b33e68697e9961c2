"""`gt.tune`: its arguments, its result, and the files it writes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import gemmtune as gt
from gemmtune.engine.records.errors import (
    ContractError,
    DeviceError,
    LandscapeError,
    ProblemError,
    ToolchainMissing,
    UsageError,
)
from gemmtune.engine.seams import registry
from gemmtune.engine.store.landscapes.landscape_file import write_landscapes
from gemmtune.engine.toolchain.gpu_info import present_device

DECODE, MIDDLE = "16x4096x4096:bf16:nt", "128x2880x2880:bf16:nt"
RECORDED = gt.landscapes("h200")


class Backwards(gt.Sampler):
    def __init__(self, search):
        super().__init__(search)
        self.left = list(search.feasible)

    def ask(self, count):
        return [self.left.pop() for _ in range(min(count, len(self.left)))]

    def tell(self, trials):
        pass


@pytest.fixture(scope="module")
def result() -> gt.TuneResult:
    return gt.tune([DECODE, gt.Problem.parse(MIDDLE)], backend=RECORDED, sampler="random", budget=400)


def test_the_best_is_what_the_table_ships(result):
    assert result.device.sku == "H200"
    assert [row.problem.name for row in result.rows] == sorted([DECODE, MIDDLE])
    best = result.best(DECODE)
    assert best == result.table.lookup(gt.Problem.parse(DECODE)) == result.best(gt.Problem.parse(DECODE))
    (landscape,) = [x for x in gt.landscapes("h200", space="triton_mm") if x.problem.name == DECODE]
    assert best.time_ns == landscape.optimum_ns
    with pytest.raises(UsageError, match=rf"no row for 1x1x1; tuned: {MIDDLE}, {DECODE}"):
        result.best("1x1x1")


def test_a_result_shows_no_url_which_may_hold_a_password(result):
    assert repr(result) == "TuneResult(H200, rows=2)"


def test_without_a_folder_only_a_database_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = gt.tune(DECODE, backend=RECORDED, sampler="random", budget=8)
    assert list(tmp_path.iterdir()) == []
    assert Path(result.database).name == "measurements.db"
    with gt.Database.open(result.database, read_only=True) as database:
        assert len(list(database.measurements())) == 9
    assert result.written == []
    assert "written" not in result.summary()


def test_a_folder_holds_table_exports_summary_and_database_and_a_campaign_goes_on_there(tmp_path):
    first = gt.tune(DECODE, backend=RECORDED, sampler="random", budget=8, out=tmp_path)
    assert {path.relative_to(tmp_path).as_posix() for path in first.written} >= {
        "table.json",
        "inductor/lookup_table.json",
        "summary.txt",
    }
    assert (tmp_path / "summary.txt").read_text() == f"{first.summary()}\n"
    again = gt.tune(DECODE, backend=RECORDED, sampler="random", budget=8, out=tmp_path, database=first.database)
    assert again.table == first.table
    assert gt.read_table(tmp_path / "table.json").rows == first.rows


def test_arguments_take_precedence_over_a_campaign_file(tmp_path):
    (tmp_path / "c.toml").write_text(
        f'problems = ["{MIDDLE}"]\nsampler = "random"\nbudget = 5\nseed = 3\nmargin = 0.5\n'
    )
    plan = gt.tune(DECODE, campaign=tmp_path / "c.toml", backend=RECORDED, budget=4, margin=0.0).plan
    assert [problem.name for problem in plan.problems] == [MIDDLE, DECODE]
    assert (plan.sampler, plan.budget, plan.seed, plan.margin) == ("random", 4, 3, 0.0)


def test_a_class_is_a_sampler_and_callbacks_follow(tmp_path):
    class Notes(gt.Callback):
        def __init__(self):
            self.lines, self.configs = [], []

        def on_notice(self, line):
            self.lines.append(line)

        def on_measurement(self, measurement, score, *, known):
            self.configs.append(measurement.config)

    notes = Notes()
    result = gt.tune(DECODE, backend=RECORDED, sampler=Backwards, budget=3, batch=1, callbacks=[notes])
    assert result.report.to_json()["sampler"] == "Backwards"
    assert len(notes.configs) == 4
    assert notes.lines == []


@pytest.mark.skipif(present_device() is not None, reason="a GPU answers")
def test_a_class_is_a_space_on_recorded_landscapes_and_has_to_be_registered_to_be_built():
    class Mine(type(registry.space("triton_mm"))):
        """A space that no package registers."""

    recorded = gt.landscapes("h200", space="triton_mm")[0]
    mine = replace(recorded, context={**recorded.context, "space": "Mine"})
    name = recorded.problem.name
    found = gt.tune([name], space=Mine, backend=[mine], budget=8, sampler="random", report=False)
    assert found.best(name).space == "Mine"
    with pytest.raises(
        UsageError, match=r"space 'Mine' is a class of this process.*: register it under gemmtune.spaces"
    ):
        gt.tune([name], space=Mine, device="H200")


def test_without_a_gpu_a_notice_says_that_recordings_answer():
    class Notes(gt.Callback):
        lines = ()

        def on_notice(self, line):
            self.lines += (line,)

    notes = Notes()
    gt.tune(DECODE, sampler="random", budget=2, callbacks=[notes])
    assert notes.lines == ("No GPU found; using the recorded landscapes.",)
    assert gt.tune(DECODE, sampler="random", budget=2, backend="H200").device.sku == "H200"


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"problems": "16x"}, ProblemError, "malformed problem '16x'"),
        ({"problems": [DECODE, DECODE]}, UsageError, "named 2 times"),
        ({"problems": DECODE, "budget": 0}, UsageError, "budget=0 is not an integer from 1 on"),
        ({"problems": DECODE, "space": "triton"}, UsageError, "no space 'triton'; did you mean triton_mm"),
        ({"problems": DECODE, "sampler": "anneal"}, UsageError, "no sampler 'anneal'"),
        ({"problems": DECODE, "backend": "H300"}, DeviceError, "no device 'H300'"),
        ({"problems": DECODE, "backend": "none.csv"}, LandscapeError, "no file or folder none.csv"),
        ({"problems": DECODE, "hold_out": [MIDDLE], "backend": RECORDED}, UsageError, "no ranges to check"),
        ({"problems": []}, UsageError, "problems is empty: name some, or leave it out to tune the recorded ones"),
        ({"problems": iter(())}, UsageError, "problems is empty"),
        ({"problems": 3}, UsageError, "problems=3 is not of type str"),
        ({"problems": DECODE, "hold_out": 3}, UsageError, "hold_out=3 is not of type str"),
        ({"problems": DECODE, "portfolio": 3}, UsageError, "portfolio=3 is not of type bool"),
        (
            {"problems": DECODE, "portfolio": {"wurst": 1}},
            UsageError,
            "unknown key 'wurst' in portfolio; did you mean worst",
        ),
        ({"problems": DECODE, "ranges": "yes"}, UsageError, "ranges='yes' is not of type bool"),
        ({"problems": DECODE, "sampler": 5}, UsageError, "sampler=5 is not of type str"),
        ({"problems": DECODE, "space": [1]}, UsageError, r"space=\[1\] is not of type str"),
        ({"problems": DECODE, "objective": 3}, UsageError, "objective=3 is not of type str"),
        ({"problems": DECODE, "device": 3}, UsageError, "device=3 is not of type str"),
        ({"problems": DECODE, "out": 3}, UsageError, "out=3 is not of type str"),
        ({"problems": DECODE, "builders": 1.5}, UsageError, "builders=1.5 is not of type int"),
    ],
)
def test_a_wrong_argument_names_its_value(arguments, error, said):
    with pytest.raises(error, match=said):
        gt.tune(**arguments)


def test_a_sampler_that_forgets_its_base_class_is_told_so():
    class Forgets(Backwards):
        def __init__(self, search):
            self.left = list(search.feasible)

    with pytest.raises(ContractError, match=r"super\(\).__init__"):
        gt.tune(DECODE, backend=RECORDED, sampler=Forgets, budget=2)


def test_the_json_is_that_of_the_command_line(result):
    record = json.loads(json.dumps(result.report.to_json()))
    assert [task["problem"] for task in record["tasks"]] == [DECODE, MIDDLE]
    assert record["tasks"][0]["config"] == dict(result.best(DECODE).config)


def test_a_frame_has_a_line_per_task(result):
    pytest.importorskip("pandas")
    frame = result.to_dataframe()
    assert list(frame.problem) == [DECODE, MIDDLE]
    assert frame.evaluations.tolist()[1] == 400
    assert frame["config.BLOCK_M"][0] == result.best(DECODE).config["BLOCK_M"]
    choices = result.table.to_dataframe()
    assert choices.time_ns[choices["rank"] == 1].tolist() == [row.choices[0].time_ns for row in result.rows]


def test_without_pandas_the_extra_is_named(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ToolchainMissing, match=r"pip install .*\[study\]"):
        result.to_dataframe()


def test_a_product_with_an_epilogue_is_replayed_and_exported(tmp_path):
    name = f"{DECODE}:epilogue=silu.mul(matrix)"
    recorded = [replace(x, name=name, problem=gt.Problem.parse(name)) for x in RECORDED if x.problem.name == DECODE]
    write_landscapes(tmp_path / "fused.csv", recorded)
    result = gt.tune(name, backend=tmp_path / "fused.csv", sampler="random", budget=30, out=tmp_path / "out")
    assert [row.problem.name for row in result.rows] == [name]
    assert gt.read_table(tmp_path / "out/table.json").lookup(gt.Problem.parse(name)) == result.best(name)
    exported = json.loads((tmp_path / "out/inductor/inductor_table.json").read_text())
    assert list(exported["rows"]) == ["mm:bfloat16:nt:1x4096x4096:none:static:silu.mul(matrix)"]
    assert json.loads((tmp_path / "out/inductor/lookup_table.json").read_text()) == {}


def test_of_two_campaigns_that_share_a_folder_each_keeps_the_rows_of_the_other(tmp_path):
    class TunesMeanwhile(gt.Callback):
        ended = False

        def on_search_end(self, search, reason):
            if not self.ended:
                self.ended = True
                gt.tune(MIDDLE, backend=RECORDED, budget=2, out=tmp_path, report=False)

    result = gt.tune(DECODE, backend=RECORDED, budget=2, out=tmp_path, report=False, callbacks=[TunesMeanwhile()])
    assert [row.problem.name for row in gt.read_table(tmp_path / "table.json").rows] == [MIDDLE, DECODE]
    assert [(each.before.problem.name, each.fate) for each in result.earlier] == [(MIDDLE, "kept")]
