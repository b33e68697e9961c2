"""Elements of a load in the type that is multiplied. Imports cutlass.

8-bit floats become fp16, which holds each of their values, NaN and the infinities of e5m2 included.
"""

from collections.abc import Mapping

import cutlass
from cutlass import cute

from gemmtune.spaces.cute.decode.tiling import VECTOR

_CONVERSIONS: Mapping[type[cutlass.Numeric], str] = {
    cutlass.Float8E4M3FN: "cvt.rn.f16x2.e4m3x2 {$w0}, {$r0};",
    cutlass.Float8E5M2: "cvt.rn.f16x2.e5m2x2 {$w0}, {$r0};",
}
"""Instruction that converts two elements, by their type."""


def loaded(slot: cute.Tensor) -> cute.Tensor:
    """Return the elements of a load: 16 of 8 bits in registers, others where they are."""
    if slot.element_type.width > 8:
        return slot
    registers: cute.Tensor = cute.make_rmem_tensor(slot.layout, slot.element_type)
    cute.autovec_copy(slot, registers)
    return registers


def widened(load: cute.Tensor, step: int) -> cute.Tensor:
    """Return elements `8 * step` to `8 * step + 7` of a load, shape (8,), in a type of at least 16 bits."""
    if load.element_type.width > 8:
        return load
    wide: cute.Tensor = cute.make_rmem_tensor(cute.make_layout(VECTOR), cutlass.Float16)
    pairs, words = cute.recast_tensor(load, cutlass.Int16), cute.recast_tensor(wide, cutlass.Int32)
    for pair in range(VECTOR // 2):
        words[pair] = cute.arch.inline_ptx(
            _CONVERSIONS[load.element_type],
            write_only_types=[cutlass.Int32],
            read_only_args=[pairs[step * (VECTOR // 2) + pair]],
        )
    return wide
