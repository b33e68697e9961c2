"""`gemmtune show`."""

from __future__ import annotations

import csv
import os
import re
import signal
import socket
import time
from contextlib import closing
from threading import Thread
from urllib.request import urlopen

import pytest

from gemmtune.engine.cli import output
from gemmtune.engine.store.database import Database
from gemmtune.engine.tables.table_file import read_table

DECODE = "16x4096x4096:bf16:nt"
MIDDLE = "128x2880x2880:bf16:nt"


def test_show_reads_a_table(run, tuned, row_of):
    table = read_table(tuned / "out/table.json")
    record = run("show", tuned / "out/table.json", "--json").record
    assert (record["device"], record["objective"]) == ("H200", "latency")
    assert [(row["problem"], row["choices"][0]["config"]) for row in record["rows"]] == [
        (row.problem.name, dict(row.choices[0].config)) for row in table.rows
    ]
    assert [row["choices"][0]["time_ns"] for row in record["rows"]] == [row.choices[0].time_ns for row in table.rows]
    text = run("show", tuned / "out/table.json").out
    assert text.startswith("NVIDIA H200: 2 rows, objective latency, replayed, margin 2.0%\n")
    row = row_of(DECODE, tuned)
    (line,) = [line for line in text.splitlines() if line.startswith(DECODE)]
    config = row.choices[0].config
    assert line.endswith(f"BLOCK_M={config['BLOCK_M']} BLOCK_N={config['BLOCK_N']} BLOCK_K={config['BLOCK_K']} "
                         f"GROUP_M={config['GROUP_M']} num_stages={config['num_stages']} "
                         f"num_warps={config['num_warps']}")  # fmt: skip
    assert f" {row.choices[0].time_ns / 1e3:.1f} " in line


def test_the_lines_of_a_table_become_csv(run, tuned, row_of, refusal):
    held = list(csv.DictReader(run("show", tuned / "out/table.json", "--csv").out.splitlines()))
    assert [line["problem"] for line in held] == [DECODE, MIDDLE]
    assert [line["µs"] for line in held] == [
        f"{row_of(p, tuned).choices[0].time_ns / 1e3:.1f}" for p in (DECODE, MIDDLE)
    ]
    one = run("show", tuned / "out/table.json", "--csv", "--filter", MIDDLE).out.splitlines()
    assert len(one) == 2
    refusal(run("show", tuned / "out/table.json", "--csv", "--json"), "--json prints all")


def test_a_live_page_is_served_until_ctrl_c(run, tuned, default_signals):
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    seen = []

    def look():
        for _ in range(4000):  # a loaded machine takes a while to import
            try:
                seen.append(urlopen(f"http://{address}/", timeout=20).read().decode())
                break
            except OSError:
                time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    looking = Thread(target=look)
    looking.start()
    ran = run("show", tuned / "out", "--live", "--address", address)
    looking.join()
    assert (ran.status, ran.out) == (0, f"http://{address}/ shows {tuned / 'out'} until Ctrl-C\n")
    assert all(problem in seen[0] for problem in (DECODE, MIDDLE))


def test_show_reads_a_database(run, tuned, recorded_configs, row_of):
    record = run("show", tuned / "out/measurements.db", "--json").record
    tasks = {task["task"]: task for task in record["tasks"]}
    assert set(tasks) == {f"H200/{space}/{problem}" for space in ("aten", "triton_mm") for problem in (DECODE, MIDDLE)}
    best = tasks[f"H200/triton_mm/{DECODE}"]
    assert (best["evidence"], best["evaluations"], best["failures"]) == ("replayed", recorded_configs(DECODE), {})
    choice = row_of(DECODE, tuned).choices[0]
    assert (best["best_ns"], best["best_config"]) == (choice.time_ns, dict(choice.config))
    assert tasks[f"H200/aten/{DECODE}"]["best_config"] == {}
    text = run("show", tuned / "out/measurements.db").out
    assert text.startswith(f"2 tasks, 2 baselines, {recorded_configs(DECODE) + 400 + 2} measurements\n")
    (line,) = [line for line in text.splitlines() if line.startswith(f"H200/triton_mm/{DECODE} ")]
    assert line.split()[1:4] == ["replayed", str(recorded_configs(DECODE)), f"{choice.time_ns / 1e3:.1f}"]


