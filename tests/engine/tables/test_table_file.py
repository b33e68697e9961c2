from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError, TableError, UsageError
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import DType
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.tables import table_file
from gemmtune.engine.tables.table_file import (
    parse_table,
    read_table,
    require_device,
    table_sha256,
    table_text,
    write_table,
)

H200 = Device(
    "H200", "NVIDIA H200", "sm_90a", 132, 232448, 233472, 62914560, 65536, 2048, 1024, 32, 1980, 4800, "a test"
)
ATEN = Choice("aten", Config({}), 110.0, 108.0, 112.0, 32, Evidence.MEASURED, "torch 2.13.0", "events-cold-l2")
TRITON = Choice(
    "triton_mm",
    Config({"BLOCK_M": 64, "x": 0.5, "y": True, "z": "a"}),
    100.5,
    99,
    103,
    32,
    Evidence.REPLAYED,
    "t 1",
    "p",
)
SLOW = replace(TRITON, time_ns=4 * ATEN.time_ns, low_ns=ATEN.time_ns, high_ns=9 * ATEN.time_ns)
ROWS = (
    Row(
        replace(Problem.parse("16x4096x4096:bf16:nt"), weight=2.5),
        (TRITON, ATEN),
        ATEN,
        0.0945,
        (TRITON.config,),
        regret_bound=0.0031,
        loss=0.004,
    ),
    Row(replace(Problem.parse("64x64x200:tf32:tn"), out_dtype=DType.FP32), (ATEN,), None, 0.0, ()),
)
TABLE = Table(H200, ROWS, "latency")


def rehash(record):
    """Return the text of an edited record with the hash that fits it."""
    content = {key: value for key, value in record.items() if key != "sha256"}
    return table_file._dump({**content, "sha256": table_file._hash(content)})


def edited(*path, value, record=None):
    """Return the table's text with one value replaced (removed if value=...) and the hash that fits it."""
    record = record or json.loads(table_text(TABLE))
    target = record
    for step in path[:-1]:
        target = target[step]
    if value is ...:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return rehash(record)


def test_a_written_table_is_read_back_unchanged(tmp_path):
    path = tmp_path / "table.json"
    write_table(path, TABLE)
    table = read_table(path)
    assert table == TABLE
    assert table.device.source == "a test"
    assert [row.problem.weight for row in table.rows] == [2.5, 1.0]
    assert [p.name for p in tmp_path.iterdir()] == ["table.json"]


def test_a_table_that_was_read_knows_the_clusters_and_peaks_of_its_gpu():
    device = parse_table(table_text(replace(TABLE, device=catalogue.device("H200"))), "x").device
    assert (dict(device.active_clusters)[4], device.peak_tflops("fp8")) == (30, 1979)


def test_the_text_is_canonical():
    text = table_text(TABLE)
    record = json.loads(text)
    assert text == json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    assert text == table_text(replace(TABLE, rows=ROWS[::-1])) == table_text(parse_table(text, "x"))
    assert (record["schema"], record["objective"], record["rows"][0]["name"]) == (7, "latency", "16x4096x4096:bf16:nt")
    assert [row["loss"] for row in record["rows"]] == [0.004, 0.0]
    assert [row["regret_bound"] for row in record["rows"]] == [0.0031, None]
    assert record["sha256"] == table_sha256(TABLE) != table_sha256(replace(TABLE, objective="energy"))


def test_a_table_of_the_schema_before_is_read_with_its_leads_signed():
    record = json.loads(table_text(replace(TABLE, rows=(replace(ROWS[0], choices=(ATEN, SLOW), lead=None), ROWS[1]))))
    record["schema"] = 6
    for row in record["rows"]:
        del row["lead"]
        row["margin"] = 0.0
    slower, alone = parse_table(rehash(record), "x").rows
    assert (slower.lead, alone.lead) == (pytest.approx(ATEN.time_ns / SLOW.time_ns - 1), None)
    assert slower.lead < 0


DYNAMIC = Problem.parse("64x96x512:bf16:nt:dynamic_m=true")
RANGES = (
    RangeRow(DYNAMIC, 2, 64, TRITON, ((16, 0.004), (64, 0.0)), ((48, 0.01),), ((32, 0.002),)),
    RangeRow(Problem.parse("256x96x512:bf16:nt:dynamic_m=true"), 65, 256, ATEN, ((256, 0.0),)),
    RangeRow(Problem.parse("64x96x512:bf16:nt:addmm"), 2, 64, ATEN, ((64, 0.0),)),
)


