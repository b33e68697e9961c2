"""The few things timing needs of the CUDA driver: two small kernels and a barrier. Imports torch."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from cuda.bindings import driver

from gemmtune.engine.platform.cuda_driver import checked

__all__ = ["HelperKernels", "StreamBarrier"]

# Any GPU since Volta runs it: the driver compiles it for the one that is there.
_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry empty() { ret; }
.visible .entry evict(.param .u64 buffer, .param .u64 vectors) {
    .reg .u64 %address, %index, %count, %step;
    .reg .u32 %block, %blocks, %thread, %threads, %first, %a, %b, %c, %d, %sum;
    .reg .pred %more, %never;
    ld.param.u64 %count, [vectors];
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %thread, %tid.x;
    mov.u32 %threads, %ntid.x;
    mad.lo.u32 %first, %block, %threads, %thread;
    cvt.u64.u32 %index, %first;
    mul.wide.u32 %step, %blocks, %threads;
    mov.u32 %sum, 0;
READ:
    setp.ge.u64 %more, %index, %count;
    @%more bra DONE;
    ld.param.u64 %address, [buffer];
    mad.lo.u64 %address, %index, 16, %address;
    ld.global.v4.u32 {%a, %b, %c, %d}, [%address];
    xor.b32 %sum, %sum, %a;
    xor.b32 %sum, %sum, %b;
    xor.b32 %sum, %sum, %c;
    xor.b32 %sum, %sum, %d;
    add.u64 %index, %index, %step;
    bra READ;
DONE:
    setp.ne.u32 %never, %sum, 0;
    @!%never bra END;
    ld.param.u64 %address, [buffer];
    st.global.u32 [%address], %sum;
END:
    ret;
}
"""
_BLOCKS_PER_SM, _THREADS = 8, 256


class HelperKernels:
    """`empty` times the protocol's fixed cost; `evict` leaves nothing of the operands in L2."""

    def __init__(self, evicted_bytes: int, device: torch.device) -> None:
        """Load them, and take the buffer that `evict` reads."""
        torch.cuda.current_stream()  # makes torch's context current in this thread
        module = checked(driver.cuModuleLoadData(_PTX))
        self._empty = checked(driver.cuModuleGetFunction(module, b"empty"))
        self._evict = checked(driver.cuModuleGetFunction(module, b"evict"))
        # Zeros: the sum stays 0 and nothing is ever written, so that L2 holds no dirty line to write back while the
        # next kernel reads (with a buffer that is written instead, a 31 µs GEMM takes 38 µs: H200, 2026-11-21).
        self._buffer = torch.zeros(evicted_bytes // 16 * 4, dtype=torch.int32, device=device)
        self._blocks = _BLOCKS_PER_SM * torch.cuda.get_device_properties(device).multi_processor_count

    def empty(self) -> None:
        """Enqueue a kernel of one thread that does nothing."""
        _launch(self._empty, 1, 1, (), ())

    def evict(self) -> None:
        """Enqueue a read of the whole buffer."""
        values = (self._buffer.data_ptr(), self._buffer.numel() // 4)
        _launch(self._evict, self._blocks, _THREADS, values, (ctypes.c_void_p, ctypes.c_uint64))


class StreamBarrier:
    """Holds the stream back while launches are enqueued, so that no host time lies between them when they run."""

    def __init__(self) -> None:
        """Take a word of memory that host and device both see."""
        flags = driver.CU_MEMHOSTALLOC_DEVICEMAP | driver.CU_MEMHOSTALLOC_PORTABLE
        host = checked(driver.cuMemHostAlloc(4, flags))
        self._word = ctypes.c_uint32.from_address(int(host))
        self._word.value = 0
        self._address = checked(driver.cuMemHostGetDevicePointer(host, 0))
        self._passes = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is enqueued inside runs when the block ends, also when it ends in an error."""
        self._passes += 1
        at_least = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        stream = torch.cuda.current_stream().cuda_stream
        checked(driver.cuStreamWaitValue32(stream, self._address, self._passes, int(at_least)))
        try:
            yield
        finally:
            self._word.value = self._passes


def _launch(function: object, blocks: int, threads: int, values: tuple[int, ...], types: tuple[type, ...]) -> None:
    stream = torch.cuda.current_stream().cuda_stream
    checked(driver.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, (values, types), 0))
