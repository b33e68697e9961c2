"""What a person and a program get from the command line, on a machine without a GPU."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gemmtune.engine import cli
from gemmtune.engine.campaign import backend as origin
from gemmtune.engine.cli import campaigns, gpus, output
from gemmtune.engine.execution.replay import recorded_feasible
from gemmtune.engine.platform.gpu_info import present_device
from gemmtune.engine.processes.process_pool import Quarantined
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import Row
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.embedded import embedded
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes, write_landscapes
from gemmtune.engine.studies.sampler_study import replay_study
from gemmtune.engine.tables.table_file import read_table, write_table

pytestmark = pytest.mark.skipif(present_device() is not None, reason="with a GPU the command line measures")

GEMMTUNE = Path(sys.executable).with_name("gemmtune")
NO_GPU = "No GPU found; using the recorded landscapes.\n"
DECODE, MIDDLE = "16x4096x4096:bf16:nt", "128x2880x2880:bf16:nt"  # on the first triton_mm wins by a tenth
TWO = ("--problem", DECODE, "--problem", MIDDLE)
TUNE = ("tune", *TWO, "--sampler", "random", "--budget", "400")  # all there is of the first problem, 400 of the second
FILES = ("table.json", "inductor/lookup_table.json", "inductor/inductor_table.json", "inductor/gemmtune_inductor.py")


class Ran:
    """How one command ended."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def record(self) -> dict:
        return json.loads(self.out)


