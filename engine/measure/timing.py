"""The timing protocol: CUDA events around single launches on a cold L2. Imports torch."""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["ColdL2Events"]

_LAUNCHES = 9
_LEAST_LAUNCHES = 3
_BUDGET_MS = 30.0


class ColdL2Events:
    """`events-cold-l2`: before each launch a buffer far larger than L2 is written, and events enclose the launch alone.

    Writing the buffer takes longer than enqueuing a launch, so the launch waits in the stream when its turn comes and
    no host time lies between the events.
    """

    name = "events-cold-l2"

    def __init__(self, l2_bytes: int, device: torch.device) -> None:
        """Take the flush buffer: four times L2, at least 256 MiB."""
        self._flush = torch.empty(max(4 * l2_bytes, 256 * 2**20), dtype=torch.int8, device=device)

    def time(self, launch: Callable[[], None], estimate_ms: float) -> tuple[float, ...]:
        """Nanoseconds of each launch, in launch order.

        Args:
            launch: enqueues one launch.
            estimate_ms: about how long a launch takes; a slow kernel is launched less often, but at least 3 times.
        """
        count = max(_LEAST_LAUNCHES, min(_LAUNCHES, int(_BUDGET_MS / max(estimate_ms, 1e-3))))
        pairs = [self._timed(launch) for _ in range(count)]
        torch.cuda.synchronize()
        return tuple(round(start.elapsed_time(end) * 1e6, 1) for start, end in pairs)

    def time_once(self, launch: Callable[[], None]) -> float:
        """Milliseconds of one launch, which is waited for; the first of a kernel pays for loading it."""
        start, end = self._timed(launch)
        end.synchronize()
        elapsed: float = start.elapsed_time(end)
        return elapsed

    def _timed(self, launch: Callable[[], None]) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        start, end = _event(), _event()
        self._flush.zero_()
        start.record()
        launch()
        end.record()
        return start, end


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event
