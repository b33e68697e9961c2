from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ToolchainMissing
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.spaces import triton_mm_tma
from gemmtune.spaces.triton_mm_tma import TritonMmTmaSpace

SPACE = TritonMmTmaSpace()
LARGE = "2048x4096x4096:bf16:nt"
TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 4, "num_warps": 8}


def task(problem, sku="H200"):
    return Task(Problem.parse(problem), catalogue.device(sku), "triton_mm_tma")


BREAKS = [
    (f"8x{LARGE}:bmm", {}, "operation", ["renders mm or addmm, not bmm"]),
    (f"{LARGE}:out_dtype=fp32", {}, "dtypes", ["triton_mm_tma needs A, B and out of one dtype"]),
    (f"{LARGE}:dynamic_m=true", {}, "dynamic m", ["triton_mm_tma is for static sizes: leave out dynamic_m"]),
    ("2048x4096x4100:bf16:nt", {}, "alignment", ["rows of A of 8200 B", "the 16 B that TMA needs"]),
    ("2044x4096x4096:bf16:tn", {}, "alignment", ["rows of A of 4088 B"]),
    ("2048x4100x4096:bf16:nn", {}, "alignment", ["rows of B of 8200 B"]),
    ("1x4096x4096:bf16:nt", {"BLOCK_M": 16}, "one row", ["an A of one row for a transposed one"]),
    ("20x4096x4096:bf16:nt", {}, "BLOCK_M beyond the problem", ["BLOCK_M 128 > 32"]),
    (LARGE, {"BLOCK_M": 16, "BLOCK_N": 32}, "idle warps", ["num_warps 8 > 2"]),
    (LARGE, {"BLOCK_M": 256, "BLOCK_N": 256, "num_warps": 4}, "registers", ["512 accumulators per thread > 255"]),
    (LARGE, {"BLOCK_K": 128}, "shared memory", ["at least 262176 B", "> 232448 B", "at 4 stages"]),
    ("1024x4096x4096", {"GROUP_M": 16}, "GROUP_M without effect", ["GROUP_M 16 orders 8 rows"]),
]


@pytest.mark.parametrize(("problem", "changes", "rule", "words"), BREAKS)
def test_a_rejection_names_the_rule_the_value_and_the_bound(problem, changes, rule, words):
    assert SPACE.check(task(LARGE), Config(TILE))
    verdict = SPACE.check(task(problem), Config(TILE | changes))
    assert verdict.rule == rule
    assert [word for word in words if word not in verdict.reason] == []


@pytest.mark.parametrize(
    "problem",
    [
        f"{LARGE}:addmm",
        f"{LARGE}:addmm:bias=matrix",
        "2048x4104x4096:bf16:nn",
        "2048x4097x4096:bf16:nt",  # n lies along no row of an operand; the output is stored without TMA
        "2047x4096x4096:bf16:nt",
        "2048x4096x4100:fp32:nt",
    ],
)
def test_operands_that_tma_can_read_pass(problem):
    verdict = SPACE.check(task(problem), Config(TILE | {"num_stages": 2}))
    assert verdict, verdict.reason


@pytest.mark.parametrize(
    ("sku", "reason"),
    [
        ("H200", ""),
        ("H100", ""),
        ("RTX-5090", ""),
        ("RTX-4090", "TMA needs sm_90 or later, not sm_89"),
        ("A100", "TMA needs sm_90 or later, not sm_80"),
        ("B200", "Inductor has another persistent template for sm_100a"),
    ],
)
def test_it_is_offered_on_the_gpus_that_inductor_offers_it_on(sku, reason):
    assert SPACE.check(task(LARGE, sku), Config(TILE | {"num_stages": 2})).reason == reason


def test_the_limit_of_shared_memory_is_the_devices():
    needed = 4 * (2 * 64 * 256 + 8)  # four buffers of both tiles, each with a barrier
    for limit, fits in ((needed, True), (needed - 1, False)):
        device = replace(catalogue.device("H200"), shared_memory_per_block_bytes=limit)
        target = Task(Problem.parse(LARGE), device, "triton_mm_tma")
        assert bool(SPACE.check(target, Config(TILE))) is fits


def inductors_configs(of, search_space):
    """Return the list of Inductor's own heuristic for this problem: scaled, pruned, finalised."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("triton", reason="triton is not installed")
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering
    from torch._inductor.kernel.mm import persistent_tma_mm_template
    from torch._inductor.kernel_inputs import MMKernelInputs
    from torch._inductor.template_heuristics.registry import get_template_heuristic
    from torch._inductor.virtualized import V

    from gemmtune.spaces.inductor.render import _operands
    from gemmtune.spaces.inductor.target import target

    graph = GraphLowering(torch.fx.symbolic_trace(torch.nn.Identity()))
    changes = {"max_autotune_gemm": True, "max_autotune_gemm_search_space": search_space}
    with target(of.device), V.set_graph_handler(graph), config.patch(changes):
        heuristic = get_template_heuristic(persistent_tma_mm_template.uid, "cuda", "mm")
        inputs = MMKernelInputs(_operands(graph, of.problem, of.problem.m))
        found = [params.to_kwargs() for params in heuristic.get_template_configs(inputs, "mm")]
    return [Config({name: int(kwargs[name]) for name in TILE}) for kwargs in found]


@pytest.mark.parametrize("problem", [LARGE, "16x4096x4096:bf16:nt", "512x4096x4096:fp32:tn", "48x304x24:bf16:tt"])
def test_seeds_are_inductors_default_list(problem):
    inductors = set(inductors_configs(task(problem), "DEFAULT"))
    verdicts = {config: SPACE.check(task(problem), config) for config in inductors}
    assert {verdict.rule for verdict in verdicts.values()} <= {"", "shared memory"}
    assert set(SPACE.seeds(task(problem))) == {config for config, verdict in verdicts.items() if verdict}


def test_the_default_list_is_the_one_torch_ships():
    assert len(triton_mm_tma._DEFAULT_LIST) == len(inductors_configs(task("4096x4096x4096"), "DEFAULT")) == 8


@pytest.mark.usefixtures("warps_of_32")
def test_the_space_contains_exhaustive_but_for_shared_memory_and_less_than_four_warps():
    # Inductor drops two warps for TMA before it lowers eight to what a small tile can use.
    exhaustive = inductors_configs(task(LARGE), "EXHAUSTIVE")
    whole = [config for config in exhaustive if config.integer("num_warps") >= 4]
    assert set(SPACE.points(task(LARGE))).issuperset(whole)
    assert {SPACE.check(task(LARGE), config).rule for config in whole} == {"", "shared memory"}
    for config in set(exhaustive) - set(whole):
        assert config.integer("BLOCK_M") * config.integer("BLOCK_N") < 4 * 256


def test_the_toolchain_names_torch_triton_and_ptxas():
    try:
        installed = {"torch": version("torch"), "triton": version("triton")}
    except ImportError:
        with pytest.raises(ToolchainMissing, match=r"pip install 'gemmtune\[triton\]'"):
            SPACE.toolchain()
        return
    found = dict(SPACE.toolchain().versions)
    found.pop("ptxas", None)  # there where it is not Triton's own
    assert found == installed