def script(*arguments: str | Path, cwd: Path) -> Ran:
    """The installed console script, in a process of its own."""
    done = subprocess.run([GEMMTUNE, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=100)
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """The command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["gemmtune", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return Ran(ended.value.code or 0, captured.out, captured.err)

    return command


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> Path:
    """A folder in which two problems were tuned into `out`; look, do not touch."""
    folder = tmp_path_factory.mktemp("tuned")
    assert script(*TUNE, cwd=folder).status == 0
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def shipped(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def row_of(problem: str, folder: Path) -> Row:
    return next(row for row in read_table(folder / "out/table.json").rows if row.problem.name == problem)


@cache
def recorded_configs(problem: str) -> int:
    (landscape,) = [x for x in read_landscapes(embedded("triton_mm")[0]) if x.name == problem]
    task = Task(Problem.parse(problem), catalogue.device("H200"), "triton_mm")
    return len(recorded_feasible(registry.space("triton_mm"), task, landscape))


def stored(path: Path) -> list[tuple]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT task_id, config, status, samples_ns FROM measurements ORDER BY id").fetchall()


def problem_columns(problem: str) -> Mapping[str, str]:
    fields = Problem.parse(problem).to_fields()
    return {f"problem.{name}": text for name, text in fields.items()}


# tune ---------------------------------------------------------------------------------------------------------------


def test_tune_without_anything_tunes_what_is_recorded(tmp_path):
    first = script("tune", cwd=tmp_path)
    assert (first.status, first.err) == (0, NO_GPU)
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
    again = script("tune", cwd=tmp_path)
    assert (again.status, again.out, again.err) == (0, first.out, first.err)
    after = contents(out)
    assert {name: after[name] for name in FILES} == {name: before[name] for name in FILES}
    assert stored(out / "measurements.db") == rows


def test_the_same_seed_elsewhere_gives_the_same_bytes_and_another_a_legal_table(run, tuned, tmp_path):
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


def test_tune_json_is_one_object_and_nothing_else(run, tuned):
    ran = run(*TUNE, "--json")
    assert (ran.status, ran.err) == (0, NO_GPU)
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
    assert record["written"] == [f"out/{name}" for name in (*FILES, "summary.txt")]
    assert all(Path(path).exists() for path in record["written"])
    assert fractions[0] == 1.0
    best = row_of(DECODE, tuned).choices[0]
    assert record["tasks"][0]["config"] == dict(best.config)
    assert record["tasks"][0]["score"] == best.time_ns
    assert record["tasks"][0]["baseline_score"] == row_of(DECODE, tuned).baseline.time_ns


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
    assert [(task["problem"], task["evaluations"]) for task in record["tasks"]] == [("256x6144x4096:bf16:nt", 4)]


def test_the_database_may_lie_elsewhere(run, tmp_path):
    assert run("tune", "--problem", DECODE, "--budget", "2", "--database", "all.db").status == 0
    assert len(stored(tmp_path / "all.db")) == 3
    assert not Path("out/measurements.db").exists()


def test_the_baseline_alone_can_be_tuned(run):
    ran = run("tune", "--space", "aten", "--problem", DECODE)
    assert ran.status == 0
    assert "1 problem in aten" in ran.out
    assert "rows of the table: 1 aten" in ran.out


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """The decode problem's landscape of triton_mm in a file of its own: every twelfth config, the best among them."""
    landscapes = read_landscapes(embedded("triton_mm")[0])
    whole = next(x for x in landscapes if x.problem and x.problem.name == DECODE)
    points = list(whole.points.items())[::12]
    points.append(min(whole.points.items(), key=lambda item: item[1].time_ns or 1e9))
    path = tmp_path_factory.mktemp("small") / "small.csv"
    write_landscapes(path, [replace(whole, points=dict(points))])
    return path


def test_tune_replays_the_file_it_is_given(run, small):
    ran = run("tune", "--replay", small, "--sampler", "exhaustive", "--budget", "1000", "--json")
    assert (ran.status, ran.err) == (0, "")
    (task,) = ran.record["tasks"]
    assert (task["problem"], task["fraction_of_optimum"], task["baseline_score"]) == (DECODE, 1.0, None)
    assert read_table(Path("out/table.json")).rows[0].choices[0].space == "triton_mm"


def test_ranges_of_m_are_made_shown_and_exported(run, tmp_path):
    """16 and 2048 rows of one GEMM, of which the library serves the second; nothing was recorded between."""
    large = "2048x4096x4096:bf16:nt"
    ran = run("tune", "--problem", DECODE, "--problem", large, "--ranges", "--sampler", "random", "--budget", "64")
    assert "ranges of m (measured edges): 2 ranges; loss 0.00% at worst, 0.00% in the mean at 2 tuned m" in ran.out
    small, beyond = read_table(tmp_path / "out/table.json").ranges
    assert (small.first, beyond.first, beyond.last) == (16, small.last + 1, 2048)
    assert f"mx4096x4096:bf16:nt  {beyond.first}–2048" in run("show", "out/table.json").out
    exported = json.loads((tmp_path / "out/inductor/inductor_table.json").read_text())
    (rows,) = exported["rows"].values()
    assert [(row["first"], row["last"]) for row in rows][:2] == [(16, 16), (2048, 2048)]
    assert (rows[-1]["last"], rows[-1]["template"]) == (2048, "aten::mm")
    held_out = run("tune", "--problem", DECODE, "--problem", MIDDLE, "--ranges", "--hold-out", large, "--budget", "8")
    assert "ranges of m: none, for no GEMM was tuned at two m or more" in held_out.out
    refusal(run("tune", "--problem", DECODE, "--hold-out", large), "there are no ranges to check")


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


def test_diff_says_in_which_rows_two_tables_differ(run, tuned):
    table = tuned / "out/table.json"
    same = run("diff", table, table)
    assert (same.status, same.out, same.err) == (0, "no difference\n", "")
    assert run("tune", *TWO, "--sampler", "random", "--budget", "3").status == 0
    differing = run("diff", table, "out/table.json", "--json")
    assert differing.status == 1
    assert differing.record["same"] is False
    changed = {change["problem"] for kind in ("winner", "time") for change in differing.record[kind]}
    assert changed <= {DECODE, MIDDLE}
    said = run("diff", table, "out/table.json")
    assert said.status == 1
    assert all(problem in said.out for problem in changed)


def test_what_a_file_leaves_open_the_command_line_says(run, small):
    (landscape,) = read_landscapes(small)
    write_landscapes("bare.csv", [replace(landscape, context={})])
    refused = run("tune", "--replay", "bare.csv", "--budget", "4")
    assert (refused.status, refused.err) == (
        2,
        "gemmtune: bare.csv has no column task.device: name the device with --device\n",
    )
    assert run("tune", "--replay", "bare.csv", "--budget", "4", "--device", "h200").status == 0
    both = run("tune", "--replay", "bare.csv", "--device", "H200", "--space", "triton_mm", "--space", "aten")
    assert (both.status, both.err) == (
        2,
        "gemmtune: bare.csv has no column task.space: search one space, not triton_mm and aten\n",
    )


# space, replay, show, export, record --------------------------------------------------------------------------------


def test_space_counts_every_point_once(run):
    record = run("space", "triton_mm", "--problem", DECODE, "--device", "h200", "--json").record
    assert (record["space"], record["problem"], record["device"]) == ("triton_mm", DECODE, "H200")
    points = 1
    for values in record["params"].values():
        points *= len(values)
    assert record["points"] == points == record["feasible"] + sum(record["rejections"].values())
    assert record["params"]["BLOCK_M"] == [16, 32, 64, 128, 256]
    assert record["examples"].keys() == record["rejections"].keys()
    assert record["examples"]["BLOCK_M beyond the problem"] == "BLOCK_M 32 > 16, the padded m of 16"
    assert record["seeds"]
    assert all(seed.keys() == record["params"].keys() for seed in record["seeds"])


def test_space_for_a_person_says_the_same(run):
    ran = run("space", "triton_mm", "--problem", DECODE)
    assert ran.status == 0
    record = run("space", "triton_mm", "--problem", DECODE, "--json").record
    assert f"{record['points']} points, {record['feasible']} feasible, {len(record['seeds'])} seeds" in ran.out
    for name, values in record["params"].items():
        assert re.search(rf"^{name} +{' '.join(map(str, values))}$", ran.out, re.MULTILINE)
    for rule, count in record["rejections"].items():
        assert re.search(rf"^{rule} +{count}  {re.escape(record['examples'][rule])}$", ran.out, re.MULTILINE)


def test_replay_json_is_the_promised_object(run, small):
    ran = run("replay", small, "--sampler", "random", "--budget", "6", "--seeds", "3", "--json")
    assert (ran.status, ran.err) == (0, "")
    record = ran.record
    assert list(record) == ["sampler", "budget", "seeds", "fraction_of_optimum", "problems"]
    assert (record["sampler"], record["budget"], record["seeds"]) == ("random", 6, 3)
    assert list(record["problems"]) == [DECODE]
    assert 0 < record["problems"][DECODE] == record["fraction_of_optimum"] <= 1
    assert record == replay_study(read_landscapes(small), "random", 6, seeds=3).to_json()


def test_replay_for_a_person_ends_with_the_mean(run, small):
    lines = run("replay", small, "--sampler", "exhaustive", "--budget", "1000", "--seeds", "1").out.splitlines()
    assert lines[0] == "sampler exhaustive, budget 1000, 1 seed: optimum / best found"
    assert [line.split() for line in lines[-2:]] == [[DECODE, "1.0000"], ["mean", "1.0000"]]


def test_show_reads_a_table(run, tuned):
    table = read_table(tuned / "out/table.json")
    record = run("show", tuned / "out/table.json", "--json").record
    assert (record["device"], record["objective"]) == ("H200", "latency")
    assert [(row["problem"], row["choices"][0]["config"]) for row in record["rows"]] == [
        (row.problem.name, dict(row.choices[0].config)) for row in table.rows
    ]
    assert [row["choices"][0]["time_ns"] for row in record["rows"]] == [row.choices[0].time_ns for row in table.rows]
    text = run("show", tuned / "out/table.json").out
    assert text.startswith("NVIDIA H200: 2 rows, objective latency, replayed\n")
    row = row_of(DECODE, tuned)
    (line,) = [line for line in text.splitlines() if line.startswith(DECODE)]
    config = row.choices[0].config
    assert line.endswith(f"BLOCK_M={config['BLOCK_M']} BLOCK_N={config['BLOCK_N']} BLOCK_K={config['BLOCK_K']} "
                         f"GROUP_M={config['GROUP_M']} num_stages={config['num_stages']} "
                         f"num_warps={config['num_warps']}")  # fmt: skip
    assert f" {row.choices[0].time_ns / 1e3:.1f} " in line


def test_show_reads_a_database(run, tuned):
    record = run("show", tuned / "out/measurements.db", "--json").record
    tasks = {task["task"]: task for task in record["tasks"]}
    assert set(tasks) == {f"H200/{space}/{problem}" for space in ("aten", "triton_mm") for problem in (DECODE, MIDDLE)}
    best = tasks[f"H200/triton_mm/{DECODE}"]
    assert (best["evidence"], best["evaluations"], best["failures"]) == ("replayed", recorded_configs(DECODE), {})
    choice = row_of(DECODE, tuned).choices[0]
    assert (best["best_ns"], best["best_config"]) == (choice.time_ns, dict(choice.config))
    assert tasks[f"H200/aten/{DECODE}"]["best_config"] == {}
    text = run("show", tuned / "out/measurements.db").out
    assert text.startswith(f"4 tasks, {recorded_configs(DECODE) + 400 + 2} measurements\n")
    (line,) = [line for line in text.splitlines() if line.startswith(f"H200/triton_mm/{DECODE} ")]
    assert line.split()[1:4] == ["replayed", str(recorded_configs(DECODE)), f"{choice.time_ns / 1e3:.1f}"]


def test_status_tells_of_a_campaign_from_its_database(run, tuned):
    done = run("status", tuned / "out/measurements.db")
    assert done.out.splitlines()[0].startswith("2 problems, 750 measurements; last measured 2026-11-21")
    (line,) = [line for line in done.out.splitlines() if f"H200/{DECODE}" in line]
    table = read_table(tuned / "out/table.json")
    (row,) = [row for row in table.rows if row.problem.name == DECODE]
    assert f"{row.choices[0].time_ns / 1e3:.1f}" in line.split()
    record = run("status", "--json", tuned / "out/measurements.db").record
    assert (record["measurements"], len(record["problems"])) == (750, 2)


def test_databases_are_merged_and_say_what_was_new(run, tuned, tmp_path):
    held = tuned / "out/measurements.db"
    assert run("merge", "all.db", held, held).out.splitlines() == [
        f"{held}: 750 measurements, 750 new; 0 finals, 0 new",
    ]
    assert stored(tmp_path / "all.db") == stored(held)
    again = run("merge", "--json", "all.db", held).record
    assert again == {str(held): {"measurements": 750, "new": 0, "finals": 0, "new_finals": 0}}


def test_a_database_becomes_optuna_studies(run, tuned, tmp_path):
    import optuna

    held = tuned / "out/measurements.db"
    small_part = tmp_path / "part.db"
    with Database.open(held) as source, Database.open(small_part) as target:
        target.add(list(source.measurements())[:12])
    done = run("show", small_part, "--optuna", f"sqlite:///{tmp_path / 'studies.db'}")
    assert done.out.splitlines()[-1] == f"to look at them: optuna-dashboard sqlite:///{tmp_path / 'studies.db'}"
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path / 'studies.db'}")
    assert sum(study.n_trials for study in optuna.get_all_study_summaries(storage=storage)) == 12
    storage.remove_session()
    storage.engine.dispose()
    refused_ = run("show", tuned / "out/table.json", "--optuna", "sqlite:///x.db")
    refusal(refused_, "is a table: name the database")


