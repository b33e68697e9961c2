"""Loads of 16 bytes from memory into slots of shared memory. Imports cutlass.

Each thread reads only the slots that it filled itself, so no barrier stands between a load and its use. Warps that
share their slots of A need one. Loads of all stages are under way at once, and need no registers.
"""

import cutlass
from cutlass import cute
from cutlass._mlir.dialects import nvvm
from cutlass.cutlass_dsl import dsl_user_op
from cutlass.memory import SmemAllocator

from gemmtune.spaces.cute.decode.tiling import LOAD_BYTES


def make_slots(
    stages: int, loads: int, threads: int, element: type[cutlass.Numeric], memory: SmemAllocator
) -> cute.Tensor:
    """Return slots of an operand, shape (elements of a load, loads of a chunk, threads, stages)."""
    vector = _elements(element)
    slot = vector * threads
    layout = cute.make_layout((vector, loads, threads, stages), stride=(1, slot, vector, slot * loads))
    return memory.allocate_tensor(element, layout, byte_alignment=LOAD_BYTES)


def address_of_row(matrix: cute.Tensor, row: cutlass.Int32) -> cute.Pointer:
    """Return the address of a row's first element; rows start at multiples of 16 bytes."""
    return matrix.iterator + cute.assume(cutlass.Int64(row) * matrix.stride[0], divby=_elements(matrix.element_type))


def load(row: cute.Pointer, vector: cutlass.Int32, vectors: cutlass.Int32, slot: cute.Tensor, streamed: bool) -> None:
    """Start loading a vector of a row into a slot; a vector beyond the row becomes zeros.

    Only a vector that no other warp reads is `streamed`, past the level-1 cache.
    """
    elements = _elements(row.dtype)
    nbytes = cutlass.min(cutlass.max(vectors - vector, 0), 1) * LOAD_BYTES
    inside = row + cute.assume(cutlass.min(vector, vectors - 1) * elements, divby=elements)
    _copy(slot.iterator, inside, nbytes, streamed)


def _elements(element: type[cutlass.Numeric]) -> int:
    return LOAD_BYTES * 8 // element.width


@dsl_user_op
def _copy(
    target: cute.Pointer,
    source: cute.Pointer,
    nbytes: cutlass.Int32,
    streamed: bool,
    *,
    loc: object = None,
    ip: object = None,
) -> None:
    nvvm.cp_async_shared_global(
        target.to_llvm_ptr(loc=loc, ip=ip),
        source.to_llvm_ptr(loc=loc, ip=ip),
        16,
        nvvm.LoadCacheModifierKind.CG if streamed else nvvm.LoadCacheModifierKind.CA,
        cp_size=nbytes.ir_value(loc=loc, ip=ip),
        loc=loc,
        ip=ip,
    )
