"""Configs of cute_gemm as shapes of nvMatmulHeuristics, which counts in CTAs."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.spaces.cute_gemm import CuteGemmSpace, _modelled
from gemmtune.spaces.matmul_heuristics.model import Shape, estimates_of

HOPPER, BLACKWELL = "Sm90StaticPersistentGemmOperator", "PersistentDenseGemmOperator"
needs_package = pytest.mark.skipif(find_spec("nvMatmulHeuristics") is None, reason="no nvidia-matmul-heuristics")


def task(sku):
    return Task(Problem.parse("4096x4096x4096:bf16:nt"), catalogue.device(sku), "cute_gemm")


def config(operator, tile_m, tile_n, cluster_m, cluster_n, pair=False):
    return Config({
        "operator": operator, "mma_tiler_m": tile_m, "mma_tiler_n": tile_n, "cluster_shape_m": cluster_m,
        "cluster_shape_n": cluster_n, "use_2cta_instrs": pair,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("sku", "of", "shape"),
    [
        ("H200", config(HOPPER, 128, 256, 2, 1), Shape(128, 256, 2, 1)),
        ("B200", config(BLACKWELL, 256, 256, 4, 1, pair=True), Shape(128, 256, 4, 1)),
        ("B200", config(BLACKWELL, 128, 256, 1, 2), Shape(128, 256, 1, 2)),
        ("B200", config(BLACKWELL, 128, 256, 2, 1), None),  # the model would take it for a pair
        ("B200", config("TgvGemmOperator", 64, 8, 1, 1), None),
        ("H200", config("Sm80TensorOpGemmOperator", 128, 128, 1, 1), None),
    ],
)
def test_a_tile_is_counted_in_ctas(sku, of, shape):
    assert _modelled(task(sku), of) == shape


@needs_package
@pytest.mark.parametrize("sku", ["H200", "B200"])
def test_the_first_seed_is_a_proposal_of_the_model(sku):
    first = CuteGemmSpace().seeds(task(sku))[0]
    assert _modelled(task(sku), first) in estimates_of(task(sku)).proposals


@needs_package
@pytest.mark.parametrize(("sku", "estimated"), [("H200", {HOPPER}), ("B200", {BLACKWELL})])
def test_every_config_the_model_knows_has_a_time(sku, estimated):
    space = CuteGemmSpace()
    prior = space.prior(task(sku))
    assert estimated <= {found["operator"] for found in prior.times_ns}
    known = [c for c in space.points(task(sku)) if space.check(task(sku), c) and _modelled(task(sku), c)]
    assert len(prior.times_ns) > 0.9 * len(known)
    wide, narrow = ((128, 256, 2, 1), (64, 64, 1, 1)) if sku == "H200" else ((256, 256, 2, 1, True), (64, 64, 1, 1))
    times_ns = {_modelled(task(sku), c): time_ns for c, time_ns in prior.times_ns.items()}
    shape_of = partial(_modelled, task(sku))
    operator = next(iter(estimated))
    assert times_ns[shape_of(config(operator, *wide))] < 0.6 * times_ns[shape_of(config(operator, *narrow))]


@needs_package
def test_a_feature_is_the_estimated_time_over_the_best():
    space, of = CuteGemmSpace(), task("H200")
    times_ns = space.prior(of).times_ns
    best, slowest = min(times_ns, key=times_ns.get), max(times_ns, key=times_ns.get)
    unknown = next(c for c in space.points(of) if space.check(of, c) and c not in times_ns)
    estimates = [space.features(of, each)["estimate"] for each in (best, slowest, unknown)]
    assert estimates[0] == 0
    assert estimates[1] == estimates[2] > 1
