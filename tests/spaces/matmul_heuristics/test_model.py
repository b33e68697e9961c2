"""Queries to nvMatmulHeuristics, its answers, and its failures, which cost only the prior."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType
from gemmtune.engine.records.search import Prior
from gemmtune.engine.records.task import Task
from gemmtune.spaces.matmul_heuristics import model as heuristics
from gemmtune.spaces.matmul_heuristics.model import Estimates, Shape, estimates_of, prior_of, proposed_configs

needs_package = pytest.mark.skipif(find_spec("nvMatmulHeuristics") is None, reason="no nvidia-matmul-heuristics")


PACKAGE = "nvidia-matmul-heuristics"


def task(problem="4096x4096x4096:bf16:nt", sku="H200"):
    return Task(Problem.parse(problem), catalogue.device(sku), "any")


def clear_cache():
    estimates_of.cache_clear()
    heuristics._answer.cache_clear()


@pytest.fixture(autouse=True)
def fresh_cache():
    clear_cache()
    yield
    clear_cache()


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Replace the program that asks the model, on a machine that has the package."""
    monkeypatch.setattr(heuristics, "version", lambda package: "1.2.3")

    def use(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        monkeypatch.setattr(heuristics, "_PROGRAM", path)

    return use


# the model itself ---------------------------------------------------------------------------------------------------


@needs_package
def test_a_large_problem_gets_large_tiles_and_every_proposal_has_a_time():
    found = estimates_of(task())
    assert found.reason == ""
    best = found.proposals[0]
    assert best.tile_m * best.tile_n == 128 * 256
    assert set(found.proposals) <= set(found.times_ns)
    assert found.times_ns[Shape(128, 256, 2, 1)] < 0.5 * found.times_ns[Shape(64, 64, 1, 1)]
    assert 1e5 < min(found.times_ns.values()) < 3e5  # 137 GFLOP; cuBLAS reaches 790 TFLOP/s on this GPU


@needs_package
def test_a_small_problem_gets_small_tiles():
    found = estimates_of(task("16x4096x4096:bf16:nt"))
    assert found.proposals[0].tile_m == 64
    assert found.proposals[0].tile_n <= 64
    assert found.times_ns[Shape(64, 32, 1, 1)] < found.times_ns[Shape(128, 256, 1, 1)]


@needs_package
@pytest.mark.parametrize("dtype", ["fp16", "e4m3", "e5m2", "int8"])
@pytest.mark.parametrize("sku", ["H200", "B200"])
def test_it_knows_the_types_of_tensor_cores(dtype, sku):
    found = estimates_of(task(f"4096x4096x4096:{dtype}:nt", sku))
    assert found.reason == ""
    assert len(found.times_ns) > 100


@needs_package
def test_tiles_are_counted_per_cta_when_two_ctas_form_a_pair():
    on_b200 = estimates_of(task(sku="B200"))
    assert max(shape.tile_m for shape in on_b200.times_ns) == 128
    assert on_b200.times_ns[Shape(128, 256, 2, 1)] < estimates_of(task()).times_ns[Shape(128, 256, 2, 1)]


# queries ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "layout", "precision"),
    [
        ("64x32x16:bf16:nt", "TN_ROW_MAJOR", "TST"),
        ("64x32x16:fp16:nn", "TT_ROW_MAJOR", "HSH"),
        ("64x32x16:bf16:tn", "NT_ROW_MAJOR", "TST"),
        ("64x32x16:bf16:tt:out_dtype=fp32", "NN_ROW_MAJOR", "TSS"),
        ("64x32x16:e4m3:nt", "TN_ROW_MAJOR", "QQTST"),
        ("64x32x16:int8:nt", "TN_ROW_MAJOR", "BII"),
    ],
)
def test_a_query_writes_row_major_as_t(program, problem, layout, precision):
    program("raise SystemExit('must not start')")
    query, operand = heuristics._query(task(problem)), Problem.parse(problem).a_dtype
    assert (query["layout"], query["precision"]) == (layout, precision)
    assert (query["m"], query["n"], query["k"], query["batch"]) == (64, 32, 16, 1)
    assert (query["gpu"], query["tile_k"] * operand.itemsize) == ("H200_SXM", 128)


# failing open -------------------------------------------------------------------------------------------------------