def test_ranges_are_read_back_in_the_order_of_problem_and_m():
    found = parse_table(table_text(replace(TABLE, ranges=RANGES[::-1])), "table.json")
    assert set(found.ranges) == set(RANGES)
    assert [r.first for r in found.ranges if gemm(r.problem).dynamic_m] == [2, 65]
    assert table_text(found) == table_text(replace(TABLE, ranges=RANGES))


def test_two_ranges_for_one_m_are_refused():
    with pytest.raises(TableError, match="two ranges are for m=64 of 256x96x512:bf16:nt:dynamic_m=true"):
        table_text(replace(TABLE, ranges=(RANGES[0], replace(RANGES[1], first=64))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"last": 1}, "last=1 is not an integer from 2 on"),
        ({"tuned": [[64]]}, r"ranges\[0\]\.tuned\[0\]=\[64\] is not a list of 2 values"),
        ({"held_out": [["64", 0.1]]}, r"held_out\[0\]\[0\]='64' is not an integer"),
        ({"strange": 1}, r"ranges\[0\] has the unknown field 'strange'"),
    ],
)
def test_a_broken_range_is_refused(change, message):
    record = json.loads(table_text(replace(TABLE, ranges=RANGES[:1])))
    record["ranges"][0] |= change
    with pytest.raises(TableError, match=message):
        parse_table(rehash(record), "table.json")


def test_a_regret_bound_of_0_is_read_back():
    row = replace(ROWS[0], regret_bound=0.0)
    assert parse_table(table_text(replace(TABLE, rows=(row,))), "x").rows == (row,)


def test_a_table_without_rows_is_read_back():
    empty = replace(TABLE, rows=())
    assert parse_table(table_text(empty), "x") == empty


def test_every_truncation_is_refused():
    text = table_text(TABLE)
    for end in range(len(text) - 1):  # without its last newline the table is still whole
        with pytest.raises(TableError, match=r"truncated|is empty"):
            parse_table(text[:end], "table.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [("BLOCK_M,time\n1,2\n", "the table is not JSON at line 1"), ("[1]", "not a table: .* not an object")],
)
def test_a_text_that_is_no_table_is_refused(text, message):
    with pytest.raises(TableError, match=f"^table.json: {message}"):
        parse_table(text, "table.json")


def test_a_missing_and_a_binary_file_are_refused(tmp_path):
    with pytest.raises(TableError, match=r"cannot read table .*none.json: No such file"):
        read_table(tmp_path / "none.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TableError, match="not text in UTF-8"):
        read_table(tmp_path / "binary")


def test_an_edited_number_is_found_by_the_hash():
    with pytest.raises(TableError, match=r"^table\.json: edited after it was written: its sha256 does not match"):
        parse_table(table_text(TABLE).replace('"BLOCK_M": 64', '"BLOCK_M": 32'), "table.json")


@pytest.mark.parametrize(("schema", "way_out"), [(8, "upgrade gemmtune"), (5, "tune again")])
def test_a_table_of_another_schema_is_refused_before_its_fields_are_looked_at(schema, way_out):
    text = json.dumps({"schema": schema, "gemmtune": "9.1", "strange": 1})
    with pytest.raises(
        TableError, match=rf"schema {schema} \(written by gemmtune 9\.1\) is not schema 7, .*: {way_out}"
    ):
        parse_table(text, "table.json")


ROW, CHOICE, DEVICE = ("rows", 0), ("rows", 0, "choices", 0), ("device",)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("schema",), ..., "schema=None is not an integer"),
        (("schema",), True, "schema=True is not an integer"),
        (("colour",), 1, "it has the unknown field 'colour'"),
        (("rows",), ..., "it lacks the field 'rows'"),
        (("rows",), {}, ": rows={} is not a list"),
        (("rows", 1), [], r"rows\[1\]=\[\] is not an object"),
        (("objective",), 3, "objective=3 is not text"),
        ((*DEVICE, "sm_count"), 0, r"device\.sm_count=0 is not an integer from 1 on"),
        ((*DEVICE, "sm_count"), True, "sm_count=True is not an integer"),
        ((*DEVICE, "name"), ..., "device lacks the field 'name'"),
        ((*ROW, "hint"), 1, r"rows\[0\] has the unknown field 'hint'"),
        ((*ROW, "name"), "1x1x1:bf16:nt", r"rows\[0\]: name='1x1x1:bf16:nt', and the problem is 16x4096x4096:bf16:nt"),
        ((*ROW, "problem", "m"), "0", "m=0 is not an integer from 1"),
        ((*ROW, "problem", "m"), 16, "m=16 is not text"),
        ((*ROW, "problem", "k"), ..., "problem field 'k' is missing"),
        ((*ROW, "problem", "a_dtype"), "fp7", "a_dtype='fp7' is not one of"),
        ((*ROW, "weight"), 0, "weight=0 is not a number above 0"),
        ((*ROW, "lead"), "much", "lead='much' is not a number above -1"),
        ((*ROW, "regret_bound"), -0.001, "regret_bound=-0.001 is not a number from 0 on"),
        ((*ROW, "regret_bound"), "small", "regret_bound='small' is not a number from 0 on"),
        ((*ROW, "lead"), ..., r"rows\[0\] lacks the field 'lead'"),
        ((*ROW, "loss"), -0.001, "loss=-0.001 is not a number from 0 on"),
        ((*ROW, "loss"), None, "loss=None is not a number from 0 on"),
        ((*ROW, "choices"), [], r"rows\[0\]: a row has a choice at least"),
        ((*ROW, "baseline"), 1, r"rows\[0\]\.baseline=1 is not an object"),
        ((*ROW, "tie_band"), [3], r"tie_band\[0\]=3 is not an object"),
        ((*CHOICE, "time_ns"), -1, "time_ns=-1 is not a number above 0"),
        ((*CHOICE, "time_ns"), 98, "time_ns=98 is outside low_ns=99 to high_ns=103"),
        ((*CHOICE, "samples"), 0, "samples=0 is not an integer from 1 on"),
        ((*CHOICE, "samples"), 1.5, "samples=1.5 is not an integer"),
        ((*CHOICE, "evidence"), "hearsay", "evidence='hearsay' is not one of measured, replayed, estimated"),
        ((*CHOICE, "config"), {"BLOCK_M": [1]}, r"config\.BLOCK_M=\[1\] is not a number, a truth value or text"),
        ((*CHOICE, "space"), None, "space=None is not text"),
        ((*CHOICE, "colour"), "red", r"rows\[0\]\.choices\[0\] has the unknown field 'colour'"),
        ((*CHOICE, "protocol"), ..., "lacks the field 'protocol'"),
    ],
)
def test_every_broken_field_is_named(path, value, message):
    with pytest.raises(TableError, match=message) as caught:
        parse_table(edited(*path, value=value), "table.json")
    assert str(caught.value).startswith("table.json: ")
    assert "\n" not in str(caught.value)


