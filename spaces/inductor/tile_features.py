"""What a tile means on a problem and a GPU, as numbers that carry from one problem to another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task

__all__ = ["Tiles", "tiled_features"]

_BLOCK_OVERHEAD_BYTES = 1024  # shared memory the driver keeps for each resident block (CUDA C++ Programming Guide)
_OTHER_REGISTERS = 40  # addresses and operand fragments beside the accumulators; read off recorded binaries
_VECTOR_BYTES = 16  # the widest asynchronous copy


Ints = NDArray[np.int64]
"""One number a config."""
Reals = NDArray[np.float64]
"""One number a config."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """One block's share of a GEMM, and what it takes; of many configs at once, an array each."""

    m: Ints
    """Rows of the output a block computes."""
    n: Ints
    """Columns of the output a block computes."""
    k: Ints
    """Depth of one step."""
    warps: Ints
    """Warps of a block."""
    shared_bytes: Ints
    """Shared memory of a block; at least 1."""

    def features(self, task: Task) -> Mapping[str, Reals]:
        """Logarithms to base 2, and shares, of how the tile fills the GPU, what it loads and what it computes."""
        problem, device = task.problem, task.device
        rows, columns, steps = -(-problem.m // self.m), -(-problem.n // self.n), -(-problem.k // self.k)
        tiles = rows * columns * problem.batch
        accumulators = self.m * self.n / (self.warps * device.warp_size)
        resident = self._resident(task, accumulators)
        waves = tiles / (device.sm_count * resident)
        busiest = -(-tiles // device.sm_count)
        together = np.minimum(resident, busiest)
        alignment = math.gcd(problem.k * problem.a_dtype.itemsize, _VECTOR_BYTES)
        return {
            "tiles an SM": _log2(tiles / device.sm_count),
            "blocks an SM holds": _log2(resident),
            "waves": _log2(np.ceil(waves)),
            "tail": _log2(np.ceil(waves) / waves),
            "imbalance": _log2(busiest * device.sm_count / tiles),
            "padding": _log2(rows * self.m / problem.m * columns * self.n / problem.n * steps * self.k / problem.k),
            "traffic of the busiest SM": _log2(busiest * (self.m + self.n)),
            "work of the busiest SM": _log2(busiest * self.m * self.n * steps * self.k),
            "bytes a flop": _log2((1 / self.m + 1 / self.n) * problem.a_dtype.itemsize),
            "steps": _log2(steps),
            "accumulators a thread": _log2(accumulators),
            "shared memory": _log2(self.shared_bytes),
            "bytes in flight": _log2(together * self.shared_bytes),
            "warps together": _log2(together * self.warps),
            "alignment of k": np.full(len(self.m), math.log2(alignment)),
        }

    def _resident(self, task: Task, accumulators: Reals) -> Ints:
        """Blocks an SM holds at once, as far as that is known before the build."""
        device = task.device
        threads = self.warps * device.warp_size
        by_shared_memory = device.shared_memory_per_sm_bytes // (self.shared_bytes + _BLOCK_OVERHEAD_BYTES)
        by_threads = device.max_threads_per_sm // threads
        by_registers = (device.registers_per_sm / (threads * (accumulators + _OTHER_REGISTERS))).astype(np.int64)
        return np.maximum(1, np.minimum(np.minimum(by_shared_memory, by_threads), by_registers))


def tiled_features(
    task: Task, configs: Sequence[Config], shared_bytes: Callable[[Task, Mapping[str, Ints]], Ints]
) -> Mapping[str, Reals]:
    """What the tiles of Inductor's templates mean on the problem, and the rows of tiles that GROUP_M keeps together.

    Args:
        task: the problem and the GPU.
        configs: at least one.
        shared_bytes: shared memory of a block.
    """
    matrix = np.fromiter(chain.from_iterable(config.values() for config in configs), np.int64).reshape(len(configs), -1)
    values = dict(zip(configs[0], matrix.T, strict=True))
    shared = shared_bytes(task, values)
    tiles = Tiles(values["BLOCK_M"], values["BLOCK_N"], values["BLOCK_K"], values["num_warps"], shared)
    group = np.minimum(values["GROUP_M"], -(-task.problem.m // tiles.m))
    return {**tiles.features(task), "group": _log2(group)}


def _log2(values: Ints | Reals) -> Reals:
    """The logarithm to base 2 of each, by the C library: numpy's own differs between CPUs in the last bit."""
    different, places = np.unique(values, return_inverse=True)
    found: Reals = np.array([math.log2(value) for value in different.tolist()])[places]
    return found
