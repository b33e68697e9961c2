"""The operator classes of nvidia-cutlass-operators 0.3.0 that serve a plain mm, and what each can do.

Read in cutlass/operators/providers/cutedsl/gemm/*.py (`_valid_operands`, `_valid_metadata`, `_generate_operators`) and
held against `get_operators` point by point in the tests. Shapes are those the registry lists: the classes take more
(tile N in steps of 32, which builds), but a dispatcher's heuristic cannot return what the registry does not list.
Left out is what it lists and no compiler takes: operands of 8 bits on Hopper that do not lie along k, and fp32 outputs
of PersistentDenseGemmEFCOperator accumulated in fp16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.problem import DType

__all__ = ["FAMILIES", "Family", "families_of"]

_EVERY_LAYOUT = ("nn", "nt", "tn", "tt")


@dataclass(frozen=True, slots=True)
class Family:
    """One operator class."""

    name: str
    """The class."""
    capabilities: tuple[int, ...]
    """Major compute capabilities it is compiled for."""
    tiles_m: Mapping[bool, tuple[int, ...]]
    """Rows of a tile, without and with two CTAs (blocks) to an instruction; a mode that is not there it cannot."""
    tiles_n: tuple[int, ...]
    """Columns of a tile."""
    accumulators: Mapping[DType, tuple[DType, ...]]
    """Operand type to accumulator types."""
    outputs: Mapping[DType, tuple[DType, ...]]
    """Accumulator type to output types."""
    output_like_operands: bool = False
    """Whether an output of less than 32 bits has to be of the operands' type."""
    layouts: tuple[str, ...] = _EVERY_LAYOUT
    """Layouts of A and B."""
    layouts_of_8_bits: tuple[str, ...] = _EVERY_LAYOUT
    """Those of operands of 8 bits."""
    largest_cluster_side: int = 1
    """Most blocks of a cluster along m, and along n."""
    largest_cluster: int = 1
    """Most blocks of a cluster."""
    smaller_cluster: tuple[int, int] | None = None
    """Cluster for the tiles that fill no whole one, which has to divide the whole one and be smaller."""
    tma_store: bool = False
    """Its design's `use_tma_store`; False where the design does not say."""
    schedulers: tuple[str, ...] = ("none",)
    """Tile schedulers, `none` where the design does not name one."""


_BF16, _FP16, _FP32, _INT32 = DType.BF16, DType.FP16, DType.FP32, DType.INT32
_ACCUMULATORS = {
    _BF16: (_FP32,),
    _FP16: (_FP32, _FP16),
    DType.E4M3: (_FP32, _FP16),
    DType.E5M2: (_FP32, _FP16),
    DType.INT8: (_INT32,),
}
_OUTPUTS = {_FP32: (_BF16, _FP16, _FP32), _FP16: (_BF16, _FP16), _INT32: (_INT32, _FP32)}
_16_BIT_ACCUMULATORS = {_BF16: (_FP32,), _FP16: (_FP32,)}
_FLOAT_ACCUMULATORS = dict.fromkeys((_BF16, _FP16, DType.E4M3, DType.E5M2), (_FP32,))
_FLOAT_OUTPUTS = {_FP32: (_BF16, _FP16, _FP32)}
_BLACKWELL_TILES_M = {False: (64, 128), True: (128, 256)}
_BLACKWELL_TILES_N = (32, 64, 128, 256)

FAMILIES = (
    Family(
        name="PersistentDenseGemmOperator",
        capabilities=(10,),
        tiles_m=_BLACKWELL_TILES_M,
        tiles_n=_BLACKWELL_TILES_N,
        accumulators=_ACCUMULATORS,
        outputs=_OUTPUTS,
        largest_cluster_side=16,
        largest_cluster=16,
        tma_store=True,
        schedulers=("clc", "static"),
    ),
    Family(
        name="PersistentDenseGemmPreferredClusterOperator",
        capabilities=(10,),
        tiles_m=_BLACKWELL_TILES_M,
        tiles_n=_BLACKWELL_TILES_N,
        accumulators=_ACCUMULATORS,
        outputs=_OUTPUTS,
        largest_cluster_side=16,
        largest_cluster=16,
        smaller_cluster=(2, 1),
        tma_store=True,
        schedulers=("clc", "static"),
    ),
    Family(
        name="PersistentDenseGemmEFCOperator",
        capabilities=(10,),
        tiles_m=_BLACKWELL_TILES_M,
        tiles_n=_BLACKWELL_TILES_N,
        accumulators=_ACCUMULATORS,
        outputs=_OUTPUTS | {_INT32: (_INT32, _FP32, _BF16, _FP16)},
        largest_cluster_side=16,
        largest_cluster=16,
        tma_store=True,
    ),
    # Swaps the operands: its tile's 64 rows are columns of the output, its 8 to 32 columns rows of it.
    Family(
        name="TgvGemmOperator",
        capabilities=(10,),
        tiles_m={False: (64,)},
        tiles_n=(8, 16, 32),
        accumulators=_FLOAT_ACCUMULATORS,
        outputs=_FLOAT_OUTPUTS,
        output_like_operands=True,
        layouts=("nt",),
    ),
    Family(
        name="Sm90StaticPersistentGemmOperator",
        capabilities=(9,),
        tiles_m={False: (64, 128)},
        tiles_n=(64, 128, 256),
        accumulators=_ACCUMULATORS,
        outputs=_OUTPUTS,
        layouts_of_8_bits=(
            "nt",
        ),  # wgmma reads 8 bits along k alone; the registry lists the others, which do not build
        largest_cluster_side=2,
        largest_cluster=4,
    ),
    # Its kernel takes no tile: the four are one binary, as version 0.3.0 builds them.
    Family(
        name="Sm80TensorOpGemmOperator",
        capabilities=(8, 9, 10, 11, 12),
        tiles_m={False: (64, 128)},
        tiles_n=(64, 128),
        accumulators=_16_BIT_ACCUMULATORS,
        outputs=_FLOAT_OUTPUTS,
    ),
)


@cache
def families_of(device: Device) -> tuple[Family, ...]:
    """Those that are compiled for a GPU of its generation; all where none is, so that `check` can say so."""
    return tuple(f for f in FAMILIES if device.capability[0] in f.capabilities) or FAMILIES