def test_events_are_lines_of_json(run, tmp_path):
    done = run("tune", "--problem", DECODE, "--sampler", "random", "--budget", "9", "--events", "events.jsonl")
    assert done.status == 0, done.err
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events].count("measured") == 10
    assert (events[0]["event"], events[-1]["event"], events[-1]["reason"]) == ("began", "over", "done")
    assert sum(events[0]["tasks"].values()) == 10
    ends = {event["task"]: event["why"] for event in events if event["event"] == "ended"}
    assert ends == {f"H200/aten/{DECODE}": "all evaluated", f"H200/triton_mm/{DECODE}": "budget spent"}


def test_a_regret_target_ends_a_search_before_its_budget(run):
    told = ("tune", "--problem", DECODE, "--budget", "348", "--json")
    tasks = [run(*told, "--regret", regret, "--out", f"out{regret}").record["tasks"][0] for regret in ("0.5", "0.01")]
    assert tasks[0]["evaluations"] < tasks[1]["evaluations"] < 348
    assert tasks[0]["fraction_of_optimum"] > 1 / 1.5
    assert tasks[1]["fraction_of_optimum"] > 1 / 1.01


def test_export_writes_what_tune_wrote(run, tuned, tmp_path):
    ran = run("export", tuned / "out/table.json", "--to", "inductor", "--out", "exported", "--device", "H200")
    assert ran.status == 0
    assert ran.out.splitlines() == [f"exported/{name}" for name in FILES[1:]]
    for name in FILES[1:]:
        assert (tmp_path / "exported" / name).read_bytes() == (tuned / "out" / name).read_bytes()


