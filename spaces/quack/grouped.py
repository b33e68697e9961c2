"""Constraints, tiles and call of QuACK's GEMM over groups of rows or of k; sources are those of quack-kernels 0.6.5."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import log2

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.terms import DType
from gemmtune.engine.records.grouped.product import Form, grouped
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.kernel_call import CLUSTERS, Argument
from gemmtune.spaces.grouped.alignment import strided
from gemmtune.spaces.quack.autotuner_list import DEFAULT_SWIZZLE
from gemmtune.spaces.quack.rules import ARCHES, kernel_exists
from gemmtune.spaces.quack.tiles import cta_rows

_LAYOUTS = {Form.ROWS: ("nn", "nt"), Form.INNER: ("tn",)}
"""Layouts by form: `_build_gemm_plan` in quack/gemm.py wants A k-major, and for groups of k A m-major and B n-major."""
_STEP_BYTES = 128
"""Bytes of an operand's row that a kernel loads at once."""


@lru_cache(maxsize=64)  # thousands of configs of a task are checked in a row
def serves(task: Task) -> Verdict:
    """Return whether any config can serve the task."""
    product, arch = grouped(task.problem), task.device.arch
    if product.form not in _LAYOUTS:
        batch = f"{product.groups}x{product.m}x{product.n}x{product.k}:{product.dtype}:{product.layout}:bmm"
        return Verdict.no("form", f"groups of {product.form} are no groups of rows or of k: tune the problem {batch}")
    if product.layout not in _LAYOUTS[product.form]:
        known = " or ".join(_LAYOUTS[product.form])
        return Verdict.no("layout", f"quack_grouped reads {product.form} as {known}, not {product.layout}")
    if product.dtype not in (DType.BF16, DType.FP16):
        return Verdict.no("dtype", f"quack_grouped multiplies bf16 or fp16, not {product.dtype}")
    if arch not in ARCHES:
        return Verdict.no("architecture", f"quack_grouped is for {' and '.join(ARCHES)}, not for {arch}")
    return strided(product, "TMA")


def runs(task: Task, config: Config) -> Verdict:
    """Return whether the config has a kernel, and another one or another order than QuACK's own swizzle gives."""
    verdict = kernel_exists(task.device.arch, config)
    swizzle = config.integer("max_swizzle_size")
    if verdict and swizzle != DEFAULT_SWIZZLE:
        tiling = Tiling.of(task, config)
        if tiling.group(swizzle) == tiling.group(DEFAULT_SWIZZLE):
            reason = f"max_swizzle_size {swizzle} orders the tiles as {DEFAULT_SWIZZLE} does, QuACK's own"
            return Verdict.no("max_swizzle_size without effect", reason)
    return verdict


