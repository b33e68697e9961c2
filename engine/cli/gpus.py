"""The GPUs of this machine, where a command measures on them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from gemmtune.engine.execution.estimate import EstimateExecutor
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.platform.clock_lock import ClockLock
from gemmtune.engine.platform.gpu_info import equal_gpus, present_device
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError
from gemmtune.engine.seams.executor import Executor

__all__ = ["gpu_or_fail", "locked_clocks"]


def gpu_or_fail(command: str) -> Device:
    """The GPU that a command measures on.

    Raises:
        DeviceError: there is none, or nothing to measure it with.
    """
    device = present_device()
    if device is None:
        raise DeviceError(f"{command} measures, and there is no GPU here (or gemmtune[triton] is not installed)")
    return device


@contextmanager
def locked_clocks(mhz: int | None, executor: Executor) -> Iterator[None]:
    """Lock the clocks of the GPUs that are measured, if that is asked for."""
    with ExitStack() as locks:
        if mhz is not None and isinstance(executor, ReplayExecutor | EstimateExecutor):
            answers = "recorded landscapes answer" if isinstance(executor, ReplayExecutor) else "a model answers"
            print(f"clocks are not locked: {answers}, nothing is measured", file=sys.stderr)
        elif mhz is not None:
            for gpu in equal_gpus():
                locks.enter_context(ClockLock(gpu, mhz, lambda line: print(line, file=sys.stderr)))
        yield