def test_record_needs_a_gpu_and_says_so(run, tmp_path):
    refusal(run("record", "--problem", DECODE), "record measures", "no GPU here")
    assert contents(tmp_path) == {}


def test_a_narrow_terminal_gets_the_config_below_its_row(run, tuned, monkeypatch):
    monkeypatch.setattr(output, "columns", lambda: 80)
    for shown in ("table.json", "measurements.db"):
        lines = run("show", tuned / "out" / shown).out.splitlines()
        assert max(map(len, lines)) <= 80
        row = next(number for number, line in enumerate(lines) if DECODE in line and "triton_mm" in line)
        assert lines[row + 1].startswith("    BLOCK_M=")


def test_without_arguments_help_is_what_comes(tmp_path):
    helped = script("--help", cwd=tmp_path)
    assert helped.status == 0
    assert all(command in helped.out for command in ("tune", "record", "replay", "show", "export", "space"))
    bare = script(cwd=tmp_path)
    assert (bare.status, bare.out, bare.err) == (0, helped.out, "")


def test_the_command_line_starts_without_the_heavy_packages(tmp_path):
    program = "import sys; import gemmtune.engine.cli; print(sorted({'torch', 'triton', 'optuna'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "[]\n"


# bad input: one line, status 2, nothing touched ---------------------------------------------------------------------


def refusal(ran: Ran, *said: str) -> None:
    assert ran.status == 2, ran.err
    assert ran.out == ""
    assert re.fullmatch(r"gemmtune: [^\n]+\n", ran.err), ran.err
    for words in said:
        assert words in ran.err


@pytest.fixture
def refused(run, tuned, small, tmp_path):
    """Check that a command is refused in one line that says these words, in a folder of earlier results."""

    def check(arguments: Sequence[str | Path], *said: str) -> None:
        before = contents(tmp_path)
        refusal(run(*arguments), *said)
        assert contents(tmp_path) == before

    (tmp_path / "out/inductor").mkdir(parents=True)
    for name in (*FILES, "measurements.db", "summary.txt"):
        (tmp_path / "out" / name).write_bytes((tuned / "out" / name).read_bytes())
    (tmp_path / "small.csv").write_text(small.read_text())
    return check


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tune", "--space", "triton"], ["no space 'triton'", "aten, cute_gemm, "]),
        (["space", "triton", "--problem", DECODE], ["no space 'triton'", "aten, cute_gemm, "]),
        (["tune", "--sampler", "anneal"], ["no sampler 'anneal'", "evolution, exhaustive, gp"]),
        (["replay", "small.csv", "--sampler", "anneal"], ["no sampler 'anneal'", "evolution, exhaustive, gp"]),
        (["tune", "--objective", "beauty"], ["no objective 'beauty'", "known: energy, latency, latency_energy"]),
        (["tune", "--objective", "energy"], ["has no energy", "events-cold-l2", "measure on a GPU"]),
        (["tune", "--objective", "latency_energy"], ["has no energy", "measure on a GPU"]),
        (["tune", "--objective", "latency_warm"], ["graph-warm-l2", "with events-cold-l2", "measure on a GPU"]),
        (
            ["tune", "--pruner", "secateurs"],
            ["no pruner 'secateurs'", "known: hyperband, median, prior, static, successive_halving, wilcoxon"],
        ),
        (["export", "out/table.json", "--to", "abacus"], ["no exporter 'abacus'", "known: cute, inductor"]),
        (["tune", "--device", "H300"], ["no device 'H300'", "H100-PCIe, H100-SXM, H200"]),
        (["space", "triton_mm", "--problem", DECODE, "--device", "H300"], ["no device 'H300'", "H200"]),
        (["tune", "--device", "H100"], ["H100-SXM", "no GPU here", "of H200"]),
        (["tune", "--device", "H100", "--replay", "small.csv"], ["H100-SXM", "of H200"]),
        (["tune", "--problem", "16x4096"], ["malformed problem '16x4096'", "2048x4096x4096:bf16:nt"]),
        (["tune", "--problem", ""], ["malformed problem ''", "2048x4096x4096:bf16:nt"]),
        (["tune", "--problem", "16x4096x4096\n:bf16"], ["malformed problem '16x4096x4096\\n:bf16'"]),
        (["space", "triton_mm", "--problem", "sixteen"], ["malformed problem 'sixteen'"]),
        (["record", "--problem", "16xx4096"], ["malformed problem '16xx4096'"]),
        (["tune", "--problem", "0x4096x4096"], ["m=0 ", "from 1 to 2147483647"]),
        (["tune", "--problem", f"{2**31}x4096x4096"], ["m=2147483648 ", "from 1 to 2147483647"]),
        (["tune", "--problem", "16x4096x4096:bf17"], ["'bf17'", "bf16, fp16, fp32"]),
        (["tune", "--problem", "16x4096x4096:bf16:qq"], ["layout 'qq'", "nn, nt, tn, tt"]),
        (["tune", "--problem", DECODE, "--problem", "16x4096x4096"], [f"problem {DECODE} is named 2 times"]),
        (["tune", "--problem", "17x4096x4096"], ["17x4096x4096:bf16:nt is not recorded", "GPU", DECODE, MIDDLE]),
        (["tune", "--replay", "small.csv", "--problem", MIDDLE], [f"{MIDDLE} is not recorded", f"recorded: {DECODE}"]),
        (["tune", "--replay", "small.csv", "--space", "aten"], ["nothing is recorded in space aten", "triton_mm"]),
        (["tune", "--replay", "none.csv"], ["no landscape file none.csv"]),
        (["replay", "none.csv"], ["no landscape file none.csv"]),
        (["replay", "out/table.json"], ["out/table.json"]),
        (["show", "none.json"], ["none.json", "No such file"]),
        (["show", "none.db"], ["no database none.db", "gemmtune tune"]),
        (["show", "out/summary.txt"], ["out/summary.txt", "not a database"]),
        (["export", "none.json"], ["none.json", "No such file"]),
        (["export", "small.csv"], ["small.csv", "not a table"]),
        (["export", "out/table.json", "--device", "H100"], ["NVIDIA H200", "NVIDIA H100", "tune on this GPU"]),
        (["tune", "none.toml"], ["none.toml", "No such file"]),
        (["tune", "small.csv"], ["small.csv is not TOML"]),
        (["tune", "--budget", "0"], ["--budget", "1", "gemmtune tune --help"]),
        (["tune", "--budget", "many"], ["--budget", "integer", "gemmtune tune --help"]),
        (["tune", "--seed", "-1"], ["--seed", "0", "gemmtune tune --help"]),
        (["tune", "--batch", "0"], ["--batch", "1", "gemmtune tune --help"]),
        (["replay", "small.csv", "--seeds", "0"], ["--seeds", "1", "gemmtune replay --help"]),
        (["tune", "--sampling", "random"], ["--sampling", "gemmtune tune --help"]),
        (["tune", "one.toml", "two.toml"], ["two.toml", "gemmtune tune --help"]),
        (["space", "triton_mm"], ["--problem", "gemmtune space --help"]),
        (["replay"], ["FILE", "gemmtune replay --help"]),
        (["tuna"], ["'tuna'", "gemmtune --help"]),
    ],
)
def test_a_wrong_use_is_one_line_and_touches_nothing(refused, arguments, said):
    refused(arguments, *said)


