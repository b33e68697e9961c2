"""The GPU and the operands that CuTe kernels ask about while they are compiled. Imports cutlass and torch."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import patch

import cutlass.utils
import torch
from cutlass.cutlass_dsl import CuTeDSL

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType, Layout


def target_of(device: Device) -> str:
    """Return the target as cutlass.operators writes it: `90a` for sm_90a."""
    return device.arch.removeprefix("sm_")


@contextlib.contextmanager
def driver_of(device: Device) -> Iterator[None]:
    """Answer `cutlass.utils.HardwareInfo` and the compiler from the Device record instead of the CUDA driver.

    The compiler makes no engine that would run the kernel in this process, as for a GPU of another architecture.
    A builder must not call the driver: cuInit crashes in a process forked from one that has imported the compiler (CUDA
    13.0, nvidia-cutlass-dsl 4.8.1).
    """
    hardware = SimpleNamespace(  # other questions raise AttributeError
        get_max_active_clusters=lambda cluster_size, stream=None: device.max_active_clusters(cluster_size),
        get_l2_cache_size_in_bytes=lambda: device.l2_bytes,
        get_device_multiprocessor_count=lambda: device.sm_count,
    )
    settings = CuTeDSL._get_dsl().envar
    settings.arch = device.arch
    try:
        with (
            patch.object(cutlass.utils, "HardwareInfo", lambda device_id=0: hardware),
            patch.object(CuTeDSL, "_runtime_can_run_compiled", lambda *_: False),
        ):
            yield
    finally:
        del settings.arch  # the environment decides again


def operands_of(problem: Problem) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return A, B and out without memory, because compiling reads only their types, sizes and strides."""
    return (
        _operand(problem.m, problem.k, problem.a_dtype, problem.a_layout),
        _operand(problem.k, problem.n, problem.b_dtype, problem.b_layout),
        _operand(problem.m, problem.n, problem.out_dtype, Layout.N),
    )


def _operand(rows: int, columns: int, dtype: DType, layout: Layout) -> torch.Tensor:
    stride = (columns, 1) if layout is Layout.N else (1, rows)
    return torch.empty_strided((rows, columns), stride, dtype=getattr(torch, dtype.torch_name), device="meta")
