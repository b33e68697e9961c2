"""Alternating rounds of a model's arms, in CUDA graphs where all arms allow it. Imports torch."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gemmtune.engine.measure.models.running import RunnableArm

__all__ = ["captured_graphs", "timed_rounds"]

_CUDA: Any = torch.cuda  # streams and events have no types
_WARM_CALLS = 3
_LEAST_SAMPLE_MS = 2.0
"""Least time of a sample, so that the resolution of events does not count."""
_LEAST_ROUNDS, _MOST_ROUNDS = 8, 200
_PAUSE_SECONDS = 0.002
"""Pause between samples, in which clocks recover alike for all arms."""


def captured_graphs(arms: Mapping[str, RunnableArm]) -> tuple[dict[str, Callable[[], object]], str]:
    """Return a replay of each arm's CUDA graph; without any and with the reason if one arm allows none."""
    replays: dict[str, Callable[[], object]] = {}
    for name, arm in arms.items():
        try:
            replays[name] = _replay(arm)
        except Exception as error:  # the model's code, or what the driver refuses in a graph
            torch.cuda.synchronize()
            line = next(iter(str(error).splitlines()), "")
            return {}, f"{name}: {type(error).__name__}: {line}"
    return replays, ""


def timed_rounds(calls: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, tuple[float, ...]]:
    """Return the time per call in each round and arm, ns; every other round has the arms in reverse order.

    At least 8 rounds are run, and further ones for `seconds` in all.
    """
    repeats = {name: _repeats(call) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    end = time.monotonic() + seconds
    for number in range(_MOST_ROUNDS):
        if number >= _LEAST_ROUNDS and time.monotonic() > end:
            break
        order = list(calls) if number % 2 == 0 else list(calls)[::-1]
        for name in order:
            samples[name].append(_sample_ms(calls[name], repeats[name]) * 1e6)
            time.sleep(_PAUSE_SECONDS)
    return {name: tuple(its) for name, its in samples.items()}


def _replay(arm: RunnableArm) -> Callable[[], object]:
    stream = _CUDA.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_CALLS):
            arm()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = arm()
    torch.cuda.synchronize()

    def replay() -> object:
        graph.replay()
        return kept  # its memory is the graph's

    return replay


def _repeats(call: Callable[[], object]) -> int:
    """Return the calls per sample."""
    _sample_ms(call, 1)
    return max(1, math.ceil(_LEAST_SAMPLE_MS / max(_sample_ms(call, 1), 1e-3)))


def _sample_ms(call: Callable[[], object], repeats: int) -> float:
    """Return the time per call of a row of calls, ms; one call before them is not counted."""
    begin, end = _CUDA.Event(enable_timing=True), _CUDA.Event(enable_timing=True)
    call()
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / repeats
