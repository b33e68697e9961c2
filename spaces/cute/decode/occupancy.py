"""Features of a decode kernel on a problem and a GPU, and the rough time that orders its seeds."""

from collections.abc import Mapping
from math import log2

from gemmtune.engine.records.gemm.problem import gemm
from gemmtune.engine.records.task import Task
from gemmtune.spaces.cute.decode.tiling import LOAD_BYTES, WARP, Tiling

_RESERVED_BYTES = 1024  # shared memory per block that the system keeps
_MOST_BLOCKS = 32  # resident blocks per multiprocessor
# Fitted to 160 launches on an H200, see experiments/decode; they order seeds, and the search measures.
_LAUNCH_NS = 1_630
_WAVE_NS = 1_090  # per further wave of blocks
_CLUSTER_NS = 850  # two barriers of a cluster
_CLUSTER_WAVE_NS = 1_740  # per further wave of clusters
_PART_NS = 15  # per warp that shares k
_CHUNK_NS = 4
_L1_FACTOR = 1.4  # rate of loads of both operands over the bandwidth of memory
_CORE_OPERATIONS = 218  # fp32 operations of an SM per ns: 128 per clock
_TENSOR_OPERATIONS = 1_740  # multiply-adds of an SM per ns, by instructions of few rows


def features(task: Task, tiling: Tiling) -> Mapping[str, float]:
    """Return how blocks fill the GPU, what they load, and how deep their loads are: logarithms to base 2, by name."""
    problem, sms = gemm(task.problem), task.device.sm_count
    blocks, resident = _blocks(task, tiling), _resident(task, tiling)
    at_once = min(blocks, sms * resident)
    chunks = tiling.chunks_of_part(problem.k // tiling.elements, 0)
    return {
        "blocks per SM": log2(blocks / sms),
        "waves": log2(-(-blocks // (sms * resident))),
        "tail": log2(-(-blocks // (sms * resident)) * sms * resident / blocks),
        "busiest SM": log2(-(-blocks // sms) * sms / blocks),
        "padding": log2(-(-problem.n // tiling.tile_n) * tiling.tile_n / problem.n),
        "bytes in flight per SM": log2(_bytes_in_flight(task, tiling, at_once)),
        "chunks of a warp": log2(chunks),
        "loads of a chunk": log2(tiling.loads),
        "share of A in the loads": log2(1 + _share_of_a(tiling)),
        "warps of a sum": log2(tiling.parts),
        "blocks of a cluster": log2(tiling.split_k),
        "threads": log2(tiling.threads),
    }


def rough_time_ns(task: Task, tiling: Tiling) -> float:
    """Return a time in nanoseconds whose order is that of good first guesses."""
    problem, device = gemm(task.problem), task.device
    blocks, resident = _blocks(task, tiling), _resident(task, tiling)
    chunks = tiling.chunks_of_part(problem.k // tiling.elements, 0)
    per_ns = device.memory_bandwidth_gb_s / device.sm_count  # bytes per SM
    of_busiest = -(-blocks // device.sm_count) * tiling.tile_n * problem.k / tiling.split_k  # elements of B
    nbytes = of_busiest * problem.b_dtype.itemsize
    share_of_a = _share_of_a(tiling)
    loading = max(nbytes / per_ns, nbytes * (1 + share_of_a) / (per_ns * _L1_FACTOR))
    # Conversions per element of B, where every warp converts its operands: from 8 bits, and for a GEMV to fp32.
    conversions = (tiling.steps - 1) * (1 + tiling.rows_per_lane / tiling.columns_per_lane)
    if tiling.lanes_k == WARP:
        computing = of_busiest * (tiling.rows + 1 + share_of_a + conversions) / _CORE_OPERATIONS
    else:
        computing = of_busiest * (tiling.rows / _TENSOR_OPERATIONS + conversions / _CORE_OPERATIONS)
    further = -(-blocks // (device.sm_count * resident)) - 1
    of_cluster = _CLUSTER_NS + further * _CLUSTER_WAVE_NS if tiling.split_k > 1 else 0
    waiting = further * _WAVE_NS + of_cluster + _PART_NS * tiling.parts + _CHUNK_NS * chunks
    return _LAUNCH_NS + max(loading, computing) + waiting


def _share_of_a(tiling: Tiling) -> float:
    """Return the bytes of A that are loaded per byte of B."""
    return tiling.rows_per_lane / tiling.sharers / tiling.columns_per_lane


def _blocks(task: Task, tiling: Tiling) -> int:
    return -(-gemm(task.problem).n // tiling.tile_n) * tiling.split_k * -(-gemm(task.problem).m // tiling.rows)


def _resident(task: Task, tiling: Tiling) -> int:
    """Return the blocks that an SM holds at once, by shared memory and threads."""
    device = task.device
    by_shared = device.shared_memory_per_sm_bytes // (tiling.shared_bytes + _RESERVED_BYTES)
    return max(1, min(by_shared, device.max_threads_per_sm // tiling.threads, _MOST_BLOCKS))


def _bytes_in_flight(task: Task, tiling: Tiling, blocks: int) -> float:
    """Return the bytes of B that are under way per SM, with that many blocks on the GPU."""
    chunks = min(tiling.stages - 1, tiling.chunks_of_part(gemm(task.problem).k // tiling.elements, 0))
    of_block = LOAD_BYTES * tiling.threads * tiling.columns_per_lane * tiling.unroll * chunks
    return max(1, blocks * of_block / task.device.sm_count)