def test_the_console_script_ends_as_the_process_should(tmp_path):
    refusal(script("tune", "--space", "triton", cwd=tmp_path), "no space 'triton'")
    refusal(script("tune", "--budget", "0", cwd=tmp_path), "--budget")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("campaign", "said"),
    [
        (
            "budgets = 5",
            ["unknown key 'budgets'", "batch, budget, gpu_seconds, hold_out, margin, objective, portfolio, problem"],
        ),
        ("budget = '5'", ["budget='5' is not an integer"]),
        ("budget = 5.5", ["budget=5.5 is not an integer"]),
        ("budget = true", ["budget=True is not an integer"]),
        ("budget = 0", ["budget=0 is below 1"]),
        ("seed = -1", ["seed=-1 is below 0"]),
        ("batch = 0", ["batch=0 is below 1"]),
        ("seconds = 0", ["seconds=0.0 is not above 0"]),
        ("regret = true", ["regret=True is not a number"]),
        ("sampler = 3", ["sampler=3 is not a text"]),
        ("space = []", ["no space to search"]),
        ("space = 'triton'", ["no space 'triton'"]),
        ("problem = 'x'", ["problem='x' is not a list of tables"]),
        ("problem = ['16x16x16']", ["problem 1='16x16x16' is not a table"]),
        ("problems = ['16x16']", ["malformed problem '16x16'"]),
        ("[[problem]]\nm = 1\nn = 1", ["'k' is missing"]),
        ("[[problem]]\nm = 1\nn = 1\nk = 1\nq = 1", ["unknown problem field 'q'"]),
        ("[[problem]]\nm = 1\nn = 1\nk = 1\nweight = 0", ["weight=0"]),
        ("budget = ", ["not TOML"]),
        ("\x00", ["not TOML"]),
    ],
)
def test_a_wrong_campaign_file_is_named(refused, tmp_path, campaign, said):
    (tmp_path / "wrong.toml").write_text(campaign)
    named = [] if "no space 'triton'" in said else ["wrong.toml"]
    refused(["tune", "wrong.toml"], *named, *said)


def test_a_landscape_without_a_column_it_needs(refused, tmp_path, small):
    lines = small.read_text().splitlines()
    for column, said in (("status", "no column status"), ("time_us", "time_us or time_ms")):
        (tmp_path / "lacking.csv").write_text("\n".join([lines[0].replace(column, "gone.gone"), *lines[1:]]))
        refused(["tune", "--replay", "lacking.csv"], "lacking.csv", said)
        refused(["replay", "lacking.csv"], "lacking.csv", said)
    (tmp_path / "lacking.csv").write_text("\n".join([lines[0].replace("problem.m", "gone.gone"), *lines[1:]]))
    refused(["tune", "--replay", "lacking.csv"], "lacking.csv", "problem.m")


def test_a_landscape_of_other_parameters(refused, tmp_path):
    columns = dict(problem_columns(DECODE)) | {"task.device": "H200", "x": "1", "time_us": "2.0", "status": "ok"}
    (tmp_path / "x.csv").write_text(f"{','.join(columns)}\n{','.join(columns.values())}\n")
    refused(["tune", "--replay", "x.csv"], "x.csv", "parameters x", "space triton_mm has BLOCK_K", "task.space")


