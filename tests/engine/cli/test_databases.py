"""`gemmtune campaigns`: what a database holds, orders, and merging; and tables merged by `gemmtune export`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, ReferenceLevel, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import BoardVerdict, Trust
from gemmtune.engine.store.database import Database
from gemmtune.engine.tables.table_file import read_table, write_table

DECODE = "16x4096x4096:bf16:nt"
ENDS = """
import os
import signal
import gemmtune as gt

class Ends(gt.Sampler):
    def ask(self, count):
        os.kill(os.getpid(), signal.SIGKILL)

    def tell(self, trials):
        pass
"""


def test_status_tells_of_a_campaign_from_its_database(run, tuned):
    done = run("campaigns", tuned / "out/measurements.db")
    assert done.out.splitlines()[0].startswith("2 problems, 750 measurements; replayed from recordings of 2026-11-21")
    (line,) = [line for line in done.out.splitlines() if f"H200/{DECODE}" in line]
    table = read_table(tuned / "out/table.json")
    (row,) = [row for row in table.rows if row.problem.name == DECODE]
    assert f"{row.choices[0].time_ns / 1e3:.1f}" in line.split()
    record = run("campaigns", "--json", tuned / "out/measurements.db").record
    assert (record["measurements"], len(record["problems"])) == (750, 2)


def test_databases_are_merged_and_say_what_was_new(run, tuned, tmp_path, stored):
    held = tuned / "out/measurements.db"
    assert run("campaigns", "all.db", "merge", held, held).out.splitlines() == [
        f"{held}: 750 measurements, 750 new; 0 finals, 0 new",
    ]
    assert stored(tmp_path / "all.db") == stored(held)
    again = run("campaigns", "--json", "all.db", "merge", held).record
    assert again == {str(held): {"measurements": 750, "new": 0, "finals": 0, "new_finals": 0, "damaged": 0}}


def test_tables_are_merged_and_name_their_conflicts(run, tuned, tmp_path, refusal):
    table = read_table(tuned / "out/table.json")
    first, second = table.rows
    other = replace(first, choices=tuple(replace(c, samples=c.samples + 1) for c in first.choices[::-1]))
    write_table(tmp_path / "theirs.json", replace(table, rows=(other,)))
    write_table(tmp_path / "ours.json", replace(table, rows=(first,)))
    sources = ("ours.json", "theirs.json", tuned / "out")
    refusal(run("export", *sources), "name the folder of the new table: --out FOLDER")
    done = run("export", *sources, "--out", "all", "--to", "inductor")
    assert (done.status, done.out.splitlines()[0]) == (0, "2 rows, 0 ranges, 2 conflicts")
    assert done.out.splitlines()[-5] == "  all/inductor/lookup_table.json"
    assert read_table(tmp_path / "all/table.json").rows == (other, second)
    again = run("export", "--json", "all", "theirs.json", "--out", "all")
    assert (again.record, again.err) == ({"rows": 2, "ranges": 0, "conflicts": []}, "")
    write_table(tmp_path / "b200.json", replace(table, device=catalogue.device("B200")))
    refusal(
        run("export", "all", "b200.json", "theirs.json", "--out", "both"), "H200 and NVIDIA B200", "one table per GPU"
    )


def test_what_a_board_measured_is_forgotten_by_hand_and_status_says_so(run, refusal, tmp_path):
    level = ReferenceLevel("torch 2.11.0", "GPU-bad", 100.0)
    task = Task(Problem.parse(DECODE), catalogue.device("H200"), "triton_mm")
    facts = Status.OK, "", (9.0,), Estimate(9.0, 9.0, 9.0, level)
    shared = {"task": task, "evidence": Evidence.MEASURED, "protocol": "p", "toolchain": Toolchain((("torch", "2"),))}
    first, second = (
        Measurement(*facts, config=Config({"x": x}), worker="w", created_at=f"2026-11-22T0{x}:00:00+00:00", **shared)
        for x in (1, 3)
    )
    at = first.created_at
    with Database.open("m.db") as database:
        database.add([first, second])
        database.boards.add(BoardVerdict("GPU-bad", "w", Trust.QUARANTINED, "it lies", at, at))
    refusal(run("campaigns", "m.db", "forget", "GPU-bad", "--since", "yesterday"), "--since", "'yesterday'")
    refusal(run("campaigns", "m.db", "forget", "GPU-bat"), "'GPU-bat' measured nothing", "did you mean GPU-bad")
    said = "GPU-bad: 1 measurement withdrawn, kept and not used\n"
    assert run("campaigns", "m.db", "forget", "GPU-bad", "--since", "2026-11-22T04:00+02:00").out == said
    shown = run("campaigns", "m.db").out
    assert "board GPU-bad is quarantined: it lies" in shown
    assert "1 measurement withdrawn" in shown
    assert run("campaigns", "m.db", "--json").record["measurements"] == 1


def test_status_shows_the_total_the_percent_and_the_time_left(run, tuned, refusal):
    Path("out").mkdir()
    Path("out/measurements.db").write_bytes((tuned / "out/measurements.db").read_bytes())
    progress = {"done": 482, "total": 650, "seconds_left": 3.0, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    Path("out/progress.json").write_text(json.dumps(progress))
    assert "\n482 of 650 evaluations (74%), about 3 s left" in run("campaigns").out
    assert run("campaigns", "--json").record["progress"] == progress
    refusal(run("campaigns", "--watch", "--json"), "--watch", "--json")
    refusal(run("campaigns", "out", "pause", "a", "--since", "2026-11-22"), "--since belongs to the order forget")


def test_status_says_that_a_campaign_whose_plug_in_ended_its_process_is_silent(run, tmp_path):
    (tmp_path / "ends.py").write_text(ENDS)
    child = [
        sys.executable,
        "-m",
        "gemmtune",
        "tune",
        "--problem",
        DECODE,
        "--sampler",
        "./ends.py:Ends",
        "--no-report",
    ]
    assert subprocess.run(child, check=False, capture_output=True, timeout=120).returncode == -signal.SIGKILL
    assert not Path("out/table.json").exists()
    assert "silent" not in run("campaigns").out
    progress = json.loads(Path("out/progress.json").read_text())
    progress["at"] = (datetime.fromisoformat(progress["at"]) - timedelta(minutes=5)).isoformat()
    Path("out/progress.json").write_text(json.dumps(progress))
    assert re.search(
        r"0 of 64 evaluations \(0%\); silent for 5 min \d+ s: the campaign was stopped", run("campaigns").out
    )


def test_campaigns_are_listed_and_orders_that_nobody_can_obey_are_refused(run, tuned, refusal):
    place = str(tuned / "out/measurements.db")
    (found,) = run("campaigns", place, "--json").record["campaigns"]
    assert (found["state"], found["done"]) == ("done", found["total"])
    assert found["name"] in run("campaigns", place).out
    refusal(run("campaigns", place, "stop", "a"), "'stop'", "pause, resume, cancel, priority, add, forget, merge")
    refusal(run("campaigns", place, "pause"), "pause NAME")
    refusal(run("campaigns", place, "priority", "a", "high"), "priority='high'")
    refusal(run("campaigns", "pause", "a"), "the database goes first: gemmtune campaigns DB pause a")
    refusal(run("campaigns", place, "priority", "a", "9999999999"), "of at most nine digits")
    refusal(run("campaigns", place, "priority", "a"), "priority NAME N")
    refusal(run("campaigns", place, "cancel", found["name"]), "is over (done) and takes no orders")
    refusal(run("campaigns", place, "add", "a", DECODE), "no campaign 'a' runs", "none runs")
    refusal(run("campaigns", place, "add", "a", "none"), "none")
