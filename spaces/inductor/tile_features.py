"""Features of a tile on a problem and a GPU, comparable between problems."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import gemm
from gemmtune.engine.records.task import Task
from gemmtune.spaces.common.operand_rows import operand_rows

_BLOCK_OVERHEAD_BYTES = 1024  # shared memory that the driver keeps per resident block (CUDA C++ Programming Guide)
_OTHER_REGISTERS = 40  # for addresses and operand fragments; read from recorded binaries
_VECTOR_BYTES = 16  # the widest asynchronous copy


Ints = NDArray[np.int64]
"""One integer per config, shape (configs,)."""
Reals = NDArray[np.float64]
"""One number per config, shape (configs,)."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles and resources of a block, for many configs at once."""

    m: Ints
    """Rows of the output that a block computes."""
    n: Ints
    """Columns of the output that a block computes."""
    k: Ints
    """Depth of one step along k, in elements."""
    warps: Ints
    """Number of warps per block."""
    shared_bytes: Ints
    """Bytes of shared memory per block, at least 1."""

    def features(self, task: Task) -> Mapping[str, Reals]:
        """Return how the tiles fill the GPU, what they load and compute: logarithms to base 2, by name."""
        problem, device = gemm(task.problem), task.device
        rows, columns, steps = -(-problem.m // self.m), -(-problem.n // self.n), -(-problem.k // self.k)
        tiles = rows * columns * problem.batch
        accumulators = self.m * self.n / (self.warps * device.warp_size)
        resident = self._resident(task, accumulators)
        waves = tiles / (device.sm_count * resident)
        busiest = -(-tiles // device.sm_count)
        together = np.minimum(resident, busiest)
        loaded = operand_rows(problem)
        alignment = math.gcd(loaded["A"].nbytes, loaded["B"].nbytes, _VECTOR_BYTES)
        return {
            "tiles per SM": _log2(tiles / device.sm_count),
            "blocks per SM": _log2(resident),
            "waves": _log2(np.ceil(waves)),
            "tail": _log2(np.ceil(waves) / waves),
            "imbalance": _log2(busiest * device.sm_count / tiles),
            "padding": _log2(rows * self.m / problem.m * columns * self.n / problem.n * steps * self.k / problem.k),
            "traffic of the busiest SM": _log2(busiest * (self.m + self.n)),
            "work of the busiest SM": _log2(busiest * self.m * self.n * steps * self.k),
            "bytes per flop": _log2((1 / self.m + 1 / self.n) * problem.a_dtype.itemsize),
            "steps": _log2(steps),
            "accumulators per thread": _log2(accumulators),
            "shared memory": _log2(self.shared_bytes),
            "bytes in flight": _log2(together * self.shared_bytes),
            "warps together": _log2(together * self.warps),
            "alignment of rows": np.full(len(self.m), math.log2(alignment)),
        }

    def _resident(self, task: Task, accumulators: Reals) -> Ints:
        """Return the blocks that an SM holds at once, as far as they are known before the build."""
        device = task.device
        threads = self.warps * device.warp_size
        by_shared_memory = device.shared_memory_per_sm_bytes // (self.shared_bytes + _BLOCK_OVERHEAD_BYTES)
        by_threads = device.max_threads_per_sm // threads
        by_registers = (device.registers_per_sm / (threads * (accumulators + _OTHER_REGISTERS))).astype(np.int64)
        return np.maximum(1, np.minimum(np.minimum(by_shared_memory, by_threads), by_registers))


def tiled_features(
    task: Task, configs: Sequence[Config], shared_bytes: Callable[[Task, Mapping[str, Ints]], Ints]
) -> Mapping[str, Reals]:
    """Return the features of the tiles of Inductor's templates, and the rows of tiles that GROUP_M keeps together."""
    matrix = np.fromiter(chain.from_iterable(config.values() for config in configs), np.int64).reshape(len(configs), -1)
    values = dict(zip(configs[0], matrix.T, strict=True))
    shared = shared_bytes(task, values)
    tiles = Tiles(values["BLOCK_M"], values["BLOCK_N"], values["BLOCK_K"], values["num_warps"], shared)
    group = np.minimum(values["GROUP_M"], -(-gemm(task.problem).m // tiles.m))
    return {**tiles.features(task), "group": _log2(group)}


def _log2(values: Ints | Reals) -> Reals:
    """Return logarithms to base 2 from the C library: those of numpy differ between CPUs in the last bit."""
    if len(values) == 1:  # features of one config need no search for equal values, which takes most of the time
        return np.array([math.log2(values[0])])
    different, places = np.unique(values, return_inverse=True)
    found: Reals = np.array([math.log2(value) for value in different.tolist()])[places]
    return found
