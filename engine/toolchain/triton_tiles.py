"""Shared memory that Triton's pipelined loops over k need, known before a kernel is built."""

_MMA_FROM_SHARED = (9, 10)
"""Major compute capabilities whose large matrix instructions read both operands in shared memory."""
_SMALLEST_ROWS = 64
"""Least rows of such an instruction."""


def least_shared_bytes(
    capability: tuple[int, int], tile: tuple[int, int, int], stages: int, itemsizes: tuple[int, int], rows: int
) -> int:
    """Return the bytes of both operands' tiles in the pipeline, which a block needs at least.

    Found with Triton 3.7 for sm_80, sm_89, sm_90, sm_100 and sm_120: an instruction that reads shared memory has
    `stages` buffers per operand, others one less. A binary needs at most 1 KiB more than that.

    Args:
        capability: compute capability.
        tile: rows, columns and depth of the tile.
        stages: `num_stages` of the kernel.
        itemsizes: bytes per element of both operands.
        rows: rows of the instruction: those of the tile, or its columns where the kernel swaps A and B.
    """
    block_m, block_n, block_k = tile
    from_shared = capability[0] in _MMA_FROM_SHARED and rows >= _SMALLEST_ROWS
    buffers = stages if from_shared or stages < 2 else stages - 1
    return buffers * block_k * (block_m * itemsizes[0] + block_n * itemsizes[1])


def least_converted_bytes(capability: tuple[int, int], tile: tuple[int, int, int], stages: int, *, staged: bool) -> int:
    """Return the bytes that a block needs at least whose second operand is converted to 16 bits in the loop.

    Found with Triton 3.7 for sm_80 and sm_90: the first operand, of 16 bits, is in the pipeline, and the converted
    second one has a single buffer.

    Args:
        capability: compute capability.
        tile: rows, columns and depth of the tile.
        stages: `num_stages` of the kernel.
        staged: whether the second operand's bytes are in the pipeline, too, as they are where each is an element.
    """
    block_m, block_n, block_k = tile
    first = least_shared_bytes(capability, tile, stages, (2, 0), block_m)
    return first + block_k * block_n * (2 + (max(0, stages - 1) if staged else 0))