def test_a_landscape_of_values_the_space_does_not_have(refused, tmp_path, small):
    (landscape,) = read_landscapes(small)
    config, point = next(iter(landscape.points.items()))
    strange = type(config)({**config, "BLOCK_M": 48})
    write_landscapes(tmp_path / "s.csv", [replace(landscape, points={strange: replace(point, config=strange)})])
    refused(["tune", "--replay", "s.csv"], "s.csv", "none of the 1 configs", "feasible in space triton_mm")


def test_landscapes_of_two_devices(refused, tmp_path, small):
    (landscape,) = read_landscapes(small)
    other = replace(landscape, context=dict(landscape.context) | {"device": "H100"})
    write_landscapes(tmp_path / "other.csv", [other])
    refused(["tune", "--replay", "small.csv", "--replay", "other.csv"], "2 devices", "H100, H200")


def test_a_landscape_that_names_no_gemm(refused, tmp_path):
    (tmp_path / "conv.csv").write_text("x,time_us,status\n1,2.0,ok\n2,3.0,ok\n")
    refused(["tune", "--replay", "conv.csv", "--device", "H200"], "conv.csv", "gemmtune replay conv.csv")


def test_a_damaged_table_is_neither_shown_nor_exported(refused, tmp_path):
    whole = (tmp_path / "out/table.json").read_text()
    damages = {
        "truncated": whole[: len(whole) // 2],
        "edited": whole.replace('"samples": 9', '"samples": 8', 1),
        "newer": whole.replace('"schema": 5', '"schema": 6', 1),
        "empty": "",
    }
    for said, text in damages.items():
        assert text != whole
        (tmp_path / "damaged.json").write_text(text)
        refused(["export", "damaged.json"], "damaged.json", said)
        refused(["show", "damaged.json"], "damaged.json", said)


def test_a_table_that_a_consumer_cannot_be_given_is_not_exported(refused, tmp_path):
    table = read_table(tmp_path / "out/table.json")
    row = table.rows[0]
    foreign = replace(row, choices=(replace(row.choices[0], space="toy"),))
    write_table(tmp_path / "foreign.json", replace(table, rows=(foreign,)))
    refused(["export", "foreign.json"], "no Inductor template of mm for space 'toy'", "aten, triton_mm")


@pytest.mark.parametrize("out", ["small.csv/out", "small.csv", "/proc/gemmtune"])
def test_an_output_folder_that_cannot_be_written(refused, out):
    refused(["tune", "--problem", DECODE, "--out", out], f"cannot write to {out}", "--out")
    refused(["export", "out/table.json", "--out", out], f"cannot write to {out}", "--out")


def test_a_database_where_none_can_be(refused):
    refused(["tune", "--database", "small.csv/x.db"], "small.csv/x.db", "folder must exist and be writable")
    refused(["tune", "--database", "nosuchdb://x"], "cannot open database nosuchdb://x")


def test_a_database_of_a_newer_schema(refused, tmp_path):
    with closing(sqlite3.connect(tmp_path / "out/measurements.db")) as connection:
        connection.execute("UPDATE schema_version SET version = 99")
        connection.commit()
    for arguments in (["tune", *TWO], ["show", "out/measurements.db"]):
        refused(arguments, "out/measurements.db has schema 99", "knows schema 3", "use the gemmtune that wrote it")


def test_a_database_that_is_none_or_of_something_else(refused, tmp_path):
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    (tmp_path / "text.db").write_text("not a database, only a text that is long enough to be taken for one" * 20)
    for arguments in (["show"], ["tune", "--problem", DECODE, "--database"]):
        refused([*arguments, "theirs.db"], "theirs.db is a database of something else", "songs")
        refused([*arguments, "text.db"], "text.db", "not a database")


# on paper -----------------------------------------------------------------------------------------------------------

ON_PAPER = ("tune", "--device", "B200", "--space", "toy_priced", "--problem", "64x64x64", "--budget", "3")


@pytest.fixture
def on_paper(run, toy_priced) -> Ran:
    """A campaign for a B200, of which there is none here: three builds, one of which fails."""
    return run(*ON_PAPER, "--builders", "1", "--sampler", "random")


def test_a_device_that_is_not_here_is_built_for_and_estimated(on_paper, tmp_path):
    assert on_paper.status == 0, on_paper.err
    assert on_paper.err == "No NVIDIA B200 here: kernels are built for it and not timed (estimate: toy model 1.0).\n"
    (row,) = read_table(tmp_path / "out/table.json").rows
    assert [(c.config["TILE"], c.time_ns, c.samples, c.evidence) for c in row.choices] == [
        (2, 2000.0, 0, Evidence.ESTIMATED),
        (3, 3000.0, 0, Evidence.ESTIMATED),
    ]
    assert (row.baseline, row.margin) == (None, 0.0)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "asked.json",
        "measurements.db",
        "summary.txt",
        "table.json",
    ]
    with Database.open(tmp_path / "out/measurements.db") as database:
        kept = {m.config["TILE"]: m for m in database.measurements()}
    assert {tile: m.status for tile, m in kept.items()} == {1: Status.BUILD_FAILED, 2: Status.OK, 3: Status.OK}
    assert (kept[3].resources.registers, kept[3].build_seconds) == (48, 0.5)


