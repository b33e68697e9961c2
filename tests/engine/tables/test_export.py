"""No exporter exports estimated rows unless they are requested."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.export import export_table
from gemmtune.engine.tables.standalone import standalone
from gemmtune.engine.testing.exporter_conformance import example_table


class Names(Exporter):
    def export(self, table):
        return {"names": " ".join(row.problem.name for row in table.rows)}


def with_first_row(evidence):
    table = example_table()
    first = table.rows[0]
    choices = (replace(first.choices[0], evidence=evidence), *first.choices[1:])
    return replace(table, rows=(replace(first, choices=choices), *table.rows[1:]))


@pytest.mark.parametrize("evidence", [Evidence.MEASURED, Evidence.REPLAYED])
def test_a_timed_row_is_exported(evidence):
    table = with_first_row(evidence)
    assert export_table(Names(), table) == Names().export(table)


def test_an_estimated_row_is_refused_unless_requested():
    table = with_first_row(Evidence.ESTIMATED)
    with pytest.raises(TableError) as refused:
        export_table(Names(), table)
    assert str(refused.value) == (
        "1 of 3 rows are estimated, not timed (16x4096x4096:bf16:nt): tune on an NVIDIA H200, or allow estimated "
        "rows (gemmtune export --estimated)"
    )
    assert export_table(Names(), table, estimated=True) == Names().export(table)


def test_the_file_for_inductor_says_which_row_is_estimated():
    files = export_table(registry.exporter("inductor"), with_first_row(Evidence.ESTIMATED), estimated=True)
    facts = [row["facts"] for rows in json.loads(files["inductor_table.json"])["rows"].values() for row in rows]
    assert {row["problem"]: row["evidence"] for row in facts}["16x4096x4096:bf16:nt"] == "estimated"
    assert sorted(row["evidence"] for row in facts) == ["estimated", "measured", "measured"]


def test_a_bundled_module_has_all_that_it_reaches_once():
    text = standalone("gemmtune.engine.consumers.cute.table_loader")
    assert text.count("from __future__") == 1
    for name in ("parse_cute_table", "read_sealed", "require_config"):
        assert text.count(f"def {name}(") == 1
