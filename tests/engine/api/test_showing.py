"""Reports of files by their content: what a line says of each row, landscape, sampler and run."""

from __future__ import annotations

import json

import pytest

from gemmtune.engine.api.showing import file_report
from gemmtune.engine.consumers.cute.exporter import CuteExporter
from gemmtune.engine.records.errors import TableError, UsageError
from gemmtune.engine.report.files import is_database
from gemmtune.engine.report.progress.run import read_run
from gemmtune.engine.report.progress.state import duration
from gemmtune.engine.seams import registry
from gemmtune.engine.tables import table_file
from gemmtune.engine.tables.table_file import write_table
from gemmtune.engine.testing.exporter_conformance import example_table

LANDSCAPE = """problem.m,task.device,task.space,BLOCK,kind,time_us,status
16,NVIDIA H200,own,1,a,5.1,ok
16,NVIDIA H200,own,2,b,5,ok
16,NVIDIA H200,own,4,b,,build_failed: no registers
16,NVIDIA H200,own,8,b,5.2,ok
16,NVIDIA H200,own,16,b,,build_failed: no registers
16,NVIDIA H200,own,32,b,,run_failed: misaligned
"""


def lines(report):
    return [line.split() for line in report.to_text().splitlines()]


def test_a_landscape_has_its_best_config_those_close_to_it_and_its_failures(tmp_path):
    (tmp_path / "landscape.csv").write_text(LANDSCAPE, encoding="utf-8")
    report = file_report(str(tmp_path / "landscape.csv"))
    [fact] = report.to_json()["landscapes"]
    assert (fact["configs"], fact["best_ns"], fact["best_config"]) == (6, 5000, {"BLOCK": 2, "kind": "b"})
    assert fact["within_2_percent"] == 2  # 5.1 µs is 2 % behind
    assert fact["failures"] == {"build_failed": 2, "run_failed": 1}
    text = report.to_text()
    assert "2 build_failed, 1 run_failed" in text
    assert "BLOCK=2 kind=b" in text
    assert text.startswith("1 landscape; NVIDIA H200")
    assert lines(report)[-1][1:5] == ["own", "6", "5.0", "2"]


