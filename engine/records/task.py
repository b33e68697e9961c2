"""Tasks: a workload on a device in a space."""

from dataclasses import dataclass

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.workload import Workload


@dataclass(frozen=True, slots=True)
class Task:
    """Workload to search on one device in one space.

    Example:
        >>> import gemmtune as gt
        >>> task = gt.testing.example_tasks()[0]
        >>> task.problem.m, task.device.name
        (2048, 'NVIDIA H200')
    """

    problem: Workload
    """Workload that the kernels serve; a GEMM, for example."""
    device: Device
    """GPU that the kernels run on."""
    space: str
    """Name of the space to search."""

    @property
    def is_baseline(self) -> bool:
        """Whether the space holds what production runs untuned, such as the vendor library's kernel."""
        return self.space == self.problem.baseline_space

    @property
    def key(self) -> str:
        """Unique and stable text, `H200/triton_mm/2048x4096x4096:bf16:nt`."""
        return f"{self.device.sku}/{self.space}/{self.problem.name}"
