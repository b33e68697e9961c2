"""Constraints of NVIDIA's CuTe operators, each stated once."""

from functools import lru_cache

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType
from gemmtune.engine.records.verdict import Verdict
from gemmtune.spaces.common.operand_rows import aligned
from gemmtune.spaces.cute.families import Family

COPY_BYTES = 16
"""Bytes that the length of an operand's rows must be a multiple of, for every operator of the registry."""


@lru_cache(maxsize=64)  # asked for each config of a problem
def operands_fit(problem: Problem, family: Family) -> Verdict:
    """Return whether the class multiplies operands of such types, layouts and alignments."""
    types = f"{problem.a_dtype}, {problem.b_dtype}, {problem.out_dtype} accumulated in {problem.acc_dtype}"
    if problem.a_dtype is not problem.b_dtype:
        return Verdict.no("types", f"A and B must be of one type, and are {types}")
    if problem.acc_dtype not in family.accumulators.get(problem.a_dtype, ()):
        return Verdict.no("types", f"{family.name} has no instruction for {types}")
    other = problem.out_dtype is not problem.a_dtype and problem.out_dtype is not DType.FP32
    if problem.out_dtype not in family.outputs[problem.acc_dtype] or (family.output_like_operands and other):
        return Verdict.no("types", f"{family.name} does not store {types}")
    layout = f"{problem.a_layout}{problem.b_layout}"
    layouts = [one for one in family.layouts if problem.a_dtype.itemsize > 1 or one in family.layouts_of_8_bits]
    if layout not in layouts:
        return Verdict.no("layout", f"{family.name} reads {problem.a_dtype} as {', '.join(layouts)}, not {layout}")
    return aligned(problem, COPY_BYTES, "a copy")


def design_exists(family: Family, config: Config) -> Verdict:
    """Return whether the registry lists the class with such a tile, cluster, store and scheduler."""
    name, pair = family.name, bool(config["use_2cta_instrs"])
    if pair not in family.tiles_m:
        return Verdict.no("two CTAs", f"{name} has no instructions of two CTAs")
    tile_m, tile_n = config.integer("mma_tiler_m"), config.integer("mma_tiler_n")
    if tile_m not in family.tiles_m[pair]:
        known = " or ".join(map(str, family.tiles_m[pair]))
        return Verdict.no("tile M", f"mma_tiler_m {tile_m} is not {known}, which {1 + pair} CTA of {name} compute")
    if tile_n not in family.tiles_n:
        return Verdict.no("tile N", f"mma_tiler_n {tile_n} is not one of {family.tiles_n}, which {name} is listed with")
    m, n = config.integer("cluster_shape_m"), config.integer("cluster_shape_n")
    if pair and m % 2:
        return Verdict.no("cluster of pairs", f"cluster_shape_m {m} is odd, and two CTAs along m share an instruction")
    if max(m, n) > family.largest_cluster_side or m * n > family.largest_cluster:
        return Verdict.no(
            "cluster size",
            f"cluster {m}x{n} > {family.largest_cluster} blocks, {family.largest_cluster_side} per side, of {name}",
        )
    if family.smaller_cluster is not None:
        small_m, small_n = family.smaller_cluster
        if m % small_m or n % small_n or (m, n) == family.smaller_cluster:
            return Verdict.no(
                "fallback cluster", f"cluster {m}x{n} is no larger multiple of the {small_m}x{small_n} one"
            )
    if config["use_tma_store"] is not family.tma_store:
        return Verdict.no("store", f"{name} is listed with use_tma_store {family.tma_store}")
    if config["tile_scheduler"] not in family.schedulers:
        known = " or ".join(family.schedulers)
        return Verdict.no("scheduler", f"tile_scheduler {config['tile_scheduler']} is not {known}, as {name} is listed")
    return Verdict.yes()
