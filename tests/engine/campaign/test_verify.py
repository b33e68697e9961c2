"""`gemmtune verify` on recorded landscapes: what was recorded answers for the GPU after the upgrade."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gemmtune.engine import cli
from gemmtune.engine.campaign.replayed_backend import completed, read_all
from gemmtune.engine.campaign.verify import in_doubt
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.records.config import Config
from gemmtune.engine.store.landscapes.landscape_file import embedded
from gemmtune.engine.tables.table_file import read_table, write_table

DECODE, LARGE = "16x4096x4096:bf16:nt", "2048x4096x4096:bf16:nt"
SLOW = Config({"BLOCK_M": 16, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 2, "num_warps": 4})
UNKNOWN = Config({"BLOCK_M": 16, "BLOCK_N": 256, "BLOCK_K": 256, "GROUP_M": 8, "num_stages": 8, "num_warps": 8})


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """The command line in this process, in a folder of its own: its exit status and output."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["gemmtune", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), capsys.readouterr().out

    return command


@pytest.fixture
def table(run):
    """Two rows and two ranges, replayed."""
    run(
        "tune",
        "--problem",
        DECODE,
        "--problem",
        LARGE,
        "--ranges",
        "--sampler",
        "transfer",
        "--budget",
        "32",
        "--no-report",
    )
    return read_table_at("out")


def read_table_at(folder):
    return read_table(Path(folder) / "table.json")


def recorded():
    return [argument for path in embedded() for argument in ("--replay", str(path))]


def test_a_table_that_holds_is_written_again_with_its_choices(run, table):
    status, out = run("verify", "out/table.json", *recorded())
    assert status == 0
    assert "2 rows of 2 hold, 2 ranges of 2" in out
    mended = read_table_at("verified")
    assert [row.choices[0].config for row in mended.rows] == [row.choices[0].config for row in table.rows]
    assert mended.ranges == table.ranges


def test_a_row_that_lost_its_place_is_named_and_mended(run, table):
    decode = table.rows[0]
    slow = replace(decode.choices[0], config=SLOW)
    write_table_at("old", replace(table, rows=(replace(decode, choices=(slow, *decode.choices)), *table.rows[1:])))
    status, out = run("verify", "old/table.json", *recorded(), "--json")
    (broken, held) = json.loads(out)["rows"]
    assert (status, broken["holds"], held["holds"]) == (1, False, True)
    assert broken["loss"] > 0.02
    assert read_table_at("verified").rows[0].choices[0].config == decode.choices[0].config


def test_a_choice_that_does_not_work_any_more_does_not_hold(run, table):
    decode, small = table.rows[0], table.ranges[0]
    gone = replace(decode.choices[0], config=UNKNOWN)
    row = replace(decode, choices=(gone, *decode.choices[1:]))
    ranged = replace(small, choice=replace(small.choice, config=UNKNOWN))
    write_table_at("old", replace(table, rows=(row, *table.rows[1:]), ranges=(ranged, *table.ranges[1:])))
    status, out = run("verify", "old/table.json", *recorded())
    assert status == 1
    assert "does not work" in out
    assert "1 row of 2 hold, 1 range of 2; 1 row replaced by its best contender; 1 range dropped" in out
    assert read_table_at("verified").ranges == table.ranges[1:]


def write_table_at(folder, table):
    Path(folder).mkdir()
    write_table(Path(folder) / "table.json", table)


def test_a_second_verification_measures_again(run, table):
    assert run("verify", "out/table.json", *recorded())[0] == 0
    status, out = run("verify", "out/table.json", *slower(table.rows[0].choices[0].config))
    assert status == 1
    assert "1 row of 2 hold" in out
    assert len(list(Path("verified").glob("measured-*.db"))) == 2
    assert not Path("verified/measurements.db").exists()


def test_a_refresh_measures_only_what_was_made_with_other_versions(run, table):
    assert run("verify", "out/table.json", "--refresh", *recorded()) == (
        0,
        "no row is in doubt; nothing was measured\n",
    )
    decode, large = (replace(row, choices=tuple(replace(c, samples=7) for c in row.choices)) for row in table.rows)
    older = tuple(replace(c, toolchain="torch 2.10.0") for c in decode.choices)
    old = replace(table, rows=(replace(decode, choices=older), large), ranges=(), drivers=("1.0",))
    write_table_at("old", old)
    status, out = run("verify", "old", "--refresh", "--json", *recorded())
    assert (status, [row["problem"] for row in json.loads(out)["rows"]]) == (0, [DECODE])
    made = read_table_at("verified")
    assert made.rows[1] == large
    assert made.rows[0].choices[0].toolchain == table.rows[0].choices[0].toolchain
    assert made.rows[0].choices[0].samples != 7


def test_a_range_in_doubt_is_refreshed_with_the_rows_of_its_gemm(run, table):
    first, second = table.ranges
    older = replace(first, choice=replace(first.choice, toolchain="torch 2.10.0"))
    write_table_at("old", replace(table, ranges=(older, second)))
    status, out = run("verify", "old", "--refresh", *recorded())
    assert status == 0
    assert "2 rows of 2 hold, 1 range of 1" in out
    made = read_table_at("verified")
    assert [(row.first, row.last, row.choice.space, row.choice.config) for row in made.ranges] == [
        (row.first, row.last, row.choice.space, row.choice.config) for row in table.ranges
    ]


def test_another_driver_puts_every_row_in_doubt(table):
    executor = ReplayExecutor(completed(read_all(embedded()), ["triton_mm"], table.device))
    now = replace(table, drivers=("580.95.05",))
    assert in_doubt(now, executor, "580.95.05").rows == in_doubt(table, executor, "580.95.05").rows == ()
    assert in_doubt(now, executor, "590.10").rows == table.rows
    assert in_doubt(replace(now, drivers=("570.1", "580.95.05")), executor, "580.95.05").rows == table.rows


def test_a_row_that_holds_keeps_its_choice_whatever_the_margin(run, table):
    status, out = run("verify", "out/table.json", "--margin", "0.15", *recorded())
    assert status == 0
    assert "2 rows of 2 hold" in out
    kept = [(row.choices[0].space, row.choices[0].config) for row in read_table_at("verified").rows]
    assert kept == [(row.choices[0].space, row.choices[0].config) for row in table.rows]


@pytest.mark.parametrize("margin", ["5", "-0.5", "nan"])
def test_a_margin_that_is_no_fraction_is_refused_before_anything_is_measured(run, table, margin):
    status, _ = run("verify", "out/table.json", f"--margin={margin}", *recorded())
    assert status == 2
    assert not Path("verified").exists()


def slower(config):
    """Write the recorded landscapes with twice the times of a config at the problem of DECODE."""
    arguments = []
    for path in embedded():
        with gzip.open(path, "rt", newline="") as file:
            header, *rows = csv.reader(file)
        place = {name: header.index(name) for name in header}
        for row in rows:
            same = all(name in place and row[place[name]] == str(value) for name, value in config.items())
            if same and row[:3] == ["16", "4096", "4096"]:
                row[place["time_us"]] = str(2 * float(row[place["time_us"]]))
                times = row[place["times_us"]].split(";")
                row[place["times_us"]] = ";".join(str(2 * float(time)) for time in times)
        copy = Path(path.name.removesuffix(".gz"))
        with copy.open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
        arguments += ["--replay", str(copy)]
    return arguments
