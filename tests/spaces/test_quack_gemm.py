"""The space quack_gemm beside quack-kernels, at equal points."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import PackageNotFoundError

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ToolchainMissing
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.toolchain import versions
from gemmtune.spaces.quack_gemm import QuackGemmSpace

pytestmark = [  # what quack-kernels 0.6.5 imports: names that nvidia-cutlass-dsl 4.8 deprecates, and parts of torch
    pytest.mark.filterwarnings("ignore:cutlass.utils:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]

SPACE = QuackGemmSpace()
LARGE, DECODE = "2048x4096x4096:bf16:nt", "16x4096x4096:bf16:nt"
PROBLEMS = [LARGE, DECODE, "8x8x8:fp16:nn", "1000x3000x1000:fp16:tn", "70000x40000x1024:bf16:tt:out_dtype=fp32"]
ROW_WISE = "mul(column[fp32]).mul(row[fp32])"
EXACT = f"2048x4096x4096:e4m3:nt:epilogue={ROW_WISE}:accumulation=exact"
PLAIN = {"tile_m": 128, "tile_n": 128, "cluster_m": 2, "cluster_n": 1, "max_swizzle_size": 8}
PLAIN |= {"pingpong": False, "swap_ab": False, "is_dynamic_persistent": False}


def task(problem, sku="H200"):
    return Task(Problem.parse(problem), catalogue.device(sku), "quack_gemm")


@pytest.fixture
def quack():
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("quack", reason="quack-kernels is not installed")
    from quack import gemm_config, gemm_sm90, gemm_sm100

    class Quack:
        config = gemm_config.GemmConfig
        supports = staticmethod(gemm_config.config_supports)
        listed = staticmethod(gemm_config.get_all_configs)
        default = staticmethod(gemm_config._default_config_for_cap)
        sm90, sm100 = gemm_sm90.GemmSm90, gemm_sm100.GemmSm100

    return Quack


def gemm_config(quack, config, of):
    return quack.config(**config, device_capacity=of.device.capability[0])


def of_its_list(quack, of):
    """Return the configs that `prune_invalid_gemm_configs` leaves of QuACK's list for a plain GEMM."""
    capability = of.device.capability[0]
    return [
        config
        for config in quack.listed()
        if config.device_capacity == capability and quack.supports(config) and not config.use_tma_gather
    ]


def quack_runs_sm90(quack, config):
    """Whether GemmSm90 takes it, splits no tile along n, and its accumulators leave a thread registers."""
    import cutlass

    tile = (config.tile_m, config.tile_n)
    cluster = (config.cluster_m, config.cluster_n, config.cluster_k)
    try:
        kernel = quack.sm90(cutlass.Float32, cutlass.BFloat16, tile, cluster, pingpong=config.pingpong)
    except ValueError:
        return False
    groups_m, groups_n, _ = kernel.atom_layout_mnk
    accumulators = config.tile_m * config.tile_n // (groups_m * groups_n * 128)
    return groups_n == 1 and config.tile_n <= 256 and accumulators <= 208 and not config.is_dynamic_persistent


def quack_runs_sm100(quack, config):
    tile, cluster = (config.tile_m, config.tile_n), (config.cluster_m, config.cluster_n)
    implemented = quack.sm100.is_valid_mma_tiler_and_cluster_shape(tile, cluster, blockscaled=False)
    pairs_if_256 = config.tile_m != 256 or config.cluster_m % 2 == 0
    compiler_dies = (config.tile_m, config.tile_n, config.cluster_m) == (128, 512, 2)
    listed_anyway = config.tile_n == 16 and config.tile_m in (64, 128, 256) and pairs_if_256
    return (implemented or listed_anyway) and not config.pingpong and not compiler_dies