def test_its_summary_says_what_was_built_and_why_nothing_is_exported(on_paper):
    lines = on_paper.out.splitlines()
    assert lines[0] == "NVIDIA B200, built for sm_100a and estimated, not timed: 1 problem in toy_priced"
    assert lines[1] == "sampler exhaustive, budget 3, seed 0"
    assert re.split(r"\s{2,}", lines[3]) == [
        "problem", "estimated µs", "registers", "shared B", "spilled B", "build s", "evals", "failed", "ships",
        "best config",
    ]  # fmt: skip
    assert re.split(r"\s{2,}", lines[5]) == [
        "64x64x64:bf16:nt", "2.0", "32", "2048", "0", "0.5", "3", "1", "toy_priced", "TILE=2"
    ]  # fmt: skip
    notes = [line for line in lines if line.startswith("not exported to ")]
    assert [note.split()[3] for note in notes] == ["inductor:"]  # CuTe's dispatchers run nothing of this space
    assert "1 of 1 rows are estimated, not timed (64x64x64:bf16:nt): tune on an NVIDIA B200" in notes[0]


def test_space_says_what_a_model_expects_or_why_there_is_none(run, toy_priced):
    described = ("space", "toy_priced", "--problem", DECODE)
    assert "10 points, 9 feasible, 1 seed\n8 estimated by toy model 1.0\n" in run(*described).out
    record = run(*described, "--device", "L4", "--json").record
    assert (record["estimated"], record["model"]) == (0, "")
    assert record["without_estimates"] == "the toy model does not know the NVIDIA L4"


def test_an_estimate_is_shown_without_an_interval(run, on_paper):
    line = run("show", "out/table.json").out.splitlines()[4]
    assert re.split(r"\s{2,}", line)[:4] == ["64x64x64:bf16:nt", "toy_priced", "2.0", "-"]


def test_programs_are_told_that_it_is_an_estimate(run, toy_priced):
    assert run(*ON_PAPER, "--json").record["evidence"] == ["estimated"]
    (choice, _) = run("show", "out/table.json", "--json").record["rows"][0]["choices"]
    assert (choice["evidence"], choice["samples"]) == ("estimated", 0)
    assert run("show", "out/table.json").out.startswith("NVIDIA B200: 1 row, objective latency, estimated\n")


def test_the_same_campaign_again_builds_nothing_and_writes_the_same_bytes(run, on_paper, tmp_path):
    table, rows = (tmp_path / "out/table.json").read_bytes(), stored(tmp_path / "out/measurements.db")
    assert run(*ON_PAPER).out == on_paper.out
    assert (tmp_path / "out/table.json").read_bytes() == table
    assert stored(tmp_path / "out/measurements.db") == rows


def test_estimated_rows_are_exported_only_when_asked_for(run, tuned, tmp_path):
    table = read_table(tuned / "out/table.json")
    rows = [
        replace(row, choices=tuple(replace(c, evidence=Evidence.ESTIMATED) for c in row.choices)) for row in table.rows
    ]
    write_table(tmp_path / "paper.json", replace(table, rows=tuple(rows)))
    refusal(run("export", "paper.json"), "2 of 2 rows are estimated", "gemmtune export --estimated")
    assert not (tmp_path / "inductor").exists()
    assert run("export", "paper.json", "--estimated").status == 0
    rows = json.loads((tmp_path / "inductor/inductor_table.json").read_text())["rows"].values()
    assert {row["facts"]["evidence"] for of_product in rows for row in of_product} == {"estimated"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "B200", "--problem", DECODE], ["no GPU here", "of H200; nor can it be estimated", "triton_mm"]),
        (["--device", "L4", "--space", "toy_priced", "--problem", DECODE], ["of H200", "does not know the NVIDIA L4"]),
        (["--device", "B200", "--space", "toy_priced"], ["of H200", "no problem to tune: name one"]),
        (["--device", "H200", "--space", "aten", "--space", "toy_priced", "--problem", DECODE],
         ["nothing is recorded in space toy_priced", "space aten has no estimate"]),
    ],
)  # fmt: skip
def test_what_can_neither_be_replayed_nor_estimated_is_refused(run, toy_priced, tmp_path, arguments, said):
    refusal(run("tune", *arguments), *said)
    assert contents(tmp_path) == {}


def test_a_space_that_is_not_recorded_is_estimated_where_its_device_is(run, toy_priced):
    ran = run("tune", "--device", "H200", "--space", "toy_priced", "--problem", DECODE, "--budget", "2")
    assert (ran.status, ran.err.split(":")[0]) == (0, "No NVIDIA H200 here"), ran.err


def test_a_gpu_of_another_model_does_not_stand_in_the_way(run, toy_priced, monkeypatch):
    monkeypatch.setattr(origin, "present_device", lambda: catalogue.device("H200"))
    assert run(*ON_PAPER).err.startswith("No NVIDIA B200 here")
    refusal(
        run("tune", "--device", "B200", "--problem", DECODE), "--device B200, but the GPU here is NVIDIA H200 (H200)"
    )


# a GPU that is only pretended ----------------------------------------------------------------------------------------


class PretendedFleet:
    """Stands in for LocalExecutor: everything is ok and takes 10 µs."""

    evidence = Evidence.MEASURED
    settles = True
    parallel = 1

    def __init__(self, spaces, protocol_name, **options):
        self.protocol_name, self.options, self.queue, self.collected = protocol_name, options, [], 0
        type(self).last = self

    def toolchain(self, task):
        return Toolchain((("pretended", "1"),))

    def protocol(self, task):
        return self.protocol_name

    def submit(self, task, config):
        self.queue.append((task, config))

    def settle(self, candidates):
        raise AssertionError("no final is due")

    def collect(self, timeout_seconds):
        finished, self.queue = [self.measured(task, config) for task, config in self.queue], []
        self.collected += len(finished)
        return finished

    def measured(self, task, config):
        return Measurement(
            task, config, Status.OK, self.evidence, self.protocol_name, self.toolchain(task), "pretended", "2026-11-21",
            samples_ns=(1e4,) * 32, estimate=Estimate(1e4, 1e4, 1e4), energy_joules=0.004,
        )  # fmt: skip

    def close(self):
        pass


