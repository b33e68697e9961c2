"""Limits on the tile of a Triton kernel: registers, shared memory, and the size of the problem."""

from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict

_SMALLEST_BLOCK = 16  # the least extent of a tile that Triton multiplies

_MAX_REGISTERS_PER_THREAD = 255


def fits_in_registers(task: Task, rows: int, columns: int, num_warps: int) -> Verdict:
    """Return whether threads can hold the sums of a tile; otherwise the accumulator alone would spill."""
    accumulators = rows * columns // (num_warps * task.device.warp_size)
    if accumulators > _MAX_REGISTERS_PER_THREAD:
        return Verdict.no(
            "registers",
            f"{accumulators} accumulators per thread > {_MAX_REGISTERS_PER_THREAD} registers at {num_warps} warps",
        )
    return Verdict.yes()


def fits_in_shared_memory(task: Task, needed: int, stages: int) -> Verdict:
    """Return whether a block may have `needed` bytes of shared memory."""
    limit = task.device.shared_memory_per_block_bytes
    if needed > limit:
        return Verdict.no(
            "shared memory", f"at least {needed} B of shared memory > {limit} B per block at {stages} stages"
        )
    return Verdict.yes()


def padded(size: int) -> int:
    """Return the next power of two, at least the smallest block."""
    return max(1 << (size - 1).bit_length(), _SMALLEST_BLOCK)
