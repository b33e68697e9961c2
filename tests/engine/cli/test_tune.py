"""`gemmtune tune` on recorded landscapes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes, write_landscapes
from gemmtune.engine.tables.table_file import read_table

pytestmark = pytest.mark.slow(15)

NO_GPU = "No GPU found; using the recorded landscapes.\n"
DECODE = "16x4096x4096:bf16:nt"
MIDDLE = "128x2880x2880:bf16:nt"
TWO = ("--problem", DECODE, "--problem", MIDDLE)
# All there is of the first problem, 400 of the second.
TUNE = ("tune", *TWO, "--sampler", "random", "--budget", "400", "--no-report")
FILES = ("table.json", "inductor/lookup_table.json", "inductor/inductor_table.json")
PACKAGES = ("inductor/gemmtune_inductor", "inductor/gemmtune_record", "inductor/gemmtune_report")


def valid(name: str, value: object) -> bool:
    """Whether a value is as docs/schemas say."""
    schema = Path(__file__).parents[3] / f"docs/schemas/{name}.schema.json"
    return jsonschema.Draft202012Validator(json.loads(schema.read_text(encoding="utf-8"))).is_valid(value)


def shipped(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


CAMPAIGN = f"""\
space = ["triton_mm"]
sampler = "random"
pruner = "static"
objective = "latency"
budget = 5
seed = 3
batch = 2
problems = ["{DECODE}"]