def test_a_landscape_without_a_success_has_no_best_config(tmp_path):
    rows = [line for line in LANDSCAPE.splitlines() if not line.endswith("ok")]
    (tmp_path / "landscape.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    [fact] = file_report(str(tmp_path / "landscape.csv")).to_json()["landscapes"]
    assert (fact["best_ns"], fact["best_config"], fact["within_2_percent"]) == (None, {}, 0)


@pytest.mark.parametrize("name", ["inductor_table.json", "lookup_table.json"])
def test_an_export_for_inductor_has_its_rows(tmp_path, name):
    table = example_table()
    (tmp_path / name).write_text(registry.exporter("inductor").export(table)[name], encoding="utf-8")
    report = file_report(str(tmp_path / name))
    first = report.to_text().splitlines()[0]
    assert "3 rows for" in first
    rows = [line for line in lines(report) if "aten::mm" in line]
    assert len(rows) == 3
    assert all(row[-1] == "-" for row in rows)  # the vendor's kernel has no config
    if name == "inductor_table.json":
        assert first == "NVIDIA H200: 3 rows for torch.compile, objective latency"
        assert sorted(row[1:3] for row in rows) == [["16", "20.0"], ["2048", "20.0"], ["512", "20.0"]]
        assert "made with torch 2.13.0" in report.to_text()


def test_an_export_for_cute_has_its_rows_with_time_loss_and_winner(tmp_path):
    text = CuteExporter().export(example_table(CuteExporter))["cute_table.json"]
    (tmp_path / "cute_table.json").write_text(text, encoding="utf-8")
    report, record = file_report(str(tmp_path / "cute_table.json")), json.loads(text)
    rows = [row for of_space in record["rows"].values() for row in of_space.values()]
    assert report.to_text().startswith(f"NVIDIA H200: {len(rows)} row")
    shown = {line[0]: line for line in lines(report) if line and line[0] in {row["problem"] for row in rows}}
    assert len(shown) == len(rows)
    for row in rows:
        assert shown[row["problem"]][2] == f"{row['time_ns'] / 1e3:.1f}"
        assert shown[row["problem"]][3] == ("-" if row["loss"] is None else f"{row['loss']:.2%}")
    package, version = next(iter(sorted(rows[0]["packages"].items())))
    assert f"made with {package} {version}" in report.to_text()


COMPARISON = {
    "landscapes": ["p", "q"],
    "budget": 40,
    "seeds": 1,
    "curves": [
        {"arm": "random", "landscape": "", "fraction_of_optimum": [0.5, 0.91236], "score": {"value": 0.126}},
        {"arm": "random", "landscape": "p", "fraction_of_optimum": [0.9], "score": {"value": 0.126}},
        {"arm": "auto", "landscape": "q", "fraction_of_optimum": [1.0], "score": None},
    ],
}


def test_a_comparison_has_a_line_per_sampler_with_its_last_value_and_score(tmp_path):
    (tmp_path / "comparison.json").write_text(json.dumps(COMPARISON), encoding="utf-8")
    report = file_report(str(tmp_path / "comparison.json"))
    assert report.to_text().startswith("2 landscapes, budget 40, 1 seed; report.html")
    mean, *others = lines(report)[-3:]
    assert mean == ["random", "all", "0.9124", *["0.13", "of", "1", "of", "2", "landscapes"]]
    assert others == [["random", "p", "0.9000", "0.13"], ["auto", "q", "1.0000", "-"]]


@pytest.mark.parametrize(
    "damage",
    [
        {"curves": [{"arm": "a"}]},
        {"curves": 3},
        {"curves": [[]]},
        {"curves": [{**COMPARISON["curves"][0], "fraction_of_optimum": []}]},
        {"curves": [{**COMPARISON["curves"][0], "fraction_of_optimum": ["x"]}]},
    ],
)
def test_a_damaged_comparison_is_refused_with_its_path(tmp_path, damage):
    (tmp_path / "comparison.json").write_text(json.dumps(COMPARISON | damage), encoding="utf-8")
    with pytest.raises(TableError, match=r"comparison.json is damaged, or no file of gemmtune: "):
        file_report(str(tmp_path / "comparison.json"))


RUN = {
    "command": "gemmtune tune --problem 16x32x64",
    "started_at": "2026-11-26T10:00:00+00:00",
    "seconds": 75.0,
    "evaluations": 12,
    "known": 3,
    "finals": 1,
    "optima": {},
    "load": [],
}


@pytest.mark.parametrize(("known", "told"), [(3, "12 evaluations, 3 known before\n"), (0, "12 evaluations\n")])
def test_a_table_is_shown_with_the_run_that_made_it(tmp_path, known, told):
    write_table(tmp_path / "table.json", example_table())
    assert "tuned" not in file_report(str(tmp_path / "table.json")).to_text()
    (tmp_path / "run.json").write_text(json.dumps(RUN | {"known": known}), encoding="utf-8")
    text = file_report(str(tmp_path / "table.json")).to_text()
    assert f"tuned 2026-11-26T10:00:00+00:00 in 1 min 15 s, {told}{RUN['command']}" in text
    assert file_report(str(tmp_path / "run.json")).to_text().startswith("tuned 2026-11-26T10:00:00")
    (tmp_path / "run.json").write_text(json.dumps(RUN | {"known": -1}), encoding="utf-8")
    text = file_report(str(tmp_path / "table.json")).to_text()
    assert f"the record of the run in {tmp_path}/run.json is damaged: known=-1 is not an integer from 0 on" in text


@pytest.mark.parametrize(
    ("name", "content", "database"),
    [("m.db", b"SQLite format 3\0", True), ("t.json", b"{}", False), ("l.csv", b"a,b", False)],
)
def test_a_file_of_no_known_kind_may_be_a_database(tmp_path, name, content, database):
    (tmp_path / name).write_bytes(content)
    assert is_database(str(tmp_path / name)) is database
    assert is_database("postgresql://host/db")


def test_a_file_of_something_else_is_neither_shown_nor_taken_for_a_database(tmp_path):
    (tmp_path / "some").write_text("text", encoding="utf-8")
    with pytest.raises(TableError, match="is a file of something else"):
        is_database(str(tmp_path / "some"))


@pytest.mark.parametrize(
    "damage", [{"finals": -1}, {"seconds": -0.1}, {"optima": {"p": 0.0}}, {"load": [{}]}, {"known": None}, {"load": 3}]
)
def test_a_damaged_record_of_a_run_is_refused(tmp_path, damage):
    (tmp_path / "run.json").write_text(json.dumps(RUN | damage), encoding="utf-8")
    with pytest.raises(UsageError, match="is damaged"):
        read_run(tmp_path)
    assert read_run(tmp_path / "nowhere") is None
    (tmp_path / "run.json").write_text(json.dumps(RUN | {"seconds": 0, "optima": {"p": 0.1}}), encoding="utf-8")
    assert read_run(tmp_path).optima == {"p": 0.1}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (200.0, "3 min 20 s"),
        (3599.0, "59 min 59 s"),
        (3600.0, "1 h 0 min"),
        (7530.0, "2 h 5 min"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds, text):
    assert duration(seconds) == text


def test_a_table_that_does_not_name_its_writer_is_shown(tmp_path):
    path = tmp_path / "table.json"
    write_table(path, example_table())
    record = {key: each for key, each in json.loads(path.read_text()).items() if key not in ("gemmtune", "sha256")}
    path.write_text(json.dumps(record | {"sha256": table_file._hash(record)}), encoding="utf-8")
    assert "written by gemmtune of an unknown version" in file_report(str(path)).to_text()
