"""Features of a cluster of tiles on a problem and a GPU, comparable between problems."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2

from gemmtune.engine.records.gemm.problem import gemm
from gemmtune.engine.records.task import Task

_STEP_BYTES = 128
"""Bytes of an operand's row that the CuTe kernels of Hopper and Blackwell load at once."""


@dataclass(frozen=True, slots=True)
class ClusteredTile:
    """Tile of a block, in a persistent kernel that fills the GPU with clusters of blocks."""

    m: int
    """Rows of the output that a block computes."""
    n: int
    """Columns of the output that a block computes."""
    cluster_m: int
    """Blocks of a cluster along m, which share their loads of B."""
    cluster_n: int
    """Blocks of a cluster along n, which share their loads of A."""

    def features(self, task: Task) -> Mapping[str, float]:
        """Return how the clusters fill the GPU, what a block loads and computes: logarithms to base 2, by name."""
        problem, device = gemm(task.problem), task.device
        rows = -(-problem.m // (self.m * self.cluster_m)) * self.cluster_m
        columns = -(-problem.n // (self.n * self.cluster_n)) * self.cluster_n
        blocks = self.cluster_m * self.cluster_n
        clusters = rows * columns * problem.batch // blocks
        resident = max(1, device.max_active_clusters(blocks))
        waves = -(-clusters // resident)
        stage_bytes = (self.m + self.n) * _STEP_BYTES
        return {
            "tiles per SM": log2(clusters * blocks / device.sm_count),
            "waves": log2(waves),
            "tail": log2(waves * resident / clusters),
            "idle SMs": log2(device.sm_count / (resident * blocks)),
            "padding": log2(rows * self.m / problem.m * columns * self.n / problem.n),
            "traffic of the busiest SM": log2(waves * (self.m + self.n)),
            "traffic of its share": log2(waves * (self.m / self.cluster_n + self.n / self.cluster_m)),
            "work of the busiest SM": log2(waves * self.m * self.n * problem.k),
            "bytes per flop": log2((1 / self.m + 1 / self.n) * problem.a_dtype.itemsize),
            "steps": log2(-(-problem.k * problem.a_dtype.itemsize // _STEP_BYTES)),
            "accumulators": log2(self.m * self.n),
            "stages that fit": log2(device.shared_memory_per_block_bytes / stage_bytes),
            "blocks of a cluster": log2(blocks),
        }