[[problem]]
m = 128
n = 2880
k = 2880
dtype = "bf16"
layout = "nt"
weight = 20
"""


def test_tune_without_anything_tunes_what_is_recorded(tmp_path, run, stored, contents):
    first = run("tune")
    assert first.status == 0
    assert NO_GPU in first.err  # behind the line that says the command is at work
    out = tmp_path / "out"
    table = read_table(out / "table.json")
    recorded = {landscape.problem for landscape in read_landscapes(embedded("triton_mm")[0])}
    assert {row.problem for row in table.rows} == recorded
    assert table.device == catalogue.device("H200")
    assert len(json.loads((out / "inductor/lookup_table.json").read_text())) == len(recorded)
    summary = (out / "summary.txt").read_text()
    assert summary == first.out
    for problem in recorded:
        (line,) = [line for line in summary.splitlines() if line.startswith(f"{problem.name} ")]
        assert 0.7 < float(re.split(r"\s{2,}", line)[4]) <= 1.0, line
    mean = re.search(r"mean fraction of the recorded optimum: ([\d.]+)", summary)
    assert mean
    assert float(mean[1]) > 0.9
    assert len(stored(out / "measurements.db")) == len(recorded) * (64 + 1)

    before, rows = contents(out), stored(out / "measurements.db")
    again = run("tune")
    assert (again.status, again.out) == (0, first.out)
    after = contents(out)
    assert {name: after[name] for name in FILES} == {name: before[name] for name in FILES}
    assert stored(out / "measurements.db") == rows


def test_the_same_seed_elsewhere_gives_the_same_bytes_and_another_a_legal_table(run, tuned, tmp_path, stored):
    assert run(*TUNE, "--seed", "0", "--out", "here").status == 0
    assert shipped(tmp_path / "here") == shipped(tuned / "out")
    assert stored(tmp_path / "here/measurements.db") == stored(tuned / "out/measurements.db")
    assert run(*TUNE, "--seed", "7", "--out", "other").status == 0
    assert stored(tmp_path / "other/measurements.db") != stored(tuned / "out/measurements.db")
    other = read_table(tmp_path / "other/table.json")
    assert [row.problem.name for row in other.rows] == sorted([DECODE, MIDDLE])
    device = catalogue.device("H200")
    for row in other.rows:
        for choice in row.choices:
            assert registry.space(choice.space).check(Task(row.problem, device, choice.space), choice.config)


def test_tune_json_is_one_object_and_nothing_else(run, tuned, recorded_configs, row_of):
    ran = run(*TUNE, "--report", "--json", "--quiet")
    assert (ran.status, ran.err) == (0, NO_GPU)  # which says what the numbers are
    record = ran.record
    assert {n: record[n] for n in ("device", "objective", "unit", "sampler", "budget", "seed", "rows")} == {
        "device": "H200",
        "objective": "latency",
        "unit": "ns",
        "sampler": "random",
        "budget": 400,
        "seed": 0,
        "rows": 2,
    }
    assert [(t["problem"], t["space"], t["evaluations"], t["failures"]) for t in record["tasks"]] == [
        (DECODE, "triton_mm", recorded_configs(DECODE), {}),
        (MIDDLE, "triton_mm", 400, {}),
    ]
    fractions = [t["fraction_of_optimum"] for t in record["tasks"]]
    assert record["fraction_of_optimum"] == pytest.approx(sum(fractions) / 2)
    assert all(0 < fraction <= 1 for fraction in fractions)
    assert record["notes"] == []
    assert record["written"] == [f"out/{name}" for name in (*FILES, *PACKAGES, "summary.txt", "report.html")]
    assert all(Path(path).exists() for path in record["written"])
    assert fractions[0] == 1.0
    best = row_of(DECODE, tuned).choices[0]
    assert record["tasks"][0]["config"] == dict(best.config)
    assert record["tasks"][0]["score"] == best.time_ns
    assert record["tasks"][0]["baseline_score"] == row_of(DECODE, tuned).baseline.time_ns


def test_a_campaign_file_says_it_all_and_the_command_line_has_the_last_word(run, tmp_path):
    Path("campaign.toml").write_text(CAMPAIGN)
    record = run("tune", "campaign.toml", "--json").record
    assert (record["sampler"], record["budget"], record["seed"]) == ("random", 5, 3)
    assert [(task["problem"], task["evaluations"]) for task in record["tasks"]] == [(DECODE, 5), (MIDDLE, 5)]
    weights = {row.problem.name: row.problem.weight for row in read_table(tmp_path / "out/table.json").rows}
    assert weights == {DECODE: 1.0, MIDDLE: 20.0}
    given = ("--sampler", "exhaustive", "--budget", "4", "--seed", "0", "--problem", "256x6144x4096")
    record = run("tune", "campaign.toml", *given, "--json", "--out", "second").record
    assert (record["sampler"], record["budget"], record["seed"]) == ("exhaustive", 4, 0)
    assert [(task["problem"], task["evaluations"]) for task in record["tasks"]] == [
        *((DECODE, 4), (MIDDLE, 4), ("256x6144x4096:bf16:nt", 4))
    ]


def test_the_database_may_lie_elsewhere(run, tmp_path, stored):
    assert run("tune", "--problem", DECODE, "--budget", "2", "--database", "all.db").status == 0
    assert len(stored(tmp_path / "all.db")) == 3
    assert not Path("out/measurements.db").exists()


def test_the_baseline_alone_can_be_tuned(run):
    ran = run("tune", "--space", "aten", "--problem", DECODE)
    assert ran.status == 0
    assert "1 problem in aten" in ran.out
    assert "rows of the table: 1 aten" in ran.out


def test_tune_replays_the_file_it_is_given(run, small):
    ran = run("tune", "--replay", small, "--sampler", "exhaustive", "--budget", "1000", "--json")
    assert (ran.status, ran.err) == (0, "")
    (task,) = ran.record["tasks"]
    assert (task["problem"], task["fraction_of_optimum"], task["baseline_score"]) == (DECODE, 1.0, None)
    assert read_table(Path("out/table.json")).rows[0].choices[0].space == "triton_mm"


def test_ranges_of_m_are_made_shown_and_exported(run, tmp_path, refusal):
    """16 and 2048 rows of one GEMM, of which the library serves the second; nothing was recorded between."""
    large = "2048x4096x4096:bf16:nt"
    ran = run("tune", "--problem", DECODE, "--problem", large, "--ranges", "--sampler", "random", "--budget", "64")
    assert "ranges of m: 2 ranges; loss 0.00% at worst, 0.00% in the mean at 2 tuned m" in ran.out
    small, beyond = read_table(tmp_path / "out/table.json").ranges
    assert (small.first, beyond.first, beyond.last) == (16, small.last + 1, 2048)
    assert f"mx4096x4096:bf16:nt  {beyond.first}–2048" in run("show", "out/table.json").out
    exported = json.loads((tmp_path / "out/inductor/inductor_table.json").read_text())
    (rows,) = exported["rows"].values()
    assert [(row["first"], row["last"]) for row in rows][:2] == [(16, 16), (2048, 2048)]
    assert (rows[-1]["last"], rows[-1]["template"]) == (2048, "aten::mm")
    held_out = run("tune", "--problem", DECODE, "--problem", MIDDLE, "--ranges", "--hold-out", large, "--budget", "8")
    assert "ranges: none, for no problem was tuned at two sizes or more" in held_out.out
    refusal(run("tune", "--problem", DECODE, "--hold-out", large), "there are no ranges to check")


def test_a_recorded_problem_that_is_held_out_is_tuned_for_no_row(run, tmp_path):
    ran = run("tune", "--ranges", "--hold-out", DECODE, "--budget", "2", "--no-report")
    assert sum(line.startswith(DECODE) for line in ran.out.splitlines()) == 1
    names = [row.problem.name for row in read_table(tmp_path / "out/table.json").rows]
    assert len(names) == 9
    assert DECODE not in names


def test_a_portfolio_of_recorded_problems_has_fewer_configs_within_the_losses_asked_for(run, tmp_path):
    recorded = {x.name: x for x in read_landscapes(embedded("triton_mm")[0])}
    problems = ["1x6144x4096:bf16:nt", DECODE, "16x28672x4096:bf16:nt"]
    (tmp_path / "c.toml").write_text(f"problems = {problems}\n[portfolio]\nworst = 0.10\nmean = 0.04\n")
    # The landscape without the vendor library's, so that every row ships a kernel.
    searched = ("--sampler", "exhaustive", "--budget", "348", "--replay", embedded("triton_mm")[0])
    found = run("tune", "c.toml", *searched, "--portfolio", "--json").record["portfolio"]
    assert (found["worst_allowed"], found["mean_allowed"]) == (0.10, 0.04)
    assert found["configs"] < found["configs_before"] == 3
    rows = read_table(tmp_path / "out/table.json").rows
    firsts = [row.choices[0].config for row in rows]
    assert len(set(firsts)) == found["configs"]
    losses = []
    for row, first in zip(rows, firsts, strict=True):
        landscape = recorded[row.problem.name]
        losses.append(landscape.points[first].time_ns / landscape.optimum_ns - 1)
        assert row.loss == pytest.approx(losses[-1])
    assert max(losses) == pytest.approx(found["worst_loss"])
    assert max(losses) <= 0.10
    assert sum(losses) / 3 == pytest.approx(found["mean_loss"])
    assert sum(losses) / 3 <= 0.04
    exported = json.loads((tmp_path / "out/inductor/lookup_table.json").read_text())
    assert sorted(row["BLOCK_N"] for (row,) in exported.values()) == sorted(c["BLOCK_N"] for c in firsts)
    before = (tmp_path / "out/table.json").read_bytes()
    again = run("tune", "c.toml", *searched)
    assert f"portfolio: {found['configs']} config" in again.out
    assert (tmp_path / "out/table.json").read_bytes() == before
    assert "loss" in run("show", "out/table.json").out


def test_what_a_file_leaves_open_the_command_line_says(run, small):
    (landscape,) = read_landscapes(small)
    write_landscapes("bare.csv", [replace(landscape, context={})])
    refused = run("tune", "--replay", "bare.csv", "--budget", "4")
    assert (refused.status, refused.err) == (
        2,
        "gemmtune: bare.csv has no column task.device: name the device\n",
    )
    assert run("tune", "--replay", "bare.csv", "--budget", "4", "--device", "h200").status == 0
    both = run("tune", "--replay", "bare.csv", "--device", "H200", "--space", "triton_mm", "--space", "aten")
    assert (both.status, both.err) == (
        2,
        "gemmtune: bare.csv has no column task.space: search one space, not triton_mm and aten\n",
    )


def test_events_are_lines_of_json(run, tmp_path):
    done = run("tune", "--problem", DECODE, "--sampler", "random", "--budget", "9", "--events", "events.jsonl")
    assert done.status == 0, done.err
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events].count("measured") == 10
    notice, began, *_, over = events
    assert (notice["event"], began["event"]) == ("notice", "began")
    assert (over["event"], over["reason"]) == ("over", "done")
    assert sum(began["tasks"].values()) == 10
    assert [event for event in events if not valid("events", event)] == []
    assert valid("table", json.loads((tmp_path / "out/table.json").read_text()))
    ends = {event["task"]: event["why"] for event in events if event["event"] == "ended"}
    assert ends == {f"H200/aten/{DECODE}": "all evaluated", f"H200/triton_mm/{DECODE}": "budget spent"}


def test_a_regret_target_ends_a_search_before_its_budget(run):
    told = ("tune", "--problem", DECODE, "--budget", "348", "--json")
    tasks = [run(*told, "--regret", regret, "--out", f"out{regret}").record["tasks"][0] for regret in ("0.5", "0.01")]
    assert tasks[0]["evaluations"] < tasks[1]["evaluations"] < 348
    assert tasks[0]["fraction_of_optimum"] > 1 / 1.5
    assert tasks[1]["fraction_of_optimum"] > 1 / 1.01


def test_tune_asks_pruners_about_recorded_builds(run):
    spills = "1024x1280x3420:bf16:nt"  # as every eleventh config does here
    arguments = ("--problem", spills, "--sampler", "random", "--budget", "32", "--json")
    _, plain, _ = run("tune", *arguments, "--out", "plain")
    status, pruned, _ = run("tune", *arguments, "--out", "pruned", "--pruner", "static")
    assert status == 0
    (without,), (task,) = json.loads(plain)["tasks"], json.loads(pruned)["tasks"]
    assert without["failures"] == {}
    assert 1 <= task["failures"]["invalid"] <= 16
    assert task["fraction_of_optimum"] == without["fraction_of_optimum"]
