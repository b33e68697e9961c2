"""Constraints, tiles and call of QuACK's GEMM over groups of rows or of k; sources are those of quack-kernels 0.6.5."""

from functools import lru_cache

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.terms import Accumulation
from gemmtune.engine.records.grouped.product import Form, grouped
from gemmtune.engine.records.grouped.served import LAYOUTS
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.kernel_call import CLUSTERS, Argument
from gemmtune.spaces.grouped.alignment import cut, strided
from gemmtune.spaces.grouped.tiling import Tiling
from gemmtune.spaces.quack.autotuner_list import DEFAULT_SWIZZLE
from gemmtune.spaces.quack.call import NO_EPILOGUE, NO_SPLIT
from gemmtune.spaces.quack.rules import ARCHES, kernel_exists
from gemmtune.spaces.quack.tiles import cta_rows

_STEP_BYTES = 128
"""Bytes of an operand's row that a kernel loads at once."""


@lru_cache(maxsize=64)  # thousands of configs of a task are checked in a row
def serves(task: Task) -> Verdict:
    """Return whether any config can serve the task."""
    product, arch = grouped(task.problem), task.device.arch
    if not (is_cut := cut(product)):
        return is_cut
    if product.layout not in (known := LAYOUTS[product.form]):  # `_build_gemm_plan` in quack/gemm.py
        return Verdict.no("layout", f"quack_grouped reads {product.form} as {' or '.join(known)}, not {product.layout}")
    if arch not in ARCHES:
        return Verdict.no("architecture", f"quack_grouped is for {' and '.join(ARCHES)}, not for {arch}")
    return strided(product, "TMA")


def runs(task: Task, config: Config) -> Verdict:
    """Return whether the config has a kernel, and another one or another order than QuACK's own swizzle gives."""
    exact = grouped(task.problem).accumulation is Accumulation.EXACT
    verdict = kernel_exists(task.device.arch, config, exact=exact)
    swizzle = config.integer("max_swizzle_size")
    if verdict and swizzle != DEFAULT_SWIZZLE:
        tiling = tiling_of(task, config)
        if swizzle_width(tiling, swizzle) == swizzle_width(tiling, DEFAULT_SWIZZLE):
            reason = f"max_swizzle_size {swizzle} orders the tiles as {DEFAULT_SWIZZLE} does, QuACK's own"
            return Verdict.no("max_swizzle_size without effect", reason)
    return verdict


def tiling_of(task: Task, config: Config) -> Tiling:
    """Return the tiling of a task by a config."""
    product = grouped(task.problem)
    tile = cta_rows(task.device.arch, config), config.integer("tile_n")
    cluster = config.integer("cluster_m"), config.integer("cluster_n")
    return Tiling.of(product, tile, _STEP_BYTES // product.dtype.itemsize, cluster)


def swizzle_width(tiling: Tiling, max_swizzle_size: int) -> tuple[bool, int]:
    """Return whether tiles advance along m, and the width of a group of tiles in clusters.

    Groups of rows advance along n (`VarlenMTileScheduler.Params.create` in quack/tile_scheduler.py), those of k as a
    GEMM's tiles do (`TileScheduler.Params.create`).
    """
    rows, columns = tiling.rows[0], tiling.columns
    along_m = tiling.form is Form.INNER and -(-columns // max_swizzle_size) > -(-rows // max_swizzle_size)
    return along_m, min(max_swizzle_size, rows if along_m else columns)


def call_of(artifact: Artifact, task: Task) -> list[Argument]:
    """Return the arguments of a kernel: B as n×k, the ends of the groups in place of QuACK's cumulative lengths.

    See `launch_gemm` in quack/gemm_tvm_ffi_utils.py, and spaces/quack/call.py for epilogue and scheduler.
    """
    launch, product = dict(artifact.launch), grouped(task.problem)
    scales = [operand.name for operand in product.epilogue.operands]
    epilogue = (*scales, *NO_SPLIT) if scales else NO_EPILOGUE
    scheduler = (f"{CLUSTERS}.{launch['cluster_size']}", None, int(launch["max_swizzle_size"]), None, None, None)
    # quack.varlen_utils.VarlenArguments: ends of rows, ends of k, gathered rows of A, tiles of an epilogue
    ends = ("offs", None, None, None) if product.form is Form.ROWS else (None, "offs", None, None)
    return ["a", "b" if scales else "b.mT", "out", None, epilogue, scheduler, ends, None, None]
