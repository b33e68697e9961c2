"""GPUs as data, without querying one."""

import re
from dataclasses import dataclass, field
from functools import cache

from gemmtune.engine.records.errors import DeviceError

_ARCH = re.compile(r"sm_\d{2,3}[a-z]?", re.ASCII)
_SMS_PER_GPC = 18
"""Streaming multiprocessors per graphics processing cluster, as CUTLASS assumes."""
_FIRST_WITH_CLUSTERS = (9, 0)
"""Lowest compute capability whose blocks can form clusters."""
_COUNT = {"least": 1}
"""Bound of a count in JSON."""


@dataclass(frozen=True, slots=True)
class Device:
    """GPU model with the properties that spaces and builders need."""

    sku: str
    """Short catalogue name, `H200`."""
    name: str
    """Name reported by the driver and by torch's `get_device_properties().name`, `NVIDIA H200`."""
    arch: str
    """Compiler target with its architecture-specific suffix where it has one, `sm_90a`."""
    sm_count: int = field(metadata=_COUNT)
    """Number of streaming multiprocessors."""
    shared_memory_per_block_bytes: int = field(metadata=_COUNT)
    """Largest shared memory per block after opting in, in bytes."""
    shared_memory_per_sm_bytes: int = field(metadata=_COUNT)
    """Shared memory per multiprocessor, in bytes."""
    l2_bytes: int = field(metadata=_COUNT)
    """Size of the level-2 cache, in bytes."""
    registers_per_sm: int = field(metadata=_COUNT)
    """Number of 32-bit registers per multiprocessor."""
    max_threads_per_sm: int = field(metadata=_COUNT)
    """Largest number of resident threads per multiprocessor."""
    max_threads_per_block: int = field(metadata=_COUNT)
    """Largest number of threads per block."""
    warp_size: int = field(metadata=_COUNT)
    """Number of threads per warp."""
    boost_clock_mhz: int = field(metadata=_COUNT)
    """Maximum SM clock in MHz."""
    memory_bandwidth_gb_s: int = field(metadata=_COUNT)
    """Peak bandwidth of the device memory, in 10⁹ bytes per second."""
    source: str = field(default="", compare=False)
    """Source of the figures."""
    active_clusters: tuple[tuple[int, int], ...] = field(default=(), compare=False, metadata={"json": False})
    """Pairs of blocks per cluster and clusters that run at once, as one board's driver reported; may be empty."""
    peaks: tuple[tuple[str, float], ...] = field(default=(), compare=False, metadata={"json": False})
    """Pairs of a compute type and its peak rate in TFLOP/s, dense, by the data sheet; may be empty."""

    def __post_init__(self) -> None:
        """Refuse an architecture without a compute capability."""
        if not _ARCH.fullmatch(self.arch):
            raise DeviceError(f"arch={self.arch[:80]!r} is no architecture such as sm_90a")

    def __hash__(self) -> int:
        """Hash the SKU alone: every task holds a device, and few devices share one."""
        return hash(self.sku)

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability as major and minor number, (9, 0) for sm_90a."""
        return _capability(self.arch)

    @property
    def has_clusters(self) -> bool:
        """Whether thread blocks can form clusters."""
        return self.capability >= _FIRST_WITH_CLUSTERS

    def peak_tflops(self, compute_type: str) -> float | None:
        """Return the peak rate of a compute type; None where no data sheet has it."""
        peaks, either = dict(self.peaks), compute_type.removesuffix(" in fp16")
        return peaks.get(compute_type, peaks.get(either))  # only GeForce sums faster in fp16

    def max_active_clusters(self, size: int) -> int:
        """Return the number of clusters of `size` blocks that run at once, one block per multiprocessor.

        Without a driver's number in `active_clusters` it is CUTLASS's estimate: GPCs of 18 multiprocessors and a rest,
        each with whole clusters only (include/cutlass/gemm/kernel/tile_scheduler_params.h, get_max_cta_occupancy).
        """
        known = dict(self.active_clusters).get(size)
        if known is not None:
            return known
        gpcs, rest = divmod(self.sm_count, _SMS_PER_GPC)
        return gpcs * (_SMS_PER_GPC // size) + rest // size


@cache  # a space's check asks for it, of thousands of configs
def _capability(arch: str) -> tuple[int, int]:
    digits = "".join(filter(str.isdigit, arch))
    return int(digits[:-1]), int(digits[-1])
