"""`gemmtune bench` without a GPU: the timing is a fake, and the command's arms, file and report are real."""

from __future__ import annotations

import json

import pytest

from gemmtune.engine.api import benching
from gemmtune.engine.consumers.inductor.bench.model_bench import ArmTimes, ModelBench, ProductGain


@pytest.fixture
def asked(monkeypatch):
    """What the timing is asked for; it answers with one round per arm, 2 ms, 4 ms and so on."""
    found = []

    def timed(call, *inputs, notify, **options):
        found.append({"call": call, "inputs": inputs, **options})
        arms = tuple(
            ArmTimes(arm, (2e6 * number,) * 9, 1.25, 3, 5, number * 2**20, 0.001, 0)
            for number, arm in enumerate(options["arms"], 1)
        )
        products = (
            ProductGain("16x32x64:bf16:nt", 4, "row", "k", 9_000.0, 5_000.0),
            ProductGain("8x32x64:bf16:nt", 1, "miss", "extern_kernels.mm", 7_000.0, None),
        )
        return ModelBench(call, inputs, options["grad"], "NVIDIA H200", "2.13.0", True, arms, products)

    monkeypatch.setattr(benching, "bench", timed)
    return found


@pytest.mark.parametrize(
    ("more", "arms", "table", "grad", "seconds"),
    [
        (("--quiet",), ("eager", "compile"), None, False, 10.0),
        (("--table", ".", "--no-binaries"), ("eager", "compile", "table"), ".", False, 10.0),
        (("--arms", "compile,max-autotune", "--grad", "--seconds", "3"), ("compile", "max-autotune"), None, True, 3.0),
    ],
)
def test_arms_and_options_reach_the_timing(run, asked, more, arms, table, grad, seconds):
    found = run("bench", "m:f", "--input", "bf16[2,2]", *more)
    assert found.status == 0, found.err
    [given] = asked
    assert (given["call"], given["inputs"]) == ("m:f", ("bf16[2,2]",))
    assert given["binaries"] == ("--no-binaries" not in more)
    assert (given["arms"], given["grad"], given["seconds"]) == (arms, grad, seconds)
    assert (None if given["table"] is None else str(given["table"])) == table


def test_the_report_has_each_arms_numbers_and_each_products_gain(run, asked, tmp_path):
    found = run("bench", "m:f", "--input", "bf16[2,2]", "--table", ".")
    head, *lines = [line.split() for line in found.out.splitlines() if line.split()]
    assert " ".join(head) == "m:f(bf16[2,2]), forward, on NVIDIA H200, torch 2.13.0, in CUDA graphs"
    assert ["eager", "2.000", "0.00", "2.000x", "(2.000", "to", "2.000)", "1.2", "3", "1", "1.0e-03"] in lines
    assert ["table", "6.000", "0.00", "0.667x", "(0.667", "to", "0.667)", "1.2", "3", "3", "1.0e-03"] in lines
    assert ["16x32x64:bf16:nt", "4", "9.0", "5.0", "16.0", "row"] in lines
    assert ["8x32x64:bf16:nt", "1", "7.0", "-", "-", "miss:", "extern_kernels.mm"] in lines
    assert "by its rows the table saves 16.0 µs per call" in found.out
    assert "1 products have no row: gemmtune tune --problem 8x32x64:bf16:nt" in found.out
    kept = json.loads((tmp_path / "bench.json").read_text())
    assert [arm["over_compile"]["factor"] for arm in kept["arms"]] == pytest.approx([2, 1, 2 / 3])
    assert kept["products"][0]["saved_ns"] == 16_000
    assert kept["fastest_other"] == "eager"


def test_the_head_says_what_a_call_is_and_json_is_the_record(run, asked, tmp_path):
    assert ", forward and backward, on" in run("bench", "m:f", "--grad").out
    assert not (tmp_path / "bench.json").exists()  # without a table the result has no folder
    record = json.loads(run("bench", "m:f", "--json", "--out", "mine.json").out)
    assert record == json.loads((tmp_path / "mine.json").read_text())
    assert [arm["time_ns"] for arm in record["arms"]] == [2e6, 4e6]
