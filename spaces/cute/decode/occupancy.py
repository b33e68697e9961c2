"""Features of a decode kernel on a problem and a GPU, and the rough time that orders its seeds."""

from collections.abc import Mapping
from math import log2

from gemmtune.engine.records.problem import gemm
from gemmtune.engine.records.task import Task
from gemmtune.spaces.cute.decode.tiling import VECTOR, Tiling

__all__ = ["features", "rough_time_ns"]

_RESERVED_BYTES = 1024  # shared memory per block that the system keeps
_MOST_BLOCKS = 32  # resident blocks per multiprocessor
# Coarse figures of a Hopper GPU; they order seeds, and the search measures.
_LATENCY_NS = 800  # of memory
_LAUNCH_NS = 1_500
_CLUSTER_NS = 600  # two barriers of a cluster
_L2_FACTOR = 1.3  # bandwidth of the level-2 cache over that of memory


def features(task: Task, tiling: Tiling) -> Mapping[str, float]:
    """Return how blocks fill the GPU, what they load, and how deep their loads are: logarithms to base 2, by name."""
    problem, sms = gemm(task.problem), task.device.sm_count
    blocks, resident = _blocks(task, tiling), _resident(task, tiling)
    at_once = min(blocks, sms * resident)
    chunks = tiling.chunks_of_part(problem.k // VECTOR, 0)
    return {
        "blocks per SM": log2(blocks / sms),
        "waves": log2(-(-blocks // (sms * resident))),
        "tail": log2(-(-blocks // (sms * resident)) * sms * resident / blocks),
        "busiest SM": log2(-(-blocks // sms) * sms / blocks),
        "padding": log2(-(-problem.n // tiling.tile_n) * tiling.tile_n / problem.n),
        "bytes in flight per SM": log2(_bytes_in_flight(task, tiling, at_once)),
        "chunks of a warp": log2(chunks),
        "loads of a chunk": log2(tiling.loads),
        "share of A in the loads": log2(1 + tiling.rows_per_lane / tiling.columns_per_lane),
        "warps of a sum": log2(tiling.parts),
        "blocks of a cluster": log2(tiling.split_k),
        "threads": log2(tiling.threads),
    }


def rough_time_ns(task: Task, tiling: Tiling) -> float:
    """Return a time in nanoseconds whose order is that of good first guesses."""
    problem, device = gemm(task.problem), task.device
    blocks, resident = _blocks(task, tiling), _resident(task, tiling)
    at_once = min(blocks, device.sm_count * resident)
    per_ns = device.memory_bandwidth_gb_s / device.sm_count  # bytes per SM
    of_block = tiling.tile_n * problem.k * problem.b_dtype.itemsize / tiling.split_k
    with_a = of_block * (1 + tiling.rows_per_lane / tiling.columns_per_lane)
    per_ns_in_flight = _bytes_in_flight(task, tiling, at_once) / _LATENCY_NS
    rate = min(per_ns, per_ns_in_flight)
    busiest = -(-blocks // device.sm_count)
    loading = max(busiest * of_block / rate, busiest * with_a / (per_ns * _L2_FACTOR))
    waves = -(-blocks // (device.sm_count * resident))
    return _LAUNCH_NS + loading + waves * _LATENCY_NS + (_CLUSTER_NS if tiling.split_k > 1 else 0) + 4 * tiling.parts


def _blocks(task: Task, tiling: Tiling) -> int:
    return -(-gemm(task.problem).n // tiling.tile_n) * tiling.split_k * -(-gemm(task.problem).m // tiling.rows)


def _resident(task: Task, tiling: Tiling) -> int:
    """Return the blocks that an SM holds at once, by shared memory and threads."""
    device = task.device
    by_shared = device.shared_memory_per_sm_bytes // (tiling.shared_bytes + _RESERVED_BYTES)
    return max(1, min(by_shared, device.max_threads_per_sm // tiling.threads, _MOST_BLOCKS))


def _bytes_in_flight(task: Task, tiling: Tiling, blocks: int) -> float:
    """Return the bytes of B that are under way per SM, with that many blocks on the GPU."""
    chunks = min(tiling.stages - 1, tiling.chunks_of_part(gemm(task.problem).k // VECTOR, 0))
    of_block = 16 * tiling.threads * tiling.columns_per_lane * tiling.unroll * chunks
    return max(1, blocks * of_block / task.device.sm_count)
