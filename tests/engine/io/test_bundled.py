"""Tables of several GPUs in one folder: each loader takes the table of its GPU, and names the GPUs where none fits."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import pytest

from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.consumers.cute.table_loader import CuteTable
from gemmtune.engine.io.bundled import bundle_text, picked
from gemmtune.engine.io.paths import FileKind, kind_of_file
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import DeviceError, TableError
from gemmtune.engine.report.files import file_report
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.kinds import parse_workload
from gemmtune.engine.tables.export import export_bundle
from gemmtune.engine.testing.exporter_conformance import example_table

H100, H200 = (catalogue.device(sku) for sku in ("H100-SXM", "H200"))
BOTH = f"{H100.name} or {H200.name}"
EPILOGUE = "16x96x256:bf16:nt:epilogue=silu.mul(matrix)"
LOADING = """
import gemmtune_inductor as it
from torch._inductor.virtualized import V
for gpu in ("NVIDIA H200", "NVIDIA H100 80GB HBM3", None):
    it.install(policy="ignore", device=gpu)
    rows = [key.rsplit(":")[-1] for key in V.choices._table.rows]
    print(V.choices._table.device, "silu.mul(matrix)" in rows)
"""


def tables(consumer):
    """A table for each GPU: that of the H200 has one row less, and one with an epilogue where Inductor runs it."""
    table = example_table(type(registry.exporter(consumer)))
    of_h200 = replace(table, rows=table.rows[:-1])
    if consumer == "inductor":
        of_h200 = replace(of_h200, rows=(*of_h200.rows, replace(table.rows[0], problem=parse_workload(EPILOGUE))))
    return replace(table, device=H100), of_h200


@pytest.mark.parametrize("consumer", ["inductor", "cute", "triton"])
def test_a_part_is_the_table_that_an_export_of_its_own_has(consumer):
    exporter = registry.exporter(consumer)
    bundle = export_bundle(exporter, tables(consumer))[f"{consumer}_table.json"].encode()
    for table in tables(consumer):
        own = exporter.export(table)[f"{consumer}_table.json"].encode()
        found, others = picked(bundle, table.device.name)
        assert (json.loads(found), others) == (json.loads(own), "")
        assert picked(own, "NVIDIA B200") == (own, "")
    assert picked(bundle, "NVIDIA B200")[1] == picked(bundle)[1] == BOTH


def test_two_tables_of_one_gpu_are_refused():
    with pytest.raises(
        DeviceError, match="2 tables are for NVIDIA H200: make one of them with gemmtune export A B --out"
    ):
        export_bundle(registry.exporter("inductor"), [tables("inductor")[1]] * 2)


def test_a_file_that_is_no_json_is_shared_only_where_the_gpus_have_it_alike():
    class Text(Exporter):
        def export(self, table):
            return {"all.txt": "alike", **({"rows.txt": str(len(table.rows))} if differ else {})}

    differ = False
    assert export_bundle(Text(), tables("inductor")) == {"all.txt": "alike"}
    differ = True
    with pytest.raises(TableError, match=r"rows.txt differs for .* folder of its own"):
        export_bundle(Text(), tables("inductor")[:1] + tables("cute")[1:])


def test_the_keys_of_stock_inductor_name_the_gpu_and_stand_side_by_side():
    found = json.loads(export_bundle(registry.exporter("inductor"), tables("inductor"))["lookup_table.json"])
    alone = [json.loads(registry.exporter("inductor").export(each)["lookup_table.json"]) for each in tables("inductor")]
    assert found == alone[0] | alone[1]
    assert len(found) == len(alone[0]) + len(alone[1])


@pytest.mark.parametrize("text", ['{"bundle": 2, "tables": {"a": {}}}', '{"bundle": 1}', '{"bundle": 1, "tables": {}}'])
def test_a_bundle_of_another_schema_or_without_a_table_is_refused(text):
    with pytest.raises(ValueError, match="not a bundle of schema 1: use the loader that was exported beside it"):
        picked(text.encode())


def test_a_part_that_was_edited_is_refused_by_its_own_seal(tmp_path):
    path = tmp_path / "cute_table.json"
    bundle = export_bundle(registry.exporter("cute"), tables("cute"))[path.name]
    path.write_text(bundle.replace('"samples": 32', '"samples": 64'))
    with pytest.raises(ValueError, match="edited after it was written"):
        CuteTable(path, "cute_gemm")


def test_a_dispatcher_without_its_gpu_names_those_of_the_file(tmp_path):
    write_all(export_bundle(registry.exporter("cute"), tables("cute")), tmp_path)
    assert kind_of_file(tmp_path / "cute_table.json") is FileKind.CUTE
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        table = CuteTable(tmp_path / "cute_table.json", "cute_gemm")
        assert table.row(None, "NVIDIA B200") is None
    assert f"gemmtune: the table is for {BOTH}; on NVIDIA B200 no row applies" in map(str, (w.message for w in told))


@pytest.mark.slow(1, together="probes")
def test_the_package_beside_a_bundle_has_the_parts_of_both_and_takes_the_table_of_the_gpu(tmp_path, probe):
    write_all(export_bundle(registry.exporter("inductor"), tables("inductor")), tmp_path)
    (tmp_path / "loading.py").write_text(LOADING)
    done = probe(tmp_path / "loading.py", tmp_path)
    assert done.stdout.splitlines() == ["NVIDIA H200 True", f"{H100.name} False", f"{BOTH} False"], done.stderr
    report = file_report(str(tmp_path / "inductor_table.json"))
    assert [line.split()[:2] for line in report.to_text().splitlines()[-2:]] == [["NVIDIA", "H100"], ["NVIDIA", "H200"]]


def test_a_bundle_reads_as_one_file_of_sorted_gpus():
    text = bundle_text({"b": '{"x": 1}', "a": "{}"})
    assert list(json.loads(text)["tables"]) == ["a", "b"]
