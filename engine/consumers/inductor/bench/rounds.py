"""Alternating rounds of a model's arms, in CUDA graphs where all arms allow it. Imports torch."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gemmtune.engine.io.blame import first_line
from gemmtune.engine.measure.timing.cuda_graphs import EARLY_KERNELS, Executable, Graph, early_executables

_CUDA: Any = torch.cuda  # streams and events have no types
_CAPTURES = 4
"""Graphs per arm, one after another: equal kernels in two graphs may differ by 4 % (experiments/epilogues)."""
_WARM_CALLS = 3
_LEAST_SAMPLE_MS = 2.0
"""Least time of a sample, so that the resolution of events does not count."""
_LEAST_ROUNDS, _MOST_ROUNDS = 8, 200
_PAUSE_SECONDS = 0.002
"""Pause between samples, in which clocks recover alike for all arms."""


def timed_in_graphs(
    arms: Mapping[str, Callable[[], object]], seconds: float
) -> tuple[dict[str, tuple[float, ...]], str]:
    """Return the time per call in each round and arm, ns, in CUDA graphs; none and the reason if an arm allows none.

    All arms are captured anew several times, every other time in reverse order, because a graph's time depends on where
    its memory lies and on how many were made before it.
    """
    early = _early()
    samples: dict[str, tuple[float, ...]] = dict.fromkeys(arms, ())
    for turn in range(_CAPTURES):
        graphs: dict[str, Callable[[], object]] = {}
        for name in list(arms)[:: -1 if turn % 2 else 1]:
            try:
                graphs[name] = _replay(arms[name])
            except Exception as error:  # the model's code, or what the driver refuses in a graph
                torch.cuda.synchronize()
                return {}, f"{name}: {first_line(error)}"
        bounds = _LEAST_ROUNDS // _CAPTURES, _MOST_ROUNDS // _CAPTURES
        for name, its in timed_rounds(graphs, seconds / _CAPTURES, *bounds).items():
            samples[name] += its
        del graphs
        torch.cuda.empty_cache()
    del early
    return samples, ""


def timed_rounds(
    calls: Mapping[str, Callable[[], object]], seconds: float, least: int = _LEAST_ROUNDS, most: int = _MOST_ROUNDS
) -> dict[str, tuple[float, ...]]:
    """Return the time per call in each round and arm, ns; every other round has the arms in reverse order.

    At least `least` rounds are run, and further ones for `seconds` in all, up to `most`.
    """
    repeats = {name: _repeats(call) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    end = time.monotonic() + seconds
    for number in range(most):
        if number >= least and time.monotonic() > end:
            break
        order = list(calls) if number % 2 == 0 else list(calls)[::-1]
        for name in order:
            samples[name].append(_sample_ms(calls[name], repeats[name]) * 1e6)
            time.sleep(_PAUSE_SECONDS)
    return {name: tuple(its) for name, its in samples.items()}


def _early() -> list[Executable]:
    """Make executables that time nothing before those that do, and return them; see `early_executables`."""
    _CUDA._sleep(0)  # loads the kernel, which a capture must not

    def enqueue() -> None:
        for _ in range(EARLY_KERNELS):
            _CUDA._sleep(0)

    stream = _CUDA.Stream()
    return early_executables(Graph(stream, enqueue), stream)


def _replay(arm: Callable[[], object]) -> Callable[[], object]:
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