def test_only_an_estimated_choice_may_have_no_samples():
    choice = replace(ROWS[0].choices[0], samples=0, evidence=Evidence.ESTIMATED)
    table = replace(TABLE, rows=(replace(ROWS[0], choices=(choice,), baseline=None),))
    assert parse_table(table_text(table), "x").rows[0].choices == (choice,)


def test_numbers_that_are_not_finite_are_refused_by_reader_and_writer():
    with pytest.raises(TableError, match="a number of the table is not finite"):
        parse_table(table_text(TABLE).replace("100.5", "NaN"), "x")
    with pytest.raises(TableError, match="not finite"):
        table_text(replace(TABLE, rows=(replace(ROWS[0], lead=float("inf")),)))


def test_a_repeated_field_is_refused():
    with pytest.raises(TableError, match="'objective' stands twice"):
        parse_table(table_text(TABLE).replace('"objective"', '"objective": "x",\n  "objective"'), "x")


def test_two_rows_for_one_problem_are_refused_by_reader_and_writer():
    record = json.loads(table_text(TABLE))
    record["rows"].append(record["rows"][0])
    with pytest.raises(TableError, match="two rows are for 16x4096x4096:bf16:nt"):
        parse_table(rehash(record), "table.json")
    with pytest.raises(TableError, match="two rows are for 16x4096x4096:bf16:nt"):
        table_text(replace(TABLE, rows=(ROWS[0], ROWS[0])))


@pytest.mark.parametrize("folder", ["missing", "file"])
def test_an_unwritable_folder_is_a_usage_error(tmp_path, folder):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match=r"cannot write .*table\.json: .*; nothing was changed"):
        write_table(tmp_path / folder / "table.json", TABLE)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_write_that_fails_leaves_the_old_table_and_no_other_file(tmp_path, monkeypatch):
    path = tmp_path / "table.json"
    path.write_text("old")

    def refuse(self, target):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(UsageError, match="Permission denied"):
        write_table(path, TABLE)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["table.json"]


def test_a_table_of_another_gpu_is_refused_with_both_names():
    b200 = replace(H200, sku="B200", name="NVIDIA B200")
    with pytest.raises(DeviceError, match="the table is for NVIDIA H200, not NVIDIA B200"):
        require_device(TABLE, b200)
    require_device(TABLE, replace(H200, source="elsewhere"))
    for field in fields(Device):
        if field.compare:
            another = "sm_80" if field.name == "arch" else "other"
            other = replace(H200, **{field.name: another if isinstance(getattr(H200, field.name), str) else 1})
            with pytest.raises(DeviceError, match=field.name):
                require_device(TABLE, other)