@pytest.mark.parametrize(("sku", "runs"), [("H200", quack_runs_sm90), ("B200", quack_runs_sm100)])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_check_agrees_with_quack_on_every_point(quack, problem, sku, runs):
    of = task(problem, sku)
    listed = {asdict(config)["tile_n"] for config in of_its_list(quack, of)}
    assert listed <= set(SPACE.params(of)[1].values)
    for point in SPACE.points(of):
        config = gemm_config(quack, point, of)
        verdict = SPACE.check(of, point)
        accepted = bool(verdict) or verdict.rule == "max_swizzle_size without effect"
        assert accepted == (quack.supports(config) and runs(quack, config)), f"{config}: {verdict}"


@pytest.mark.parametrize(("sku", "count"), [("H200", 44), ("B200", 196)])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_seeds_are_quacks_own_list(quack, problem, sku, count):
    of = task(problem, sku)
    seeds = [gemm_config(quack, seed, of) for seed in SPACE.seeds(of)]
    assert len(set(seeds)) == len(seeds) == count
    assert set(seeds) == set(of_its_list(quack, of))


@pytest.mark.parametrize("sku", ["H200", "B200"])
def test_the_default_config_of_quack_is_a_seed(quack, sku):
    of = task(LARGE, sku)
    default = asdict(quack.default(of.device.capability[0]))
    assert Config({name: default[name] for name in PLAIN}) in SPACE.seeds(of)


