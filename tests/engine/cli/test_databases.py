"""`gemmtune status` and `gemmtune merge`."""

from __future__ import annotations

from gemmtune.engine.tables.table_file import read_table

DECODE = "16x4096x4096:bf16:nt"


def test_status_tells_of_a_campaign_from_its_database(run, tuned):
    done = run("status", tuned / "out/measurements.db")
    assert done.out.splitlines()[0].startswith("2 problems, 750 measurements; last measured 2026-11-21")
    (line,) = [line for line in done.out.splitlines() if f"H200/{DECODE}" in line]
    table = read_table(tuned / "out/table.json")
    (row,) = [row for row in table.rows if row.problem.name == DECODE]
    assert f"{row.choices[0].time_ns / 1e3:.1f}" in line.split()
    record = run("status", "--json", tuned / "out/measurements.db").record
    assert (record["measurements"], len(record["problems"])) == (750, 2)


def test_databases_are_merged_and_say_what_was_new(run, tuned, tmp_path, stored):
    held = tuned / "out/measurements.db"
    assert run("merge", "all.db", held, held).out.splitlines() == [
        f"{held}: 750 measurements, 750 new; 0 finals, 0 new",
    ]
    assert stored(tmp_path / "all.db") == stored(held)
    again = run("merge", "--json", "all.db", held).record
    assert again == {str(held): {"measurements": 750, "new": 0, "finals": 0, "new_finals": 0, "damaged": 0}}
