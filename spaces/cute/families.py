"""Operator classes of nvidia-cutlass-operators 0.3.0 that serve a plain mm, with their capabilities.

Source: cutlass/operators/providers/cutedsl/gemm/*.py (`_valid_operands`, `_valid_metadata`, `_generate_operators`). The
tests compare them with `get_operators` point by point. Shapes are those of the registry: the classes take more (tile N
in steps of 32 builds), but a dispatcher's heuristic can only return listed operators. Two listed kinds are left out,
because they do not compile: operands of 8 bits on Hopper that do not lie along k, and fp32 outputs of
PersistentDenseGemmEFCOperator accumulated in fp16.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.gemm.terms import DType

_EVERY_LAYOUT = ("nn", "nt", "tn", "tt")


@dataclass(frozen=True, slots=True, eq=False)  # one object per class: compared and hashed by identity
class Family:
    """One operator class of the registry."""

    name: str
    """Name of the class."""
    capabilities: tuple[int, ...]
    """Major compute capabilities that it is compiled for."""
    tiles_m: Mapping[bool, tuple[int, ...]]
    """Rows of a tile, by whether two CTAs (blocks) share an instruction; a missing mode is not supported."""
    tiles_n: tuple[int, ...]
    """Columns of a tile, in ascending order."""
    accumulators: Mapping[DType, tuple[DType, ...]]
    """Accumulator types of each operand type."""
    outputs: Mapping[DType, tuple[DType, ...]]
    """Output types of each accumulator type."""
    output_like_operands: bool = False
    """Whether an output of less than 32 bits must have the operands' type."""
    layouts: tuple[str, ...] = _EVERY_LAYOUT
    """Supported layouts of A and B, each as two letters."""
    layouts_of_8_bits: tuple[str, ...] = _EVERY_LAYOUT
    """Supported layouts of operands of 8 bits."""
    largest_cluster_side: int = 1
    """Largest number of blocks of a cluster along m, and along n."""
    largest_cluster: int = 1
    """Largest number of blocks of a cluster."""
    smaller_cluster: tuple[int, int] | None = None
    """Cluster (m, n) for tiles that do not fill a whole one; it must divide the whole cluster and be smaller."""
    tma_store: bool = False
    """Value of `use_tma_store` in its design; False if the design has no such field."""
    schedulers: tuple[str, ...] = ("none",)
    """Tile schedulers of its designs; `none` if a design names none."""


_BF16, _FP16, _FP32, _INT32 = DType.BF16, DType.FP16, DType.FP32, DType.INT32
_ACCUMULATORS = {
    _BF16: (_FP32,),
    _FP16: (_FP32, _FP16),
    DType.E4M3: (_FP32, _FP16),
    DType.E5M2: (_FP32, _FP16),
    DType.INT8: (_INT32,),
}
_OUTPUTS = {_FP32: (_BF16, _FP16, _FP32), _FP16: (_BF16, _FP16), _INT32: (_INT32, _FP32)}
_FLOAT_OUTPUTS = {_FP32: (_BF16, _FP16, _FP32)}
_PERSISTENT = Family(
    name="PersistentDenseGemmOperator",
    capabilities=(10,),
    tiles_m={False: (64, 128), True: (128, 256)},
    tiles_n=(32, 64, 128, 256),
    accumulators=_ACCUMULATORS,
    outputs=_OUTPUTS,
    largest_cluster_side=16,
    largest_cluster=16,
    tma_store=True,
    schedulers=("clc", "static"),
)

FAMILIES = (
    _PERSISTENT,
    replace(_PERSISTENT, name="PersistentDenseGemmPreferredClusterOperator", smaller_cluster=(2, 1)),
    replace(
        _PERSISTENT,
        name="PersistentDenseGemmEFCOperator",
        outputs=_OUTPUTS | {_INT32: (_INT32, _FP32, _BF16, _FP16)},
        schedulers=("none",),
    ),
    # Swaps the operands: the 64 rows of its tile are columns of the output, its 8 to 32 columns are rows.
    Family(
        name="TgvGemmOperator",
        capabilities=(10,),
        tiles_m={False: (64,)},
        tiles_n=(8, 16, 32),
        accumulators=dict.fromkeys((_BF16, _FP16, DType.E4M3, DType.E5M2), (_FP32,)),
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
        layouts_of_8_bits=("nt",),  # wgmma reads 8 bits along k only; the other layouts are listed and do not build
        largest_cluster_side=2,
        largest_cluster=4,
    ),
    # Its kernel ignores the tile: version 0.3.0 builds one binary for all four.
    Family(
        name="Sm80TensorOpGemmOperator",
        capabilities=(8, 9, 10, 11, 12),
        tiles_m={False: (64, 128)},
        tiles_n=(64, 128),
        accumulators=dict.fromkeys((_BF16, _FP16), (_FP32,)),
        outputs=_FLOAT_OUTPUTS,
    ),
)


@cache
def families_of(device: Device) -> tuple[Family, ...]:
    """Return the classes for the device's generation, or all if there are none, so that `check` names the reason."""
    return tuple(f for f in FAMILIES if device.capability[0] in f.capabilities) or FAMILIES
