from __future__ import annotations

import math
from dataclasses import replace
from importlib.metadata import version

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ToolchainMissing
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.spaces import triton_mm
from gemmtune.spaces.triton_mm import TritonMmSpace

SPACE = TritonMmSpace()
LARGE, DECODE, RAGGED = "2048x4096x4096:bf16:nt", "16x4096x4096:bf16:nt", "1000x3000x999:fp32:tn"
FINE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}


def task(problem, sku="H200"):
    return Task(Problem.parse(problem), catalogue.device(sku), "triton_mm")


def inductors_configs(of, search_space):
    """Return the list of Inductor's own heuristic for this problem: scaled, pruned, finalised."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("triton", reason="triton is not installed")
    from torch._inductor import config, ir
    from torch._inductor.graph import GraphLowering
    from torch._inductor.kernel.mm import mm_template
    from torch._inductor.kernel_inputs import MMKernelInputs
    from torch._inductor.template_heuristics.registry import get_template_heuristic
    from torch._inductor.virtualized import V

    problem = of.problem
    dtype = getattr(torch, problem.a_dtype.torch_name)
    operands = []
    for name, size, layout in (
        ("a", [problem.m, problem.k], problem.a_layout),
        ("b", [problem.k, problem.n], problem.b_layout),
    ):
        stride = [size[1], 1] if layout == "n" else [1, size[0]]
        fixed = ir.FixedLayout(torch.device("cuda", 0), dtype, size, stride)
        operands.append(ir.StorageBox(ir.InputBuffer(name=name, layout=fixed)))
    graph = GraphLowering(torch.fx.symbolic_trace(torch.nn.Identity()))
    changes = {"max_autotune_gemm": True, "max_autotune_gemm_search_space": search_space}
    with V.set_graph_handler(graph), config.patch(changes):
        heuristic = get_template_heuristic(mm_template.uid, "cuda", "mm")
        assert type(heuristic).__name__ == "CUDAMMTemplateConfigHeuristic"
        found = [params.to_kwargs() for params in heuristic.get_template_configs(MMKernelInputs(operands), "mm")]
    return [Config({name: int(kwargs[name]) for name in FINE}) for kwargs in found]


@pytest.mark.usefixtures("warps_of_32")
@pytest.mark.parametrize("sku", ["H200", "A100", "RTX-4090"])
@pytest.mark.parametrize(("problem", "count"), [(LARGE, 1400), (DECODE, 250), (RAGGED, 1400)])
def test_the_space_contains_exhaustive_and_only_shared_memory_rejects_it(problem, count, sku):
    points = set(SPACE.points(task(problem, sku)))
    exhaustive = inductors_configs(task(problem, sku), "EXHAUSTIVE")
    assert len(set(exhaustive)) == len(exhaustive) == count
    assert points.issuperset(exhaustive)
    verdicts = [SPACE.check(task(problem, sku), config) for config in exhaustive]
    assert {verdict.rule for verdict in verdicts} == {"", "shared memory"}


def test_the_space_holds_the_1875_points_of_exhaustive_and_more():
    values = {param.name: set(param.values) for param in SPACE.params(task(LARGE))}
    exhaustive = {name: {16, 32, 64, 128, 256} for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")}
    exhaustive |= {"num_stages": {1, 2, 3, 4, 5}, "num_warps": {2, 4, 8}, "GROUP_M": {8}}
    assert math.prod(map(len, exhaustive.values())) == 1875
    assert all(exhaustive[name] <= values[name] for name in values)
    assert math.prod(map(len, values.values())) == len(list(SPACE.points(task(LARGE)))) == 12_000


@pytest.mark.parametrize("sku", ["H200", "A100", "RTX-4090", "B200"])
@pytest.mark.parametrize("problem", [LARGE, DECODE, RAGGED, "512x4096x4096:fp32", "1x1x1:fp16:nn", "40x300x20:bf16:tt"])
def test_seeds_are_inductors_default_list(problem, sku):
    target = task(problem, sku)
    inductors = set(inductors_configs(target, "DEFAULT"))
    verdicts = {config: SPACE.check(target, config) for config in inductors}
    assert {verdict.rule for verdict in verdicts.values()} <= {"", "shared memory"}
    expected = {config for config, verdict in verdicts.items() if verdict}
    if tuple(map(int, version("torch").split(".")[:2])) < (2, 13):
        # 2.13 added one to the list, good on older versions too
        sizes = (target.problem.m, target.problem.n, target.problem.k)
        padded = [max(16, 1 << (size - 1).bit_length()) for size in sizes]
        block_m, block_n, block_k = (min(pair) for pair in zip((128, 256, 64), padded, strict=True))
        tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
        added = Config({**tile, "num_stages": 4, "num_warps": min(8, block_m * block_n // 256)})
        expected |= {added} if SPACE.check(target, added) else set()
    assert set(SPACE.seeds(target)) == expected


def test_the_default_list_is_the_one_torch_2_13_ships():
    inductors = inductors_configs(task("4096x4096x4096"), "DEFAULT")
    if not version("torch").startswith("2.13."):
        pytest.skip("compares with torch 2.13")
    assert len(triton_mm._DEFAULT_LIST) == len(inductors) == 21


def test_a_gpu_with_less_shared_memory_has_fewer_seeds():
    assert len(SPACE.seeds(task(LARGE, "H200"))) == 20  # without 128x128x128 at 4 stages: 262144 B > 232448 B
    assert len(SPACE.seeds(task(LARGE, "RTX-4090"))) == 16


def test_the_first_seed_loads_the_fewest_operands():
    best = Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 4, "num_warps": 8})
    assert SPACE.seeds(task(LARGE))[0] == best  # 256 tiles on 132 SMs: 2 waves × (128 + 256)
    assert SPACE.seeds(task(DECODE))[0].integer("BLOCK_M") == 16


BREAKS = [
    ("1x4096x4096:bf16:nt:dynamic_m=true", {}, "dynamic m of 1", ["m of 1 for a static size: leave out dynamic_m"]),
    (f"{LARGE}:addmm:out_dtype=fp32", {}, "dtypes", ["not bf16, bf16, fp32 accumulated in fp32"]),
    (f"{LARGE}:b_dtype=fp16", {}, "dtypes", ["not bf16, fp16, bf16 accumulated in fp32"]),
    (f"{LARGE}:acc_dtype=bf16", {}, "dtypes", ["not bf16, bf16, bf16 accumulated in bf16"]),
    ("20x4096x4096", {}, "BLOCK_M beyond the problem", ["BLOCK_M 64 > 32", "padded m of 20"]),
    ("4096x1x4096", {}, "BLOCK_N beyond the problem", ["BLOCK_N 64 > 16", "padded n of 1"]),
    ("4096x4096x17", {"BLOCK_K": 64}, "BLOCK_K beyond the problem", ["BLOCK_K 64 > 32", "padded k of 17"]),
    (LARGE, {"BLOCK_M": 16, "BLOCK_N": 32}, "idle warps", ["num_warps 4 > 2", "16x32 tile"]),
    (LARGE, {"num_warps": 1}, "lone warp", ["num_warps 1", "64x64 has work for 8"]),
    (LARGE, {"BLOCK_M": 256, "BLOCK_N": 256}, "registers", ["512 accumulators per thread > 255", "at 4 warps"]),
    (LARGE, {"BLOCK_K": 256, "num_stages": 4}, "shared memory", ["at least 262144 B", "> 232448 B", "at 4 stages"]),
    ("512x4096x4096", {"GROUP_M": 16}, "GROUP_M without effect", ["GROUP_M 16 orders 8 rows", "as GROUP_M 8 does"]),
    ("256x4096x4096", {"GROUP_M": 4}, "GROUP_M without effect", ["GROUP_M 4 orders 4 rows", "as GROUP_M 8 does"]),
    ("4x512x4096x4096:bf16:nt:bmm", {"GROUP_M": 16}, "GROUP_M without effect", ["GROUP_M 16 orders 8 rows"]),
    ("20x20x4096:bf16:nt:dynamic_m=true", {}, "BLOCK_N beyond the problem", ["BLOCK_N 64 > 32", "padded n of 20"]),
]


@pytest.mark.parametrize(("problem", "changes", "rule", "words"), BREAKS)
def test_a_rejection_names_the_rule_the_value_and_the_bound(problem, changes, rule, words):
    assert SPACE.check(task(LARGE), Config(FINE))
    verdict = SPACE.check(task(problem), Config(FINE | changes))
    assert verdict.rule == rule
    assert [word for word in words if word not in verdict.reason] == []


@pytest.mark.parametrize(
    ("problem", "changes"),
    [
        ("33x4096x4096", {}),
        ("4096x33x4096", {}),
        ("4096x4096x33", {"BLOCK_K": 64}),
        (LARGE, {"BLOCK_M": 16, "num_warps": 4}),
        (LARGE, {"BLOCK_M": 16, "BLOCK_N": 16, "num_warps": 1}),
        (LARGE, {"BLOCK_M": 256, "BLOCK_N": 128, "num_warps": 8}),
        (LARGE, {"BLOCK_K": 256, "num_stages": 3}),
        ("577x4096x4096", {"GROUP_M": 16}),
        ("257x4096x4096", {"GROUP_M": 4}),
        (f"{LARGE}:addmm", {}),
        (f"{LARGE}:addmm:bias=matrix", {}),
        (f"8x{LARGE}:bmm", {}),
        (f"{LARGE}:dynamic_m=true", {}),
        ("2x4096x4096:bf16:nt:dynamic_m=true", {}),  # a tile of a kernel that serves larger m too
    ],
)
def test_a_config_at_the_bound_of_a_rule_passes(problem, changes):
    verdict = SPACE.check(task(problem), Config(FINE | changes))
    assert verdict, verdict.reason


def order_of_tiles(rows, columns, group_m):
    """The tile each block computes, by the formulas of Inductor's template."""
    tiles, width = [], group_m * columns
    for pid in range(rows * columns):
        group = pid // width
        size = min(rows - group * group_m, group_m)
        tiles.append((group * group_m + pid % size, pid % width // size))
    return tiles


@pytest.mark.parametrize("group_m", [4, 16])
def test_a_group_is_rejected_where_it_orders_the_tiles_as_the_default_does(group_m):
    for rows in range(1, 40):
        verdict = SPACE.check(task(f"{rows * 64}x192x4096"), Config(FINE | {"GROUP_M": group_m}))
        same = order_of_tiles(rows, 3, group_m) == order_of_tiles(rows, 3, 8)
        assert verdict.rule == ("GROUP_M without effect" if same else ""), rows


def test_verdicts_do_not_depend_on_the_tasks_checked_before():
    alike = ["1024x1280x3420:bf16:nt", "1040x1296x3436:bf16:nt", "1024x1280x3421:bf16:nt", "1024x1280x3424:bf16:nt"]
    small = [
        "16x4096x4096:bf16:nt",
        "256x4096x4096:bf16:nt",
        *(f"528x{n}x512:fp32:tn:allow_tf32=true" for n in (512, 496)),
    ]
    one = TritonMmSpace()
    for checked in map(task, (*alike, *small)):
        alone = TritonMmSpace()
        assert all(one.check(checked, config) == alone.check(checked, config) for config in one.points(checked))


def test_the_limit_of_shared_memory_is_the_devices():
    config = Config(FINE | {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_stages": 4, "num_warps": 8})
    needed = 2 * 64 * 256 * 3  # A100: no wgmma, one buffer less than stages
    device = catalogue.device("A100")
    for limit, fits in ((needed, True), (needed - 1, False)):
        target = Task(Problem.parse(LARGE), replace(device, shared_memory_per_block_bytes=limit), "triton_mm")
        assert bool(SPACE.check(target, config)) is fits


def test_tasks_and_configs_share_no_binary():
    keys = {SPACE.artifact_key(task(problem), Config(FINE)) for problem in (LARGE, DECODE, RAGGED)}
    keys |= {SPACE.artifact_key(task(LARGE, "A100"), Config(FINE)), SPACE.artifact_key(task(LARGE), Config({}))}
    assert len(keys) == 5


@pytest.mark.parametrize("more", ["", ":addmm", ":addmm:bias=matrix"])
def test_values_of_a_dynamic_m_share_a_binary(more):
    def key(m, more=more, problem="x4096x4096:bf16:nt", sku="H200", dynamic=":dynamic_m=true"):
        return SPACE.artifact_key(task(f"{m}{problem}{more}{dynamic}", sku), Config(FINE))

    assert key(16) == key(17) == key(4096) == key(2**31 // 4096 - 1)
    others = {key(16, dynamic=""), key(16, sku="A100"), key(16, problem="x4096x4096:bf16:nn"), key(2**31 // 4096)}
    others |= {key(16, more=":addmm" if not more else ""), SPACE.artifact_key(task(LARGE), Config({}))}
    assert len(others | {key(16)}) == 7  # of 2³¹ elements an index takes 64 bits


def test_kernels_whose_additions_are_not_fused_have_another_toolchain(monkeypatch):
    pytest.importorskip("triton")
    usual = SPACE.toolchain()
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    assert SPACE.toolchain() == usual
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    assert set(SPACE.toolchain().versions) - set(usual.versions) == {("fp_fusion", "off")}


def test_the_toolchain_names_torch_triton_and_ptxas():
    try:
        installed = {"torch": version("torch"), "triton": version("triton")}
    except ImportError:
        with pytest.raises(ToolchainMissing, match=r"pip install .*\[triton\]"):
            SPACE.toolchain()
        return
    found = dict(SPACE.toolchain().versions)
    found.pop("ptxas", None)  # there where it is not Triton's own
    assert found == installed


@pytest.mark.parametrize(
    ("sizes", "width"),
    [
        ("1x2147483647x1", "int32"),
        ("16x134217727x1", "int32"),
        ("16x134217728x1", "int64"),
        ("16x1x134217728", "int64"),
        ("65536x1x32767", "int32"),
        ("65536x1x32768", "int64"),
        ("2x65536x32768", "int64"),
        ("2x65536x32767", "int32"),
    ],
)
def test_one_binary_serves_the_sizes_whose_indices_have_one_width(sizes, width):
    _, n, k = sizes.split("x")
    key = SPACE.artifact_key(task(f"{sizes}:bf16:nt:dynamic_m=true"), Config(FINE))
    assert key == f"H200/triton_mm/2x{n}x{k}:bf16:nt:dynamic_m=true/{width}/{Config(FINE).digest}"


SCALES = "epilogue=mul(column[fp32]).mul(row[fp32])"


@pytest.mark.parametrize(
    ("problem", "rule"),
    [
        ("64x512x512:e4m3:nt", "scales"),
        ("64x512x512:e4m3:nt:epilogue=mul(scalar[fp32])", "scales"),
        (f"64x512x512:e4m3:nn:{SCALES}", "layout"),
        (f"64x512x512:e4m3:nt:lda=1024:{SCALES}", "layout"),
        (f"64x520x512:e4m3:nt:{SCALES}", "alignment"),
        (f"64x512x512:e5m2:nt:{SCALES}", "dtypes"),
        ("64x512x512:int8:nt:out_dtype=bf16", "dtypes"),
    ],
)
def test_operands_of_8_bits_need_both_scales_and_torchs_layouts(problem, rule):
    assert SPACE.check(task(problem), Config(FINE)).rule == rule
    assert not SPACE.seeds(task(problem))


@pytest.mark.parametrize("problem", [f"64x512x512:e4m3:nt:{SCALES}", "64x512x512:int8:nt"])
def test_operands_of_8_bits_take_deeper_tiles_in_as_many_bytes(problem):
    work, wide = task(problem), task("64x512x512:bf16:nt")
    assert SPACE.check(work, Config(FINE))
    assert SPACE.check(work, Config({**FINE, "BLOCK_K": 16})).rule == "BLOCK_K of 8 bits"
    depths = {seed["BLOCK_K"] for seed in SPACE.seeds(work)}
    assert depths == {2 * int(seed["BLOCK_K"]) for seed in SPACE.seeds(wide)}
    assert SPACE.shared_bytes(work, {**FINE, "BLOCK_K": 64}) == SPACE.shared_bytes(wide, FINE)
    assert SPACE.check(task(problem, "A100"), Config(FINE)).rule == ("" if "int8" in problem else "architecture")