@pytest.fixture
def pretended(monkeypatch):
    for module in (gpus, origin):
        monkeypatch.setattr(module, "present_device", lambda: catalogue.device("H200"))

    def use(executor=PretendedFleet):
        for module in (campaigns, origin):
            monkeypatch.setattr(module, "LocalExecutor", executor)
        return executor

    return use


def test_a_lost_gpu_is_one_line_below_what_was_done_and_everything_measured_stays(run, pretended, tmp_path):
    class Loses(PretendedFleet):
        def collect(self, timeout_seconds):
            if self.collected >= 9:
                raise Quarantined("GPU 0 is quarantined: 3 worker processes in a row could not start; what was ...")
            return super().collect(timeout_seconds)

    pretended(Loses)
    ran = run("tune", "--problem", DECODE, "--budget", "40", "--batch", "8")
    summary, _, ran.err = ran.err.partition("\n")
    assert re.fullmatch(r"9 evaluations in \d+ s; \S+/s; 1 of 2 tasks done", summary)
    refusal(ran, "gemmtune: GPU 0 is quarantined: 3 worker processes in a row could not start")
    assert len(stored(tmp_path / "out/measurements.db")) == 9  # the baseline and a batch
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["measurements.db"]


def test_a_recorded_landscape_has_all_samples_of_every_config_and_no_final(run, pretended, tmp_path):
    executor = pretended()
    ran = run("record", "--problem", "64x64x64", "--out", "recorded")
    assert ran.status == 0, ran.err
    assert executor.last.options["racing"] is False
    (landscape,) = read_landscapes(tmp_path / "recorded/h200_triton_mm.csv.gz")
    assert len(landscape.points) > 8
    assert {len(point.samples_ns) for point in landscape.points.values()} == {32}
    assert landscape.context["protocol"] == "graph-cold-l2"


@pytest.mark.parametrize(
    ("objective", "unit", "protocol", "score"),
    [("energy", "J", "graph-cold-l2+energy", 0.004), ("latency_warm", "ns", "graph-warm-l2", 1e4)],
)
def test_an_objective_is_measured_by_its_protocol_and_told_in_its_unit(
    run, pretended, objective, unit, protocol, score
):
    class HoldsNoFinal(PretendedFleet):
        settles = False

    executor = pretended(HoldsNoFinal)
    record = run("tune", "--problem", DECODE, "--budget", "8", "--objective", objective, "--json").record
    assert executor.last.protocol_name == protocol
    assert (record["objective"], record["unit"]) == (objective, unit)
    assert [(task["score"], task["baseline_score"]) for task in record["tasks"]] == [(score, score)]


@pytest.fixture
def prepared(monkeypatch):
    """The spaces whose builders were prepared, of a machine that has a GPU."""
    spaces = []
    monkeypatch.setattr(campaigns, "gpu_names", lambda: ("NVIDIA H200",))
    monkeypatch.setattr(campaigns, "prepare_builders", spaces.append)
    return spaces


def test_builders_are_prepared_where_a_campaign_begins_and_not_where_it_is_finished(run, pretended, prepared):
    class HoldsNoFinal(PretendedFleet):
        settles = False

    pretended(HoldsNoFinal)
    campaign = ("tune", "--problem", DECODE, "--budget", "8")
    assert (run(*campaign).status, prepared) == (0, [("triton_mm",)])
    assert (run(*campaign).status, prepared) == (0, [("triton_mm",)])


@pytest.mark.parametrize(
    "arguments",
    [("--space", "nonesuch"), ("--sampler", "nonesuch"), ("--fleet", "slurm"), ("--replay", "none.csv")],
    ids=lambda arguments: arguments[0],
)
def test_no_builder_is_prepared_where_there_is_nothing_to_build(run, pretended, prepared, arguments):
    assert (run("tune", "--problem", DECODE, *arguments).status, prepared) == (2, [])


def test_a_fleet_that_is_none_is_refused_with_those_there_are(run):
    refusal(run("tune", "--fleet", "slurm"), "no executor 'slurm'; known: local, ray, ray://HOST:PORT")


def test_clocks_are_locked_on_this_machine_only(run):
    refusal(run("tune", "--fleet", "ray", "--lock-clocks", "1500"), "--lock-clocks locks GPUs of this machine")


# stopped ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_campaign_says_so_and_keeps_what_it_has(tmp_path, number):
    arguments = ["tune", "--problem", MIDDLE, "--sampler", "tpe", "--budget", "3000", "--batch", "1"]
    # A background job of a shell ignores Ctrl-C, and so would this one, where the tests are such a job.
    program = "import os, signal, sys; signal.signal({}, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", program.format(int(number)), GEMMTUNE, *arguments]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    database = tmp_path / "out/measurements.db"
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if database.exists() and database.stat().st_size and len(_measured(database)) > 20:
            break
        time.sleep(0.1)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert out == ""
    assert err.startswith(NO_GPU)
    summary, stopped = err.removeprefix(NO_GPU).splitlines()
    assert re.fullmatch(r"\d+ evaluations in \d+ s; \S+/s; 1 of 2 tasks done", summary)
    assert stopped.startswith("gemmtune: stopped; ")
    with Database.open(database) as opened:
        kept = list(opened.measurements())
    assert 20 < len(kept) < 3001
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["measurements.db"]


def _measured(path: Path) -> list[tuple]:
    try:
        return stored(path)
    except sqlite3.OperationalError:  # its tables are being made
        return []