@dataclass(frozen=True, slots=True)
class Tiling:
    """Clusters of tiles that a persistent kernel computes, group by group."""

    form: Form
    """What is cut into groups."""
    tile: tuple[int, int]
    """Rows and columns of the output that a block computes."""
    cluster: tuple[int, int]
    """Blocks of a cluster along m and n."""
    rows: tuple[int, ...]
    """Clusters along m of each group; none where a group has no rows."""
    columns: int
    """Clusters along n of every group."""
    depths: tuple[int, ...]
    """Steps along k of each group's tiles."""

    @classmethod
    def of(cls, task: Task, config: Config) -> "Tiling":
        """Return the tiling of a task by a config."""
        product = grouped(task.problem)
        tile = cta_rows(task.device.arch, config), config.integer("tile_n")
        cluster = config.integer("cluster_m"), config.integer("cluster_n")
        height, step = tile[0] * cluster[0], _STEP_BYTES // product.dtype.itemsize
        counts, by_rows = product.counts, product.form is Form.ROWS
        return cls(
            product.form,
            tile,
            cluster,
            tuple(-(-(count if by_rows else product.m) // height) for count in counts),
            -(-product.n // (tile[1] * cluster[1])),
            tuple(-(-(product.k if by_rows else count) // step) for count in counts),
        )

    @property
    def blocks(self) -> int:
        """Blocks of a cluster."""
        return self.cluster[0] * self.cluster[1]

    @property
    def clusters(self) -> int:
        """Clusters of all groups."""
        return sum(self.rows) * self.columns

    def waves(self, resident: int) -> int:
        """Return the clusters that the busiest of so many resident ones computes."""
        return -(-self.clusters // resident)

    def group(self, max_swizzle_size: int) -> tuple[int, ...]:
        """Return the width of a group of tiles in clusters, for every extent along m that tiles are ordered in.

        Groups of rows advance along n (`VarlenMTileScheduler.Params.create` in quack/tile_scheduler.py), those of k as
        a GEMM's tiles do (`TileScheduler.Params.create`).
        """
        if self.form is Form.ROWS:
            return (min(max_swizzle_size, self.columns),)
        rows = self.rows[0]
        along_m = -(-self.columns // max_swizzle_size) > -(-rows // max_swizzle_size)
        return (int(along_m), min(max_swizzle_size, rows if along_m else self.columns))


def resident_clusters(task: Task, tiling: Tiling) -> int:
    """Return the clusters that the GPU runs at once."""
    return max(1, task.device.max_active_clusters(tiling.blocks))


def busiest_traffic(task: Task, config: Config) -> int:
    """Return the operand elements that the busiest SM loads per step of k: waves × (rows + columns)."""
    tiling = Tiling.of(task, config)
    return tiling.waves(resident_clusters(task, tiling)) * sum(tiling.tile)


def features(task: Task, config: Config) -> Mapping[str, float]:
    """Return how the groups' tiles fill the GPU, what a block loads and computes: logarithms to base 2, by name."""
    product, device, tiling = grouped(task.problem), task.device, Tiling.of(task, config)
    (tile_m, tile_n), (cluster_m, cluster_n) = tiling.tile, tiling.cluster
    resident, clusters = resident_clusters(task, tiling), tiling.clusters
    waves = tiling.waves(resident)
    there = product.m * (1 if tiling.form is Form.ROWS else product.groups)
    steps = sum(rows * depth for rows, depth in zip(tiling.rows, tiling.depths, strict=True)) / sum(tiling.rows)
    used = [rows for rows in tiling.rows if rows]
    return {
        "tiles per SM": log2(clusters * tiling.blocks / device.sm_count),
        "waves": log2(waves),
        "tail": log2(waves * resident / clusters),
        "idle SMs": log2(device.sm_count / (resident * tiling.blocks)),
        "padding": log2(sum(used) * cluster_m * tile_m / there * tiling.columns * cluster_n * tile_n / product.n),
        "tiles of the largest group": log2(max(used) * tiling.columns),
        "groups with rows": log2(len(used)),
        "traffic of the busiest SM": log2(waves * (tile_m + tile_n)),
        "traffic of its share": log2(waves * (tile_m / cluster_n + tile_n / cluster_m)),
        "work of the busiest SM": log2(waves * tile_m * tile_n * max(1.0, steps)),
        "deepest tile": log2(max(1, *tiling.depths)),
        "accumulators": log2(tile_m * tile_n),
        "stages that fit": log2(device.shared_memory_per_block_bytes / ((tile_m + tile_n) * _STEP_BYTES)),
        "blocks of a cluster": log2(tiling.blocks),
        "group": log2(tiling.group(config.integer("max_swizzle_size"))[-1]),
    }


def call_of(artifact: Artifact, task: Task) -> list[Argument]:
    """Return the arguments of a kernel: B as n×k, the ends of the groups in place of QuACK's cumulative lengths.

    See `launch_gemm` in quack/gemm_tvm_ffi_utils.py, and spaces/quack/call.py for epilogue and scheduler.
    """
    launch, by_rows = dict(artifact.launch), grouped(task.problem).form is Form.ROWS
    scheduler = (f"{CLUSTERS}.{launch['cluster_size']}", None, int(launch["max_swizzle_size"]), None, None, None)
    # quack.varlen_utils.VarlenArguments: ends of rows, ends of k, gathered rows of A, tiles of an epilogue
    ends = ("offs", None, None, None) if by_rows else (None, "offs", None, None)
    return ["a", "b.mT", "out", None, (None,) * 12, scheduler, ends, None, None]
