"""Rows of kernels between the products: in a table, in its exports, and what a loader refuses."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gemmtune.engine.api.benching import _add_kernels, bench
from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.api.reporting import over_earlier
from gemmtune.engine.api.table import Table, read_table
from gemmtune.engine.consumers.inductor.exporter import InductorExporter, with_generated
from gemmtune.engine.consumers.inductor.loader.generated import parse_generated, source_key
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, GeneratedRow
from gemmtune.engine.report.tables import diff_report
from gemmtune.engine.tables.diff import diff_tables, merge_tables
from gemmtune.engine.tables.earlier import with_earlier
from gemmtune.engine.tables.export import export_bundle
from gemmtune.engine.tables.table_file import parse_table, table_text, write_table
from gemmtune.engine.testing.exporter_conformance import example_table

TABLE = example_table()
B200 = replace(TABLE, device=catalogue.device("B200"))
CONFIG = {"XBLOCK": 4, "R0_BLOCK": 2048, "num_warps": 8, "num_stages": 1}
FILE = "inductor_table.json"


def row(source, **config):
    config = Config({**CONFIG, **config})
    choice = Choice("inductor", config, 90.0, 89.0, 91.0, 40, Evidence.MEASURED, "torch 2.13.0", "events-cold-l2")
    return GeneratedRow(source, "triton_red_fused_0", choice, 100.0)


FIRST, SECOND, OTHER = row("a" * 64), row("b" * 64), row("a" * 64, XBLOCK=8)


def test_a_table_keeps_its_rows_of_generated_kernels():
    table = TABLE.with_generated([SECOND, FIRST])
    assert table.generated == (FIRST, SECOND)
    assert parse_table(table_text(table), "it").generated == (FIRST, SECOND)
    assert table.with_generated([OTHER]).generated == (OTHER, SECOND)
    assert "generated" not in json.loads(table_text(TABLE))


def test_a_new_table_keeps_those_of_the_earlier_one_unless_it_is_replaced():
    old, new = TABLE.with_generated([FIRST, SECOND]), TABLE.with_generated([OTHER])
    assert with_earlier(new, old, set())[0].generated == (OTHER, SECOND)
    assert with_earlier(new, old, set(), keep=False)[0].generated == (OTHER,)


def test_a_table_that_is_exported_keeps_those_of_the_one_that_it_replaces(tmp_path):
    write_table(path := tmp_path / "table.json", TABLE.with_generated([FIRST, SECOND]))
    assert over_earlier(path, Table.of(TABLE)) == (read_table(path), "")
    kept, said = over_earlier(path, Table.of(TABLE.with_generated([OTHER])))
    assert kept.generated == (OTHER, SECOND)
    assert "kernels between the products differ: triton_red_fused_0" in said


def test_tables_merge_them_and_the_first_one_leads():
    tables = {"one": TABLE.with_generated([FIRST]), "two": TABLE.with_generated([OTHER, SECOND])}
    assert merge_tables(tables)[0].generated == (FIRST, SECOND)


def test_tables_differ_in_the_kernels_without_an_equal_config():
    one, two = TABLE.with_generated([FIRST, SECOND]), TABLE.with_generated([OTHER, SECOND])
    found = diff_tables(one, two)
    assert (found.same, found.generated) == (False, ("triton_red_fused_0",))
    text = "kernels between the products differ: triton_red_fused_0"
    assert diff_report(found, TABLE.device).to_text() == text
    assert diff_tables(TABLE, one).generated == ("triton_red_fused_0",) * 2
    assert diff_tables(one, one).same


def test_rows_come_to_an_export_as_if_it_were_made_anew():
    before, table = InductorExporter().export(TABLE), TABLE.with_generated([FIRST, SECOND])
    after = InductorExporter().export(table)
    assert with_generated(before[FILE], TABLE, table.generated).items() <= after.items()
    assert json.loads(after[FILE])["generated"][FIRST.source]["config"] == CONFIG
    parts = {name for name in after if name not in before}
    assert parts == {"gemmtune_inductor/generated.py", "gemmtune_inductor/generated_rows.py"}


def test_a_bench_adds_rows_to_the_table_and_to_the_loader_beside_it(tmp_path):
    notes = []
    write_all(InductorExporter().export(TABLE), tmp_path / "inductor")
    _add_kernels(TABLE, tmp_path / "table.json", notes.append, [SECOND, FIRST])
    table = read_table(tmp_path / "table.json")
    assert table.generated == (FIRST, SECOND)
    written = {str(each.relative_to(tmp_path / "inductor")): each for each in (tmp_path / "inductor").rglob("*.*")}
    expected = InductorExporter().export(table)
    assert {name: written[name].read_text(encoding="utf-8") for name in expected} == expected
    assert notes == [f"2 kernels between the products got a row in {tmp_path / 'table.json'}"]


@pytest.mark.parametrize("others", [(replace(TABLE, rows=TABLE.rows[:2]),), (TABLE, B200)])
def test_a_bench_refuses_before_its_work_a_loader_that_is_not_of_the_table_alone(tmp_path, others):
    write_all(export_bundle(InductorExporter(), others), tmp_path / "inductor")
    write_table(tmp_path / "table.json", TABLE)
    with pytest.raises(TableError, match="not of this table alone: export it again"):
        bench("model:build", table=tmp_path, arms=("table",), tune_kernels=True)


def test_a_batch_invariant_table_exports_none():
    table = replace(TABLE, rows=(), ranges=(), batch_invariant=True).with_generated([FIRST])
    assert "generated" not in json.loads(InductorExporter().export(table)[FILE])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"XBLOCK": 4, "num_warps": 8}, "config lacks num_stages"),
        ({**CONFIG, "RSPLIT": 2}, "config names 'RSPLIT': no block"),
        ({**CONFIG, "XBLOCK": 0}, "XBLOCK=0 is not from 1"),
        ({**CONFIG, "XBLOCK": "4"}, "XBLOCK='4' is not an integer"),
    ],
)
def test_a_config_of_other_params_or_values_is_refused(config, message):
    with pytest.raises((TypeError, ValueError), match=message):
        parse_generated({"generated": {"a": {"name": "triton_poi_0", "config": config, "facts": {}}}})


def test_a_loader_without_the_part_refuses_such_rows(tmp_path, load):
    pytest.importorskip("torch", reason="torch is not installed")
    write_all(InductorExporter().export(TABLE), tmp_path)
    table = tmp_path / "new.json"
    table.write_text(InductorExporter().export(TABLE.with_generated([FIRST]))[FILE], encoding="utf-8")
    with pytest.raises(ValueError, match="the unknown field 'generated'"):
        load(tmp_path, "lean_loader").install(table)


def test_the_key_of_a_kernel_is_its_sizes_its_types_and_its_source_but_no_name():
    source = "def triton_poi_fused_add_0(x, n):\n    y = x\n"
    key = source_key("{'x': 64}", "{'x': '*fp32'}", source)
    assert key == source_key("{'x': 64}", "{'x': '*fp32'}", source.replace("_0", "_12").strip())
    assert key != source_key("{'x': 128}", "{'x': '*fp32'}", source)
    assert key != source_key("{'x': 64}", "{'x': '*bf16'}", source)
    assert key != source_key("{'x': 64}", "{'x': '*fp32'}", source.replace("y", "z"))
