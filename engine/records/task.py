"""What one search answers: a problem, on a device, in a space."""

from __future__ import annotations

from dataclasses import dataclass

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.problem import Problem

__all__ = ["BASELINE_SPACE", "Task"]

BASELINE_SPACE = "aten"
"""Name of the space whose one config, the vendor library's kernel, is measured for every problem."""


@dataclass(frozen=True, slots=True)
class Task:
    """Problem × Device × space."""

    problem: Problem
    """The GEMM to serve."""
    device: Device
    """The GPU it runs on."""
    space: str
    """Name of the space searched."""

    @property
    def key(self) -> str:
        """Stable text that tells tasks apart, `H200/triton_mm/2048x4096x4096:bf16:nt`."""
        return f"{self.device.sku}/{self.space}/{self.problem.name}"
