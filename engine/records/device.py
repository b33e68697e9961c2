"""A GPU as data: nothing here queries one."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Device"]

_MULTIPROCESSORS_OF_A_GPC = 18
_FIRST_WITH_CLUSTERS = (9, 0)


@dataclass(frozen=True, slots=True)
class Device:
    """What a space and a builder need to know of a GPU."""

    sku: str
    """Short catalogue name, `H200`."""
    name: str
    """The name the driver reports and torch's `get_device_properties().name` returns, `NVIDIA H200`."""
    arch: str
    """Compiler target with its architecture-specific suffix where it has one, `sm_90a`."""
    sm_count: int
    """Streaming multiprocessors."""
    shared_memory_per_block_bytes: int
    """Largest shared memory of one block, after opting in."""
    shared_memory_per_sm_bytes: int
    """Shared memory of one multiprocessor."""
    l2_bytes: int
    """Level-2 cache."""
    registers_per_sm: int
    """32-bit registers of one multiprocessor."""
    max_threads_per_sm: int
    """Resident threads of one multiprocessor."""
    max_threads_per_block: int
    """Threads of one block."""
    warp_size: int
    """Threads of one warp."""
    boost_clock_mhz: int
    """Maximum SM clock."""
    memory_bandwidth_gb_s: int
    """Peak device-memory bandwidth, 10⁹ bytes a second."""
    source: str = field(default="", compare=False)
    """Where the figures come from."""
    active_clusters: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    """(blocks of a cluster, clusters at once) as the driver of one board answered; empty where none was asked. Which
    multiprocessors of a GPC work differs from board to board, so this tells no devices apart."""

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, (9, 0) for sm_90a."""
        digits = "".join(c for c in self.arch if c.isdigit())
        return int(digits[:-1]), int(digits[-1])

    @property
    def has_clusters(self) -> bool:
        """Whether blocks can form clusters."""
        return self.capability >= _FIRST_WITH_CLUSTERS

    def max_active_clusters(self, size: int) -> int:
        """Clusters of `size` blocks, one block a multiprocessor, that run at once; a persistent kernel's grid.

        The driver's answer where there is one. Else CUTLASS's count for when no driver answers
        (include/cutlass/gemm/kernel/tile_scheduler_params.h, get_max_cta_occupancy): GPCs of 18 multiprocessors, and
        the rest as one more; multiprocessors that no whole cluster of one GPC takes stay idle. A driver's answer may be
        some clusters higher (15 of size 8 on an H100, not 14) or lower; too low a number costs that much, too high a
        one a second wave.
        """
        known = dict(self.active_clusters).get(size)
        if known is not None:
            return known
        gpcs, rest = divmod(self.sm_count, _MULTIPROCESSORS_OF_A_GPC)
        return gpcs * (_MULTIPROCESSORS_OF_A_GPC // size) + rest // size