def test_a_database_becomes_optuna_studies(run, tuned, tmp_path, refusal):
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
    refusal(refused_, "is none: name the database")


def test_a_narrow_terminal_gets_the_config_below_its_row(run, tuned, monkeypatch):
    monkeypatch.setattr(output, "columns", lambda: 80)
    for shown in ("table.json", "measurements.db"):
        lines = re.sub(r"\x1b\[\d*m", "", run("show", tuned / "out" / shown).out).splitlines()  # colours take no room
        assert [line for line in lines if len(line) > 80 and "/" not in line] == []  # a path is not broken
        assert DECODE in "".join(lines)
        assert any(line.startswith("    BLOCK_M=") for line in lines)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "tuned 20"),
        ("table.json", "tuned 20"),
        ("inductor/inductor_table.json", "2 rows for torch.compile, objective latency"),
        ("inductor/lookup_table.json", "2 rows for stock Inductor"),
        ("measurements.db", "2 tasks, 2 baselines"),
        ("run.json", "gemmtune tune --problem"),
    ],
)
def test_show_takes_every_file_of_a_campaign(run, tuned, name, said):
    shown = run("show", tuned / "out" / name)
    assert (shown.status, shown.err) == (0, "")
    assert said in shown.out
    assert run("show", tuned / "out" / name, "--json").status == 0


def test_show_says_what_made_a_table_and_why_each_row_ships_what_it_ships(run, tuned):
    lines = run("show", tuned / "out/table.json").out.splitlines()
    assert lines[1].startswith("made with torch 2.")
    assert lines[2].startswith("written by gemmtune ")
    header = next(line for line in lines if line.startswith("problem"))
    rows = [line for line in lines if line.startswith((DECODE, MIDDLE))]
    assert [line.split()[0] for line in rows] == [DECODE, MIDDLE]  # 16 before 128
    reasons = [line[header.index("why") :].split("  ")[0] for line in rows]
    assert all(any(line.startswith(f"{reason}: ") for line in lines) for reason in reasons)


def test_show_reads_landscapes(run, small):
    shown = run("show", small)
    assert shown.out.startswith("1 landscape; H200")
    assert DECODE in shown.out
    record = run("show", small, "--json").record
    assert record["landscapes"][0]["problem"] == DECODE


def test_show_sorts_and_filters(run, tuned, refusal):
    table = tuned / "out/table.json"
    by_time = [line.split()[0] for line in run("show", table, "--sort", "µs").out.splitlines() if ":bf16" in line[:22]]
    times = {row.problem.name: row.choices[0].time_ns for row in read_table(table).rows}
    assert by_time == sorted(times, key=times.__getitem__)
    only = run("show", table, "--filter", "2880X").out
    assert MIDDLE in only
    assert f"\n{DECODE}" not in only
    refusal(run("show", table, "--sort", "speed"), "no column 'speed'", "problem")
    refusal(run("show", table, "--json", "--filter", "x"), "--json prints all")


@pytest.mark.parametrize("text", ['{"a+b": [1]}', '{"landscapes": [], "curves": [{}]}'])
def test_a_file_that_lacks_what_is_shown_is_refused(run, tmp_path, refusal, text):
    (tmp_path / "odd.json").write_text(text)
    refusal(run("show", "odd.json"), "odd.json is damaged, or no file of gemmtune")


def test_a_folder_without_a_campaign_is_refused(run, tmp_path, refusal):
    (tmp_path / "nothing").mkdir()
    refusal(run("show", "nothing"), "nothing is an empty folder")
