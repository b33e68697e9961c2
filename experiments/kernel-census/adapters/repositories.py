"""Kernels of the checkouts by repository, without the packages' own `__init__`, which import much more."""

import os
from typing import Any

from base import imported

os.environ["FLA_CACHE_MODE"] = "disabled"


def fla(module: str, kernel: str) -> Any:
    bare = ("fla", "fla.modules", "fla.layers", "fla.models", "fla.ops")
    return getattr(imported("flash-linear-attention", f"fla.{module}", bare, gpu=True), kernel)


def mamba(module: str, kernel: str) -> Any:
    bare = ("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.triton", "mamba_ssm.utils")
    return getattr(imported("mamba", f"mamba_ssm.ops.triton.{module}", bare), kernel)


def liger(module: str, kernel: str) -> Any:
    bare = ("liger_kernel", "liger_kernel.ops", "liger_kernel.ops.experimental")
    return getattr(imported("Liger-Kernel/src", f"liger_kernel.ops.{module}", bare), kernel)


def ao(module: str, kernel: str) -> Any:
    return getattr(imported("ao", f"torchao.{module}", _folders(f"torchao.{module}"), gpu=True), kernel)


def bench(module: str, kernel: str) -> Any:
    bare = ("tritonbench.utils", "tritonbench.kernels", *_folders(f"tritonbench.{module}"))
    return getattr(imported("tritonbench", f"tritonbench.{module}", bare, gpu=True), kernel)


def triton_kernels(module: str, kernel: str) -> Any:
    # transformers takes a package `kernels` for its own
    return getattr(imported("kernels/kernels", f"triton_lang.{module}", ("triton_lang",)), kernel)


def _folders(module: str) -> tuple[str, ...]:
    parts = module.split(".")[:-1]
    return tuple(".".join(parts[: at + 1]) for at in range(len(parts)))
