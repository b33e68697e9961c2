"""`gemmtune export`."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.machinery import PathFinder

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.tables.table_file import read_table, write_table

FILES = ("inductor/lookup_table.json", "inductor/inductor_table.json")
PACKAGES = ("inductor/gemmtune_inductor", "inductor/gemmtune_record", "inductor/gemmtune_report")


def test_export_writes_what_tune_wrote(run, tuned, tmp_path):
    ran = run("export", tuned / "out/table.json", "--to", "inductor", "--out", "exported", "--device", "H200")
    assert ran.status == 0
    assert ran.out.splitlines() == [f"exported/{name}" for name in (*FILES, *PACKAGES)]
    for name in (*FILES, *(f"{package}/__init__.py" for package in PACKAGES)):
        assert (tmp_path / "exported" / name).read_bytes() == (tuned / "out" / name).read_bytes()


def test_export_names_the_files_that_an_earlier_table_left(run, tuned, tmp_path):
    folder = tmp_path / "exported/inductor"
    (folder / "gemmtune_inductor/__pycache__").mkdir(parents=True)
    for name in ("__pycache__/a.pyc", "extern.py", "__init__.py"):  # of a table with rows of CuTe kernels
        (folder / "gemmtune_inductor" / name).touch()
    (folder / "gemmtune_inductor.py").write_text("raise ImportError\n")  # a loader of one file, as it was
    (folder / "lookup_table.json").touch()
    ran = run("export", tuned / "out/table.json", "--out", "exported")
    left = "gemmtune_inductor.py, gemmtune_inductor/extern.py"
    assert ran.err == f"gemmtune: 2 files in exported/inductor are not of this table: {left}\n"
    assert (ran.status, (folder / "gemmtune_inductor.py").exists()) == (0, True)
    imported = PathFinder.find_spec("gemmtune_inductor", [str(folder)])
    assert imported.origin == str(folder / "gemmtune_inductor/__init__.py")


def test_estimated_rows_are_exported_only_when_asked_for(run, tuned, tmp_path, refusal):
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
    (tmp_path / "again.json").write_bytes((tmp_path / "paper.json").read_bytes())
    joined = ("export", "paper.json", "again.json", "--out", "new")
    assert "not exported to inductor: 2 of 2 rows are estimated" in run(*joined).out
    assert "new/inductor/inductor_table.json" in run(*joined, "--estimated").out


def test_a_new_table_takes_the_place_of_none_of_another_kind(run, tuned, tmp_path, refusal):
    table = read_table(tuned / "out/table.json")
    for name in ("one.json", "two.json"):
        write_table(tmp_path / name, table)
    (tmp_path / "bi").mkdir()
    write_table(tmp_path / "bi/table.json", replace(table, batch_invariant=True))
    said = "bi/table.json: this table is batch-invariant, and the new one is not, and their rows do not mix"
    refusal(run("export", "one.json", "two.json", "--out", "bi"), said, "name another folder with --out")
    assert read_table(tmp_path / "bi/table.json").batch_invariant
    other = replace(table, device=catalogue.device("B200"))
    write_table(tmp_path / "bi/table.json", other)
    refusal(run("export", "one.json", "two.json", "--out", "bi"), "NVIDIA B200", "name another folder with --out")
    assert read_table(tmp_path / "bi/table.json") == other


def test_a_table_that_is_named_twice_makes_a_new_table(run, tuned, tmp_path):
    said = run("export", tuned / "out", tuned / "out", "--out", "new")
    assert (said.status, said.out.splitlines()[-2]) == (0, "  new/inductor/gemmtune_record")
    assert read_table(tmp_path / "new/table.json") == read_table(tuned / "out/table.json")


def test_an_export_of_one_gpu_takes_the_place_of_none_of_others(run, tuned, tmp_path, refusal):
    table = read_table(tuned / "out/table.json")
    for name in ("H200", "B200", "H100-SXM"):
        write_table(tmp_path / f"{name}.json", replace(table, device=catalogue.device(name)))
    assert run("export", "H200.json", "B200.json", "--out", "both").status == 0
    both = (tmp_path / "both/inductor/inductor_table.json").read_bytes()
    refusal(run("export", "H200.json", "--out", "both"), "both/inductor/inductor_table.json", "NVIDIA B200")
    refusal(run("export", "H200.json", "H100-SXM.json", "--out", "both"), "would lose the table of NVIDIA B200")
    assert (tmp_path / "both/inductor/inductor_table.json").read_bytes() == both
    assert run("export", "H200.json", "B200.json", "H100-SXM.json", "--out", "both").status == 0
    assert run("export", "H200.json", "--out", "one").status == 0
    refusal(run("export", "B200.json", "--out", "one"), "would lose the table of NVIDIA H200: export all together")
    write_table(tmp_path / "one/table.json", read_table(tmp_path / "B200.json"))  # as tune --replace does
    assert run("export", "B200.json", "--out", "one").status == 0
    refusal(run("export", "H200.json", "--out", "one"), "would lose the table of NVIDIA B200")
    (tmp_path / "one/inductor/inductor_table.json").write_text("damaged")
    assert run("export", "B200.json", "--out", "one").status == 0