@pytest.mark.parametrize("out_dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_alignment_agrees_with_quack(quack, layout, out_dtype):
    import cutlass

    types = {"bf16": cutlass.BFloat16, "fp16": cutlass.Float16, "fp32": cutlass.Float32}
    a_major, b_major = "k" if layout[0] == "n" else "m", "n" if layout[1] == "n" else "k"
    operands = (cutlass.BFloat16, cutlass.BFloat16, cutlass.Float32, types[out_dtype], a_major, b_major)
    assert quack.sm90.is_valid_dtypes(*operands)
    assert quack.sm100.is_valid_dtypes(*operands)
    for m, n, k in [(8, 8, 8), (64, 64, 12), (64, 12, 64), (12, 64, 64), (4, 4, 4), (1, 64, 64)]:
        aligned = quack.sm100.is_valid_tensor_alignment(
            m, n, k, 1, cutlass.BFloat16, types[out_dtype], a_major, b_major, "n"
        )
        for sku in ("H200", "B200"):
            verdict = SPACE.check(task(f"{m}x{n}x{k}:bf16:{layout}:out_dtype={out_dtype}", sku), Config(PLAIN))
            assert verdict.rule == ("" if aligned else "alignment"), (m, n, k, sku)


BREAKS = [
    (f"2x{LARGE}:bmm", "H200", {}, "operation", "runs mm and addmm, not bmm"),
    (
        "512x1284x4096:bf16:nt:epilogue=mul(0.5).to(fp32)+x",
        "H200",
        {},
        "alignment",
        "rows of out2 of 2568 B are no multiple of the 16 B that TMA needs",
    ),
    (
        "4096x1280x2048:bf16:nt:epilogue=add(gate[2048])",
        "H200",
        {},
        "epilogue",
        "rows, columns and scalars of floats in its epilogue, not gate, a gate of bf16",
    ),
    ("512x512x512:e4m3:nn", "H200", {}, "layout", "8 bits along k, layout nt, not nn"),
    ("512x512x520:e4m3:nt", "H200", {}, "alignment", "rows of A of 520 B are no multiple of the 16 B"),
    ("512x512x512:e4m3:nt:b_dtype=bf16", "H200", {}, "dtypes", "not e4m3 and bf16"),
    ("512x512x512:e4m3:nt:acc_dtype=fp16", "H200", {}, "dtypes", "accumulated in fp16"),
    (EXACT, "H200", {"tile_n": 224}, "tile_n", "224 > 208 at tile_m 128 of an exact cooperative kernel"),
    (EXACT, "H200", {"pingpong": True}, "tile_n", "128 > 96 at tile_m 128 of an exact pingpong kernel"),
    (f"{LARGE}:epilogue=add(matrix[t])", "B200", {}, "epilogue", "not matrix, a transposed matrix of bf16"),
    (f"{LARGE}:epilogue=where(matrix[bool],0)", "H200", {}, "epilogue", "not matrix, a matrix of bool"),
    (
        "512x1284x4096:bf16:nt:epilogue=add(matrix).to(fp32)",
        "H200",
        {},
        "alignment",
        "rows of matrix of 2568 B are no multiple of the 16 B that TMA needs",
    ),
    ("512x512x512:fp32:nt", "H200", {}, "dtypes", "not fp32 and fp32 accumulated in fp32"),
    (f"{LARGE}:b_dtype=fp16", "B200", {}, "dtypes", "not bf16 and fp16"),
    (f"{LARGE}:acc_dtype=fp16", "B200", {}, "dtypes", "accumulated in fp16"),
    (LARGE, "A100", {}, "architecture", "for sm_90a and sm_100a, not for sm_80"),
    (LARGE, "RTX-5090", {}, "architecture", "not for sm_120a"),
    (
        "512x1280x3420:bf16:nt",
        "B200",
        {},
        "alignment",
        "rows of A of 6840 B are no multiple of the 16 B that TMA needs",
    ),
    (
        "512x1284x4096:bf16:nt",
        "B200",
        {},
        "alignment",
        "rows of out of 2568 B are no multiple of the 16 B that TMA needs",
    ),
    ("100x128x128:bf16:tt", "H200", {}, "alignment", "rows of A of 200 B"),
    ("128x100x128:bf16:nn", "H200", {}, "alignment", "rows of B of"),
    (LARGE, "H200", {"tile_m": 256, "pingpong": True}, "tile_m", "256 is not one of 64, 128, 192 of a pingpong kernel"),
    (LARGE, "H200", {"tile_n": 224, "pingpong": True}, "tile_n", "224 > 208 at tile_m 128 of a pingpong kernel"),
    (LARGE, "H200", {"tile_m": 256, "tile_n": 224}, "tile_n", "224 > 208 at tile_m 256 of a cooperative kernel"),
    (LARGE, "H200", {"tile_m": 192, "tile_n": 160}, "tile_n", "160 > 128 at tile_m 192 of a cooperative kernel"),
    (LARGE, "H200", {"tile_m": 192, "tile_n": 16}, "tile_n", "16 is no multiple of 32 at tile_m 192"),
    (LARGE, "H200", {"is_dynamic_persistent": True}, "is_dynamic_persistent", "a new semaphore for each launch"),
    (LARGE, "B200", {"pingpong": True}, "pingpong", "is for sm_90"),
    (LARGE, "B200", {"tile_m": 192}, "tile_m", "192 is not one of 64, 128, 256"),
    (LARGE, "B200", {"tile_n": 208}, "tile_n", "208 is neither 16, nor 32 to 256 in steps of 32"),
    (LARGE, "B200", {"tile_n": 512}, "tile_n", "the compiler dies of tile_n 512"),
    (LARGE, "B200", {"tile_m": 256, "cluster_m": 1}, "cluster_m", "cluster_m 1 is odd"),
    (DECODE, "H200", {"max_swizzle_size": 4}, "max_swizzle_size without effect", "as 8 does"),
]


@pytest.mark.parametrize(("problem", "sku", "changes", "rule", "words"), BREAKS)
def test_a_rejection_names_the_rule_the_value_and_the_bound(problem, sku, changes, rule, words):
    assert SPACE.check(task(LARGE, "H200"), Config(PLAIN))
    assert SPACE.check(task(LARGE, "B200"), Config(PLAIN))
    verdict = SPACE.check(task(problem, sku), Config(PLAIN | changes))
    assert verdict.rule == rule
    assert words in verdict.reason


def order_of_clusters(clusters_m, clusters_n, size):
    """The cluster of tiles that each cluster of CTAs computes first: `_swizzle_cta` in quack/tile_scheduler.py."""
    along_m = -(-clusters_n // size) * size > -(-clusters_m // size) * size
    fast, slow = (clusters_m, clusters_n) if along_m else (clusters_n, clusters_m)
    group_size, order = min(size, fast), []
    for number in range(clusters_m * clusters_n):
        group, rest = divmod(number, group_size * slow)
        at_slow, at_fast = divmod(rest, group_size if group < fast // group_size else fast % group_size)
        at_slow = slow - 1 - at_slow if group % 2 else at_slow
        at_fast += group * group_size
        order.append((at_fast, at_slow) if along_m else (at_slow, at_fast))
    return order


@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("swap_ab", [False, True])
def test_a_swizzle_is_rejected_only_where_it_orders_the_tiles_as_the_default_does(swap_ab, size):
    config = Config(PLAIN | {"max_swizzle_size": size, "swap_ab": swap_ab})
    for clusters_m in (1, 2, 3, 4, 5, 8, 9, 16, 17, 40):
        rejected = 0
        for clusters_n in range(1, 41):
            m, n = clusters_m * 256, clusters_n * 128
            verdict = SPACE.check(task(f"{n}x{m}x64" if swap_ab else f"{m}x{n}x64"), config)
            same = order_of_clusters(clusters_m, clusters_n, size) == order_of_clusters(clusters_m, clusters_n, 8)
            assert same or verdict
            rejected += not verdict
        assert rejected or clusters_m > 16


@pytest.fixture
def model():
    pytest.importorskip("nvMatmulHeuristics", reason="nvidia-matmul-heuristics is not installed")


@pytest.mark.parametrize("sku", ["H200", "B200"])
@pytest.mark.parametrize(("layout", "turned"), [("nn", "tt"), ("nt", "nt"), ("tn", "tn"), ("tt", "nn")])
def test_the_model_estimates_swap_ab_as_the_transposed_product(model, layout, turned, sku):
    one, other = task(f"512x4096x1024:bf16:{layout}", sku), task(f"4096x512x1024:bf16:{turned}", sku)
    plain = {config: ns for config, ns in SPACE.prior(one).times_ns.items() if not config["swap_ab"]}
    swapped = SPACE.prior(other).times_ns
    both = {config: ns for config, ns in plain.items() if config["max_swizzle_size"] == 8}
    assert len(both) > 50
    assert {config: swapped[Config({**config, "swap_ab": True})] for config in both} == both


def test_the_model_estimates_a_pair_of_ctas_as_one(model):
    of = task(LARGE, "B200")
    times = SPACE.prior(of).times_ns
    pair, single = (Config(PLAIN | {"tile_m": tile_m, "cluster_m": m}) for tile_m, m in ((256, 2), (128, 1)))
    assert times[pair] != times[single]
    assert Config(PLAIN | {"tile_m": 64, "cluster_m": 2}) not in times  # two CTAs, each with MMAs of its own
    assert Config(PLAIN | {"tile_m": 64, "cluster_m": 1}) in times


def test_a_task_unknown_to_the_model_has_a_reason():
    prior = SPACE.prior(task("512x512x512:fp32:nt"))
    assert prior.reason
    assert not prior.times_ns


def test_one_binary_serves_every_size_of_an_architecture():
    key = SPACE.artifact_key(task(LARGE), Config(PLAIN))
    assert key == SPACE.artifact_key(task(DECODE), Config(PLAIN))
    assert key == SPACE.artifact_key(task(DECODE, "H100"), Config(PLAIN))  # the SMs are counted at launch
    others = [
        SPACE.artifact_key(task(problem, sku), Config(PLAIN))
        for problem, sku in [
            (LARGE, "B200"),
            ("2048x4096x4096:fp16:nt", "H200"),
            ("2048x4096x4096:bf16:nn", "H200"),
            ("2048x4096x4096:bf16:tt", "H200"),
            (f"{LARGE}:out_dtype=fp32", "H200"),
            (f"{LARGE}:addmm", "H200"),
            (f"{LARGE}:addmm:bias=matrix", "H200"),
            (f"{LARGE}:epilogue=relu", "H200"),
            (f"{LARGE}:addmm:epilogue=relu", "H200"),
        ]
    ]
    assert len({key, *others}) == 10
    assert SPACE.artifact_key(task(f"{LARGE}:addmm"), Config(PLAIN)) == SPACE.artifact_key(
        task(f"{DECODE}:addmm"), Config(PLAIN)
    )


@pytest.mark.parametrize(
    "suffix",
    [
        "addmm",
        "addmm:bias=matrix",
        "epilogue=add(matrix).mul(row).mul(column).add(matrix2[fp32])",
        "addmm:epilogue=gelu.to(fp32)",
    ],
)
@pytest.mark.parametrize("sku", ["H200", "B200"])
def test_an_epilogue_leaves_seeds_and_features_as_they_are(sku, suffix):
    plain, of = task(LARGE, sku), task(f"{LARGE}:{suffix}", sku)
    assert SPACE.seeds(of) == SPACE.seeds(plain)
    assert SPACE.features(of, Config(PLAIN)) == SPACE.features(plain, Config(PLAIN))


def test_seeds_of_many_rows_in_fp8_begin_with_ping_pong_and_cooperative_tiles():
    rows = task("2048x3072x2048:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32])")
    first = [(seed["tile_m"], seed["tile_n"], seed["pingpong"]) for seed in SPACE.seeds(rows)[:4]]
    assert first == [(128, 192, True), (256, 192, False)] * 2  # on an H100, 20.0 and 21.2 µs


def test_seeds_of_exact_sums_fit_and_fast_and_exact_kernels_are_others():
    fast, exact = task(EXACT.removesuffix(":accumulation=exact")), task(EXACT)
    narrow = set(SPACE.seeds(fast)) - set(SPACE.seeds(task(LARGE)))
    seeds = SPACE.seeds(exact)
    assert {seed["tile_m"] for seed in narrow} == {64}
    assert len(narrow) == 24
    assert len(seeds) == 40 + len(narrow)
    assert {(seed["tile_m"], seed["tile_n"]) for seed in SPACE.seeds(task(f"64{EXACT[4:]}"))[:6]} == {(64, 32)}
    assert max(seed["tile_m"] * seed["tile_n"] for seed in seeds) == 128 * 208
    assert SPACE.artifact_key(fast, seeds[0]) != SPACE.artifact_key(exact, seeds[0])
    assert len(SPACE.seeds(task(EXACT, "B200"))) == 196  # Blackwell sums in fp32 anyway


def test_rows_of_the_output_are_aligned_by_the_type_that_is_stored():
    problem = "512x1284x4096:bf16:nt:epilogue=mul(0.5)"
    assert SPACE.check(task(f"{problem}.to(fp32)"), Config(PLAIN))
    assert SPACE.check(task(problem), Config(PLAIN)).rule == "alignment"


def test_the_model_estimates_an_epilogue_as_the_product(model):
    assert SPACE.prior(task(f"{LARGE}:addmm:epilogue=gelu")).times_ns == SPACE.prior(task(LARGE)).times_ns


@pytest.mark.parametrize("absent", ["quack-kernels", "nvidia-cutlass-dsl", "apache-tvm-ffi"])
def test_a_missing_package_names_the_extra(monkeypatch, absent):
    def version(package):
        if package == absent:
            raise PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr(versions, "version", version)
    with pytest.raises(ToolchainMissing, match=rf"{absent} is not installed: pip install .*\[cute\]"):
        SPACE.toolchain()
