"""Inductor's template of grouped products, rendered and compiled for a GPU that is not here."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import BuildError
from gemmtune.spaces.grouped.triton_grouped import TritonGroupedSpace

SPACE = TritonGroupedSpace()
FLAT = Config({"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64, "num_stages": 3, "num_warps": 4})
ROWS, INNER = "grouped:rows:m1000:g8:n1408:k2048:bf16:nt", "grouped:inner:m1408:g8:n2048:k1000:bf16:tn"


def task(name, sku="H200"):
    return Task(Grouped.parse(name), catalogue.device(sku), "triton_grouped")


@pytest.mark.skipif(find_spec("torch") is None or find_spec("triton") is None, reason="torch or triton is missing")
@pytest.mark.slow(8)
@pytest.mark.parametrize("name", [ROWS, INNER])
def test_one_binary_serves_every_number_of_rows_and_routing(name, tmp_path):
    of, other = task(name), task(f"{name}:routing=zipf")
    other = Task(other.problem.resized(77), of.device, of.space)
    one, another = SPACE.build(of, FLAT, tmp_path), SPACE.build(other, FLAT, tmp_path)
    assert one.digest == another.digest
    assert one.key == SPACE.artifact_key(other, FLAT)
    launch = dict(one.launch)
    assert launch["arguments"] == "a b offs out size"
    assert launch["blocks"] == 132
    assert launch["scratch_bytes"] > 0
    with pytest.raises(BuildError):
        SPACE.build(of, Config(dict(FLAT) | {"BLOCK_M": 48}), tmp_path)


def test_seeds_have_flat_tiles_for_few_rows_and_tall_ones_for_many():
    few, many = (SPACE.seeds(task(f"grouped:rows:m{m}:g64:n1536:k2048:bf16:nt")) for m in (512, 16384))
    assert {config["BLOCK_M"] for config in few} == {16, 32}
    assert {config["BLOCK_M"] for config in many} == {64, 128}


@pytest.mark.parametrize(
    ("name", "sku", "config", "rule"),
    [
        (ROWS, "A100-80GB", FLAT, "architecture"),
        ("grouped:batched:m64:g4:n256:k128:bf16:nn", "H200", FLAT, "form"),
        ("grouped:rows:m64:g4:n250:k128:bf16:nt", "H200", FLAT, "alignment"),
        (ROWS, "H200", Config(dict(FLAT) | {"BLOCK_N": 256, "BLOCK_K": 256, "num_stages": 5}), "shared memory"),
        (ROWS, "H200", Config(dict(FLAT) | {"BLOCK_M": 256, "BLOCK_N": 256}), "registers"),
    ],
)
def test_a_tile_that_the_template_cannot_run_is_rejected(name, sku, config, rule):
    assert SPACE.check(task(name, sku), config).rule == rule


@pytest.mark.parametrize(("sku", "served"), [("H200", True), ("B200", True), ("A100-80GB", False), ("RTX-5090", False)])
def test_torchs_own_product_is_no_baseline_where_it_loops_on_the_host(sku, served):
    verdict = registry.space("aten_grouped").check(task(ROWS, sku), Config({}))
    assert bool(verdict) is served
    assert served or verdict.rule == "architecture"
