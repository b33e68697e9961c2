"""Launch the two helper kernels of timing, and hold a stream at a barrier. Imports torch."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from cuda.bindings import driver

from gemmtune.engine.toolchain.cuda_driver import checked

# The driver compiles it for the present GPU, Volta or later.
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
    """Two kernels: `empty` measures the fixed cost of events, `evict` empties L2."""

    def __init__(self, evicted_bytes: int, device: torch.device) -> None:
        """Load the kernels and allocate the buffer of `evicted_bytes` bytes that `evict` reads."""
        torch.cuda.current_stream()  # makes torch's context current in this thread
        module = checked(driver.cuModuleLoadData(_PTX))
        self._empty = checked(driver.cuModuleGetFunction(module, b"empty"))
        self._evict = checked(driver.cuModuleGetFunction(module, b"evict"))
        # Zeros: the sum stays 0 and nothing is ever written. L2 then holds no dirty line, whose write-back would slow
        # the next kernel.
        self._buffer = torch.zeros(evicted_bytes // 16 * 4, dtype=torch.int32, device=device)
        self._blocks = _BLOCKS_PER_SM * torch.cuda.get_device_properties(device).multi_processor_count

    def empty(self) -> None:
        """Enqueue a kernel of one thread that does nothing."""
        _launch(self._empty, 1, 1, (), ())

    def evict(self) -> None:
        """Enqueue a kernel that reads the whole buffer."""
        values = (self._buffer.data_ptr(), self._buffer.numel() // 4)
        _launch(self._evict, self._blocks, _THREADS, values, (ctypes.c_void_p, ctypes.c_uint64))


class StreamBarrier:
    """Barrier that holds the stream while launches are enqueued, so that no host time lies between them."""

    def __init__(self) -> None:
        flags = driver.CU_MEMHOSTALLOC_DEVICEMAP | driver.CU_MEMHOSTALLOC_PORTABLE
        host = checked(driver.cuMemHostAlloc(4, flags))
        self._word = ctypes.c_uint32.from_address(int(host))
        self._word.value = 0
        self._address = checked(driver.cuMemHostGetDevicePointer(host, 0))
        self._releases = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold launches that are enqueued inside the `with` block until it ends, even by an error."""
        self._releases += 1
        at_least = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        stream = torch.cuda.current_stream().cuda_stream
        checked(driver.cuStreamWaitValue32(stream, self._address, self._releases, int(at_least)))
        try:
            yield
        finally:
            self._word.value = self._releases


def _launch(function: object, blocks: int, threads: int, values: tuple[int, ...], types: tuple[type, ...]) -> None:
    stream = torch.cuda.current_stream().cuda_stream
    checked(driver.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, (values, types), 0))
