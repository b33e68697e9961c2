"""Attention with a table and without, lowered by the installed torch; see flex_probe.py."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row
from gemmtune.engine.testing.exporter_conformance import example_table
from gemmtune.engine.toolchain.releases import source_hash

pytestmark = [pytest.mark.slow(15, together="probes"), pytest.mark.timeout(300)]

HEAD = "b1:h4:kvh2:q512:kv512:d64:bf16"
TILE = {"BLOCK_M": 64, "BLOCK_N": 128, "num_stages": 2, "num_warps": 4}
OTHER = TILE | {"num_warps": 8}
BACK = {"BLOCK_M1": 32, "BLOCK_N1": 64, "BLOCK_M2": 64, "BLOCK_N2": 32, "num_stages": 2, "num_warps": 4}
PARTS = {"BLOCK_N": 128, "num_stages": 2, "num_warps": 4}


def row(problem, config, space="flex_attention"):
    times = 100.0, 99.0, 101.0
    choice = Choice(space, Config(config), *times, 32, Evidence.MEASURED, "torch 2.13.0", "events-cold-l2")
    return Row(Flex.parse(problem), (choice,), None, 0.0, ())


CAUSAL, GRADIENT = f"flex:forward:{HEAD}:mask=causal", f"flex:backward:{HEAD}:mask=causal"
WINDOW = f"flex:forward:{HEAD}:mask=window(100):score=softcap(20)"
DOCUMENTS, DECODE = f"flex:forward:{HEAD}:mask=causal_document", f"flex:decode:{HEAD.replace('q512', 'q1')}"
DEFAULT = f"flex:forward:{HEAD.replace('h4:kvh2', 'h2')}"
LENGTHS = f"flex:forward:{HEAD}:mask=and(at(t0,b,q,kv),lt(kv,at(t1,b)))"
ROWS = (
    row(CAUSAL, TILE),
    row(GRADIENT, BACK),
    row(WINDOW, TILE | {"num_stages": 3}),
    row(f"{DOCUMENTS}:documents=300.212", TILE | {"num_warps": 8}),
    row(DECODE, PARTS),
    row(DEFAULT, {}, "flex_default"),
    row(f"{LENGTHS}:seen=30.30", TILE),
)


def ranged(problem, first, last, config):
    of = Flex.parse(f"{problem}:dynamic={'kv' if 'q1:' in problem else 's'}")
    return RangeRow(of.resized(last), first, last, row(of.name, config).choices[0], ((last, 0.0),), ())


RANGES = (
    ranged(CAUSAL, 128, 300, TILE),
    ranged(CAUSAL, 301, 4096, TILE | {"num_stages": 4}),
    ranged(DECODE, 2, 8192, PARTS | {"num_warps": 8}),
    ranged(GRADIENT, 2, 8192, BACK | {"num_stages": 3}),
    ranged(DOCUMENTS, 2, 1024, TILE | {"num_warps": 8}),
)


UNSERVED = {
    "blocks alone": "blocks of 64x64 alone",
    "several types": "several dtypes",
    "a head too many": "reads no head: leave out H",
    "fp32": "its operands are fp32",
    "odd blocks": "blocks of its mask are 96x96",
    "a length in a mask": "reads a number that is open",
}
COMPARED = ("default", "user's tile", "no row", "other score", "open length", *UNSERVED)
ARMS = (f"stock={','.join(COMPARED)}", "table", "max=causal,training,decode,default")
"""Which cases are compiled how: without the table those alone that are compared."""


@pytest.fixture(scope="module")
def report(probed, exported):
    return probed("flex_probe.py", exported(ROWS, RANGES), *ARMS)


def chosen(report, arm, case):
    """Return the config of each kernel that Inductor was given to select from, which are one each."""
    found = []
    for choices in report[arm][case]["described"]:
        (text,) = choices
        parts = dict(part.split("=") for part in text.split(", ") if "=" in part)
        found.append({name: int(parts[name]) for name in (*BACK, *TILE) if name in parts})
    return found


def uses(report, case):
    return [(use["problem"], use["outcome"]) for use in report["table"][case]["uses"]]


@pytest.mark.parametrize("arm", ["table", "max"])
def test_a_row_is_the_one_config_and_nothing_is_benchmarked(report, arm):
    for case, expected in (("causal", [TILE]), ("training", [TILE, BACK])):
        assert chosen(report, arm, case) == expected
        assert report[arm][case]["benchmarks"] == 0
    (found,) = chosen(report, arm, "decode")
    assert PARTS.items() <= found.items()


def test_masks_and_scores_are_found_however_they_are_written(report):
    assert uses(report, "window") == [(WINDOW, "row")]
    assert chosen(report, "table", "window") == [TILE | {"num_stages": 3}]
    assert uses(report, "documents") == [(DOCUMENTS, "row")]
    assert chosen(report, "table", "documents") == [TILE | {"num_warps": 8}]


def test_a_mask_of_several_tensors_is_found(report):
    assert uses(report, "lengths") == [(LENGTHS, "row")]


def test_a_row_of_the_default_config_is_torchs_one(report):
    assert uses(report, "default") == [(DEFAULT, "aten row")]
    stock = chosen(report, "stock", "default")
    assert chosen(report, "table", "default") == chosen(report, "max", "default") == stock


def test_a_users_options_win(report):
    assert chosen(report, "table", "user's tile") == chosen(report, "stock", "user's tile")
    (use,) = report["table"]["user's tile"]["uses"]
    assert (use["outcome"], use["detail"]) == ("no problem", "its kernel_options set BLOCK_M, BLOCK_N")


@pytest.mark.parametrize("case", UNSERVED)
def test_a_call_that_no_row_can_describe_is_no_problem_to_tune(report, case):
    if case == "a length in a mask" and report["stock"][case]["failure"]:
        pytest.skip("before 2.13 torch compiles no open length in a mask")
    (use,) = report["table"][case]["uses"]
    assert use["outcome"] == "no problem"
    assert UNSERVED[case] in use["detail"]
    assert report["table"][case]["described"] == report["stock"][case]["described"]
    assert report["table"][case]["failure"] == report["stock"][case]["failure"]


def test_what_has_no_row_is_compiled_as_without_a_table(report):
    for case in ("no row", "other score", "open length"):
        assert report["table"][case]["described"] == report["stock"][case]["described"], case
        assert report["table"][case]["failure"] == report["stock"][case]["failure"]
    assert uses(report, "no row") == [(f"flex:forward:{HEAD}", "miss")]
    assert "computes aten.erf" in report["table"]["other score"]["uses"][0]["detail"]
    assert "keys another one" in report["table"]["open length"]["uses"][0]["detail"]


def test_the_range_of_an_open_length_serves_it_and_a_fixed_length_within_it(report):
    assert chosen(report, "table", "range") == [TILE | {"num_stages": 4}, BACK | {"num_stages": 3}]
    assert uses(report, "range") == [(f"{each}:dynamic=s", "row") for each in (CAUSAL, GRADIENT)]
    assert chosen(report, "table", "in a range") == [TILE | {"num_stages": 4}]
    assert uses(report, "in a range") == [(CAUSAL.replace("512", "640"), "row")]
    assert (PARTS | {"num_warps": 8}).items() <= chosen(report, "table", "cache")[0].items()
    assert uses(report, "range of documents") == [(f"{DOCUMENTS}:dynamic=s", "row")]


def test_an_export_has_the_hash_of_each_template_that_timed_its_rows(exported):
    table = json.loads((exported(ROWS[:2]) / "inductor_table.json").read_text())
    names = ("flex::forward", "flex::backward")
    assert table["templates"] == {name: [source_hash(name, "2.13.0")] for name in names}


def test_rows_that_differ_in_the_lengths_of_documents_share_the_config_that_loses_least(exported):
    def measured(documents, weight, **times):
        base, *others = (
            replace(row(DOCUMENTS, config, space).choices[0], time_ns=times[name])
            for name, space, config in (
                ("base", "flex_default", {}),
                ("one", "flex_attention", TILE),
                ("two", "flex_attention", OTHER),
            )
        )
        problem = replace(Flex.parse(f"{DOCUMENTS}:documents={documents}"), weight=weight)
        return Row(problem, tuple(sorted((base, *others), key=lambda each: each.time_ns)), base, 0.0, ())

    rows = measured("300.212", 1.0, base=100.0, one=50.0, two=90.0), measured("2", 5.0, base=100.0, one=99.0, two=80.0)
    found = json.loads((exported(rows) / "inductor_table.json").read_text())["rows"]
    (kept,) = found[DOCUMENTS]
    assert kept["kwargs"] == OTHER
    assert kept["facts"]["loss"] == pytest.approx(0.8)
    assert "documents=300.212" in InductorExporter().left_out(replace(example_table(), rows=rows, ranges=()))
