"""Inductor's templates of attention, rendered and compiled for a GPU that is not here."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.spaces.flex.flex_attention import FlexAttentionSpace

SPACE = FlexAttentionSpace()
FORWARD = "flex:forward:b2:h32:kvh8:s4096:d128:bf16:mask=causal"
BACKWARD = "flex:backward:b1:h8:s1024:d64:bf16:mask=and(eq(at(t0,b,kv),at(t0,b,q)),le(kv,add(h,q)))"
DECODE = "flex:decode:b8:h32:kvh8:q1:kv4096:d128:bf16:mask=le(kv,add(q,t0))"
TILE = {"BLOCK_M": 128, "BLOCK_N": 64, "num_stages": 3, "num_warps": 8}


def task(name, sku="H200", space="flex_attention"):
    return Task(Flex.parse(name), catalogue.device(sku), space)


@pytest.mark.skipif(find_spec("torch") is None or find_spec("triton") is None, reason="torch or triton is missing")
@pytest.mark.slow(6)
@pytest.mark.filterwarnings("ignore:tl.make_block_ptr")  # of the template of torch 2.12
@pytest.mark.parametrize(
    ("name", "grid", "arguments"),
    [
        (FORWARD, (32, 2, 32), "q k v lse max kv_num kv_idx full_kv_num full_kv_idx out"),
        (
            BACKWARD,
            (16, 1, 8),
            "q k v lse delta do dq dv kv_num kv_idx q_num q_idx full_kv_num full_kv_idx full_q_num full_q_idx t0 dk",
        ),
        (DECODE, (1, 64, 4), "q k v m l kv_num kv_idx full_kv_num full_kv_idx t0 acc"),
        (f"{FORWARD}:dynamic=s", (32, 2, 32), "q k v lse max kv_num kv_idx full_kv_num full_kv_idx out size"),
    ],
)
def test_a_binary_takes_the_tensors_of_its_phase(name, grid, arguments, tmp_path):
    of = task(name)
    built = SPACE.build(of, SPACE.seeds(of)[0], tmp_path)
    launch = dict(built.launch)
    assert (launch["grid_x"], launch["grid_y"], launch["grid_z"]) == grid
    assert launch["arguments"] == arguments
    assert set(arguments.split()) - {"acc", "m", "l", "size"} <= set(of.problem.argument_names)


@pytest.mark.skipif(find_spec("torch") is None or find_spec("triton") is None, reason="torch or triton is missing")
@pytest.mark.slow(3)
def test_the_baseline_is_inductors_default_for_the_device(tmp_path):
    default = registry.space("flex_default")
    baseline = default.build(task(FORWARD, space="flex_default"), Config({}), tmp_path)
    assert baseline.digest == SPACE.build(task(FORWARD), Config(TILE), tmp_path).digest  # that of torch for sm_90


@pytest.mark.parametrize(
    ("name", "config", "rule"),
    [
        (f"{FORWARD}:block=64", TILE, "blocks"),
        (FORWARD, TILE | {"BLOCK_M": 256}, "blocks"),
        (FORWARD, TILE | {"BLOCK_N": 128, "num_stages": 4}, "shared memory"),
        (FORWARD, TILE | {"num_warps": 2}, "registers"),
        (FORWARD.replace("s4096", "q1:kv4096"), TILE, "phase"),
        (FORWARD.replace("d128", "d8"), TILE, "head"),
        (FORWARD.replace("s4096", "s1") + ":dynamic=s", TILE, "dynamic"),
        (
            BACKWARD,
            {f"BLOCK_{name}": 64 for name in ("M1", "M2", "N2")} | {"BLOCK_N1": 32, "num_stages": 1, "num_warps": 4},
            "blocks",
        ),
    ],
)
def test_a_tile_that_the_template_cannot_run_is_rejected(name, config, rule):
    assert SPACE.check(task(name), Config(config)).rule == rule


def test_one_binary_serves_every_dynamic_length():
    of, config = task(f"{FORWARD}:dynamic=s"), Config(TILE)
    other, wide = (replace(of, problem=of.problem.resized(size)) for size in (200, 2**20))
    assert SPACE.artifact_key(of, config) == SPACE.artifact_key(other, config) != SPACE.artifact_key(wide, config)
    assert SPACE.artifact_key(task(FORWARD), config) != SPACE.artifact_key(of, config)


def test_every_seed_is_a_point_of_its_space():
    for name in (FORWARD, BACKWARD, DECODE):
        of = task(name)
        assert SPACE.seeds(of)
        assert set(SPACE.seeds(of)) <= set(SPACE.points(of))
