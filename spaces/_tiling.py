"""What a tile means on a problem and a GPU, as numbers that carry from one problem to another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gemmtune.engine.records.task import Task

__all__ = ["Tile"]

_BLOCK_OVERHEAD_BYTES = 1024  # shared memory the driver keeps for each resident block (CUDA C++ Programming Guide)
_OTHER_REGISTERS = 40  # addresses and operand fragments beside the accumulators; read off recorded binaries
_VECTOR_BYTES = 16  # the widest asynchronous copy


@dataclass(frozen=True, slots=True)
class Tile:
    """One block's share of a GEMM, and what it takes."""

    m: int
    """Rows of the output a block computes."""
    n: int
    """Columns of the output a block computes."""
    k: int
    """Depth of one step."""
    warps: int
    """Warps of a block."""
    shared_bytes: int
    """Shared memory of a block; at least 1."""

    def features(self, task: Task) -> Mapping[str, float]:
        """Logarithms to base 2, and shares, of how the tile fills the GPU, what it loads and what it computes."""
        problem, device = task.problem, task.device
        rows, columns, steps = -(-problem.m // self.m), -(-problem.n // self.n), -(-problem.k // self.k)
        tiles = rows * columns * problem.batch
        accumulators = self.m * self.n / (self.warps * device.warp_size)
        resident = self._resident(task, accumulators)
        waves = tiles / (device.sm_count * resident)
        busiest = -(-tiles // device.sm_count)
        together = min(resident, busiest)
        log2 = math.log2
        return {
            "tiles an SM": log2(tiles / device.sm_count),
            "blocks an SM holds": log2(resident),
            "waves": log2(math.ceil(waves)),
            "tail": log2(math.ceil(waves) / waves),
            "imbalance": log2(busiest * device.sm_count / tiles),
            "padding": log2(rows * self.m / problem.m * columns * self.n / problem.n * steps * self.k / problem.k),
            "traffic of the busiest SM": log2(busiest * (self.m + self.n)),
            "work of the busiest SM": log2(busiest * self.m * self.n * steps * self.k),
            "bytes a flop": log2((1 / self.m + 1 / self.n) * problem.a_dtype.itemsize),
            "steps": log2(steps),
            "accumulators a thread": log2(accumulators),
            "shared memory": log2(self.shared_bytes),
            "bytes in flight": log2(together * self.shared_bytes),
            "warps together": log2(together * self.warps),
            "alignment of k": log2(math.gcd(problem.k * problem.a_dtype.itemsize, _VECTOR_BYTES)),
        }

    def _resident(self, task: Task, accumulators: float) -> int:
        """Blocks an SM holds at once, as far as that is known before the build."""
        device = task.device
        threads = self.warps * device.warp_size
        return max(
            1,
            min(
                device.shared_memory_per_sm_bytes // (self.shared_bytes + _BLOCK_OVERHEAD_BYTES),
                device.max_threads_per_sm // threads,
                int(device.registers_per_sm / (threads * (accumulators + _OTHER_REGISTERS))),
            ),
        )
