"""Tables of everything that a database knows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from gemmtune.engine.api.reporting import table_of_database
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.store.database import Database
from gemmtune.engine.testing.objective_conformance import example_measurement

TRITON = replace(example_measurement(), protocol="graph-cold-l2", created_at="2026-11-01T00:00:00+00:00")
ATEN = replace(TRITON, task=replace(TRITON.task, space="aten"), config=Config({}))
LATER = {"toolchain": Toolchain((("torch", "9.0.0"),)), "created_at": "2026-11-20T00:00:00+00:00"}


@pytest.fixture
def table_of(tmp_path):
    """The table of a new database with these measurements; `damage` runs SQL on its file before."""

    def table(*measurements, damage="", **options):
        path = tmp_path / "measurements.db"
        with Database.open(path) as database:
            database.add(measurements)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(damage)
        with Database.open(path, read_only=True) as database:
            return table_of_database(database, **options)

    return table


def later(**changes):
    return [replace(measurement, **LATER, **changes) for measurement in (TRITON, ATEN)]


def test_a_newer_toolchain_counts_for_its_protocol_and_evidence_alone(table_of):
    before = table_of(TRITON, ATEN)
    assert len(before.rows) == 1
    assert table_of(TRITON, ATEN, *later(protocol="graph-warm-l2")) == before
    assert table_of(TRITON, ATEN, *later(evidence=Evidence.REPLAYED)) == before


def test_of_one_protocol_the_newest_toolchain_counts(table_of):
    [row] = table_of(TRITON, ATEN, *later()).rows
    assert row.choices[0].toolchain == "torch 9.0.0"


def test_a_task_whose_rows_are_all_damaged_has_no_part(table_of):
    [row] = table_of(TRITON, ATEN, damage="update measurements set status = 'zzz' where config = '{}'").rows
    assert row.baseline is None


def test_replays_of_another_cache_state_are_refused(table_of):
    replayed = [replace(m, evidence=Evidence.REPLAYED, protocol="events-cold-l2") for m in (TRITON, ATEN)]
    assert len(table_of(*replayed).rows) == 1
    with pytest.raises(UsageError, match=r"recorded with events-cold-l2: measure on a GPU, or minimise latency$"):
        table_of(*replayed, objective="latency_warm")


def test_a_device_may_be_spelled_as_elsewhere(table_of):
    sku = TRITON.task.device.sku
    assert table_of(TRITON, ATEN, device=sku.lower()) == table_of(TRITON, ATEN, device=sku)
    with pytest.raises(UsageError, match=f"^device B200 is not in the database; measured: {sku}$"):
        table_of(TRITON, ATEN, device="B200")


@pytest.mark.parametrize("margin", [5, -0.5, float("nan")])
def test_a_margin_that_is_no_fraction_is_refused(table_of, margin):
    with pytest.raises(UsageError, match=r"^margin="):
        table_of(TRITON, ATEN, margin=margin)


OTHER = [replace(m, task=replace(m.task, device=catalogue.device("B200"))) for m in (TRITON, ATEN)]


@pytest.mark.parametrize(
    ("measurements", "device", "said"),
    [
        ((), None, "name the device of the table; measured: none"),
        ((TRITON, *OTHER), None, "name the device of the table; measured: B200, H200"),
        ((TRITON, ATEN), "B200", "device B200 is not in the database; measured: H200"),
        ((TRITON, *OTHER), "L4", "device L4 is not in the database; measured: B200, H200"),
    ],
)
def test_a_table_is_of_one_measured_device(table_of, measurements, device, said):
    with pytest.raises(UsageError, match=f"^{said}$"):
        table_of(*measurements, device=device)


def test_of_several_devices_one_is_chosen_with_its_rows(table_of):
    for device in ("B200", "H200"):
        table = table_of(TRITON, ATEN, *OTHER, device=device)
        assert table.device.sku == device
        assert [row.problem for row in table.rows] == [TRITON.task.problem]