def test_an_unknown_gpu_or_type_starts_no_program(program):
    program("raise SystemExit('must not start')")
    assert estimates_of(task(sku="RTX-4060")).reason.startswith(
        "nvidia-matmul-heuristics does not know the NVIDIA GeForce RTX 4060; it knows A100-80GB, "
    )
    unknown = "nvidia-matmul-heuristics has no precision for operands of"
    assert estimates_of(task("64x64x64:tf32:nt")).reason == f"{unknown} fp32, fp32, fp32 accumulated in fp32"
    mixed = task()
    mixed = replace(mixed, problem=replace(mixed.problem, b_dtype=DType.FP16))
    assert estimates_of(mixed).reason == f"{unknown} bf16, fp16, bf16 accumulated in fp32"


def test_a_missing_package_is_named_with_the_way_to_install_it(monkeypatch):
    def none(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr(heuristics, "version", none)
    reason = "nvidia-matmul-heuristics is not installed: pip install nvidia-matmul-heuristics"
    assert estimates_of(task()) == Estimates(reason=reason)
    assert prior_of(task(), [Config({})], lambda config: Shape(64, 64, 1, 1)) == Prior(reason=reason)
    assert proposed_configs(task(), [Config({})], lambda config: Shape(64, 64, 1, 1)) == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import os; os.abort()", "ended with status -6: no message"),
        ("import os; os.close(0); os.abort()", "ended with status -6: no message"),
        ("raise ValueError('no such layout')", "ended with status 1: ValueError: no such layout"),
        ("print('{\"proposals\": [')", "ended with status 0: no message"),
        ("import os; os.write(1, bytes([255]))", "ended with status 0: no message"),
        ('print(\'{"proposals": [], "times": []}\')', "proposes nothing for H200/any/4096x4096x4096:bf16:nt"),
    ],
)
def test_a_program_that_breaks_costs_only_the_prior(program, text, reason):
    program(text)
    assert estimates_of(task()) == Estimates(reason=f"{PACKAGE} {reason}")


def test_a_program_that_hangs_is_killed(program, monkeypatch):
    program("import time; time.sleep(600)")
    monkeypatch.setattr(heuristics, "_TIMEOUT_SECONDS", 0.5)
    assert estimates_of(task()).reason == f"{PACKAGE} did not answer for 0.5 s"


COUNTING = """
import json, pathlib, sys
with pathlib.Path(sys.argv[0]).with_suffix(".count").open("a") as file:
    print(json.load(sys.stdin)["m"], file=file)
    number = file.tell()
print(json.dumps({"proposals": [[64, 64, 1, number]], "times": []}))
"""

ANSWER = """
import os
print('''{"proposals": [[128, 256, 2, 1], [64, 32, 1, 1], [128, 256, 2, 1]],
          "times": [[128, 256, 2, 1, 2e-05], [64, 64, 1, 1, 4e-05]]}''', flush=True)
os.abort()
"""
WIDE, SMALL, THIN = Shape(128, 256, 2, 1), Shape(64, 64, 1, 1), Shape(64, 32, 1, 1)


def test_an_answer_counts_although_the_program_crashes_afterwards(program):
    program(ANSWER)
    assert estimates_of(task()).proposals == (WIDE, THIN, WIDE)
    assert estimates_of(task()).times_ns == {WIDE: pytest.approx(2e4), SMALL: pytest.approx(4e4)}


def test_proposals_and_times_are_mapped_from_shapes_to_configs(program):
    program(ANSWER)
    shapes = {Config({"x": x}): shape for x, shape in enumerate([THIN, SMALL, None, WIDE, WIDE])}
    # Proposals keep their order, one config per shape.
    assert proposed_configs(task(), shapes, shapes.get) == (Config({"x": 3}), Config({"x": 0}))
    prior = prior_of(task(), shapes, shapes.get)
    assert prior.times_ns == {
        Config({"x": 1}): pytest.approx(4e4),
        Config({"x": 3}): pytest.approx(2e4),
        Config({"x": 4}): pytest.approx(2e4),
    }
    assert (prior.model, prior.reason) == ("nvidia-matmul-heuristics 1.2.3", "")
    nothing = prior_of(task(), shapes, lambda config: THIN)
    assert nothing == Prior(
        reason="nvidia-matmul-heuristics estimates none of the configs of H200/any/4096x4096x4096:bf16:nt"
    )


@needs_package
def test_the_model_is_named_with_its_installed_version():
    prior = prior_of(task(), [Config({})], lambda config: WIDE)
    assert prior.model == f"nvidia-matmul-heuristics {version('nvidia-matmul-heuristics')}"


def test_two_spaces_share_one_query_per_problem(program):
    program(COUNTING)
    one, other = (estimates_of(replace(task(), space=space)).proposals for space in ("one", "other"))
    assert one == other
