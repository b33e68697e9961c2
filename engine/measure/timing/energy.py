"""Measure the energy per launch with NVML's energy counter. Imports torch."""

import time
from collections.abc import Callable

import torch

_LOOP_SECONDS = 0.5
_MOST_SECONDS = 5.0
_BATCH_SECONDS = 2e-3


def joules_per_launch(
    replay: Callable[[], None], launches: int, replay_seconds: float, energy_mj: Callable[[], int | None]
) -> float | None:
    """Return the energy per launch in joules, while launches follow each other without a pause.

    Idle power is included. The counter moves in steps of tens of milliseconds. The energy between two steps, at least
    half a second apart, is divided by the launches between them. `replay` enqueues `launches` launches; `energy_mj`
    returns None without a counter.

    Returns:
        The energy in joules; None if the GPU counts no energy, or its counter does not move.
    """
    if energy_mj() is None:
        return None
    batch = max(1, round(_BATCH_SECONDS / replay_seconds))
    first: tuple[float, int, int] | None = None
    done, last = 0, energy_mj()
    began = time.perf_counter()
    event = _enqueue(replay, batch)
    while time.perf_counter() - began < _MOST_SECONDS:
        following = _enqueue(replay, batch)  # enqueued before the batch before it ends, so that there is no gap
        event.synchronize()
        event = following
        done += batch
        now = energy_mj()
        if now is None or last is None or now == last:
            continue
        last = now
        at = time.perf_counter()
        if first is None:
            first = at, now, done
        elif at - first[0] >= _LOOP_SECONDS:
            torch.cuda.synchronize()
            return (now - first[1]) / 1e3 / ((done - first[2]) * launches)
    torch.cuda.synchronize()
    return None


def _enqueue(replay: Callable[[], None], times: int) -> torch.cuda.Event:
    for _ in range(times):
        replay()
    event: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event
