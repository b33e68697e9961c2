"""Configs of the kernels between the products, timed with cold operands. Imports torch.

A kernel that first runs chooses from the longer list of Inductor's mode max-autotune, and unless it is short it goes on
from the winner to its neighbours. Both see times with an empty L2; a final decides whether what they end with leads.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch._inductor import config
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.hints import HeuristicType
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

from gemmtune.engine.consumers.inductor.bench.model_bench import paired_ratio
from gemmtune.engine.consumers.inductor.bench.running import Prepared, cold, first_call, quietly
from gemmtune.engine.consumers.inductor.loader import loader
from gemmtune.engine.consumers.inductor.loader.generated import is_config, source_key
from gemmtune.engine.measure.operands.operand_sets import COLD_BYTES_PER_L2
from gemmtune.engine.measure.timing.helper_kernels import HelperKernels
from gemmtune.engine.measure.timing.timing_context import EventPair
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, GeneratedRow
from gemmtune.engine.statistics import estimate
from gemmtune.engine.toolchain.versions import triton_toolchain

Call = Callable[[], object]
Timer = Callable[[Sequence[Call], Call], list[list[float]]]
"""Function that times calls in turn, each behind an untimed call of the last argument, and returns samples, ns."""
_LAUNCHES = 30
_EVICTIONS, _HOST_TIMES = 2, 3  # evictions, at least, and the host's times of a call that they last
_LEAST_NS = 32.0
"""One tick of event times: no kernel takes less."""
_PROTOCOL = "events-cold-l2"
_SPACE = "inductor"
_APART = ("coordinate_descent_search_radius",)
"""Setting with its own value, so that an arm with the table does not run what was compiled for the tuning."""
_LONG_NS = 20_000.0
"""Least time of a kernel that goes on to neighbours; that of a shorter one depends on what the L2 holds."""
_UNLOADERS = ("_close_static_launcher", "_release_static_launchers_except")  # of losers, which finals launch again
_LOADED: dict[str, Any] = dict.fromkeys(_UNLOADERS, lambda *_: None)
_PLAIN = (HeuristicType.POINTWISE, HeuristicType.REDUCTION, HeuristicType.PERSISTENT_REDUCTION)


def generated_rows(prepared: Prepared, loader_file: Path | None, *, binaries: bool) -> tuple[GeneratedRow, ...]:
    """Run a model once with a table, and return a row per kernel of several configs that it has between its products.

    A kernel that the table has a row for keeps it.
    """
    tuning = KernelTuning(ColdTimer(), triton_toolchain("torch").text)
    with cold(), tuning.chosen():
        loader.install(loader_file, binaries=binaries)
        try:
            options = loader.options() | {name: getattr(config, name) for name in _APART}
            quietly(partial(first_call, prepared.arm(torch.compile(prepared.call, options=options))))
        finally:
            loader.uninstall()
    return tuple(tuning.rows.values())


class ColdTimer:
    """Timer of launches that find none of their operands in the L2."""

    def __init__(self) -> None:
        """Measure what events cost and how long the L2 takes to empty, on this thread's GPU."""
        device = torch.device("cuda", torch.cuda.current_device())
        l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        self._helpers = HelperKernels(COLD_BYTES_PER_L2 * l2_bytes, device)
        self._cost_ns, self._eviction_ns = 0.0, math.inf
        self._cost_ns = estimate(self([self._helpers.empty])[0]).time_ns
        self._eviction_ns = estimate(self([self._helpers.evict])[0]).time_ns

    def __call__(self, calls: Sequence[Call], prepare: Call = lambda: None) -> list[list[float]]:
        """Return the times of each call, ns, less the cost of events; all calls run in turn, first twice untimed.

        `prepare` makes the operands of the next call before the L2 is emptied. The kernels that empty it take longer
        than the host takes to enqueue the slowest call behind them.
        """
        events = [[EventPair(external=False) for _ in calls] for _ in range(_LAUNCHES)]
        host_ns = []
        for call in (*calls, *calls):
            prepare()
            began = time.perf_counter_ns()
            call()
            host_ns.append(time.perf_counter_ns() - began)
        evictions = max(_EVICTIONS, math.ceil(_HOST_TIMES * max(host_ns[len(calls) :]) / self._eviction_ns))
        stream = torch.cuda.current_stream()
        for pairs in events:
            for call, pair in zip(calls, pairs, strict=True):
                prepare()
                for _ in range(evictions):
                    self._helpers.evict()
                pair.around(call, stream)  # type: ignore[arg-type] # what a call returns is not read
        torch.cuda.synchronize()
        times = [[max(pair.elapsed_ns() - self._cost_ns, _LEAST_NS) for pair in pairs] for pairs in events]
        return [list(its) for its in zip(*times, strict=True)]


class KernelTuning:
    """Rows of the kernels that Inductor chooses a config for."""

    def __init__(self, timer: Timer, toolchain: str) -> None:
        """Begin without a row; `toolchain` is the text of the versions that compile the kernels."""
        self._timer, self._toolchain = timer, toolchain
        self._last: Call | None = None
        self.rows: dict[str, GeneratedRow] = {}

    @contextlib.contextmanager
    def chosen(self) -> Iterator[None]:
        """Let Inductor choose by the timer, and keep what every kernel ends with."""
        kernels: Any = CachingAutotuner  # has no types
        race, walk = kernels.autotune_to_one_config, kernels.coordinate_descent_tuning
        generate = TritonKernel.codegen_kernel

        def offered(*args: Any, **named: Any) -> str:  # noqa: ANN401 (torch's)
            with config.patch(max_autotune_pointwise=True, coordinate_descent_tuning=True):
                return generate(*args, **named)

        def raced(kernel: Any, *args: object, **named: object) -> None:  # noqa: ANN401 (has no types)
            first = kernel.launchers[0]
            race(kernel, *args, **named)
            kernel.launchers = [self._settled(kernel, first, kernel.launchers[0], args, named)]

        def walked(kernel: Any, launcher: Any, *args: object, **named: object) -> object:  # noqa: ANN401
            found = launcher
            if kernel.bench(launcher, *args, **named) * 1e6 >= _LONG_NS:
                found = self._settled(kernel, launcher, walk(kernel, launcher, *args, **named), args, named)
            found.config.found_by_coordesc = True
            return found

        with (
            patch.object(TritonKernel, "codegen_kernel", offered),
            patch.object(triton_heuristics, "benchmarker", self),
            patch.multiple(kernels, create=True, **_LOADED),
            patch.object(kernels, "autotune_to_one_config", raced),
            patch.object(kernels, "coordinate_descent_tuning", walked),
        ):
            yield

    def benchmark(self, fn: Call, **_: object) -> float:
        """Return the time of a launch, ms, in the place of Inductor's benchmarker; infinite for one that fails."""
        try:
            samples = self._timed([fn])[0]
        except RuntimeError as error:
            if "invalid configuration" not in str(error).lower():
                raise
            return float("inf")
        self._last = fn
        return estimate(samples).time_ns / 1e6

    def _timed(self, calls: Sequence[Call]) -> list[list[float]]:
        """Return the samples of calls of one kernel, ns; Inductor copies what it changes before the L2 is emptied."""
        kernels: Any = CachingAutotuner
        copy, restore = kernels.maybe_clone_args, kernels.restore_args_from_cpu
        copying, copies, restoring = list[Call](), list[object](), dict[int, Call]()

        def copied(*args: object, **named: object) -> object:
            copying[:] = [partial(copy, *args, **named)]
            return copies.pop() if copies else copying[0]()

        def restored(*args: object) -> None:
            restoring[id(args[-1])] = partial(restore, *args)  # calls may differ in what is on the CPU

        def prepare() -> None:
            for each in restoring.values():
                each()
            copies[:] = [each() for each in copying]

        with patch.multiple(kernels, maybe_clone_args=copied, restore_args_from_cpu=restored):
            samples = self._timer(calls, prepare)
            prepare()
        return samples

    def _settled(self, kernel: Any, start: Any, found: Any, args: Sequence[object], named: dict[str, object]) -> Any:  # noqa: ANN401
        """Return the launcher to run, `found` if it leads beyond the noise, else `start`; keep its row."""
        is_plain = kernel.heuristic_type in _PLAIN and kernel.size_hints and not kernel.custom_kernel
        if not is_plain or not is_config(_params(found.config)):
            return found
        calls: dict[Any, Call] = {}
        for launcher in (start, found):
            self._last = None
            kernel.bench(launcher, *args, **named)
            if self._last is not None:  # it spills no registers, and runs
                calls[launcher] = self._last
        if found not in calls:
            return found
        samples: dict[Any, list[float]] = dict(zip(calls, self._timed([*calls.values()]), strict=True))
        default_ns = samples.get(start, samples[found])
        if start in calls and paired_ratio(default_ns, samples[found]).low <= 1:
            found = start
        self._keep(kernel, found, samples[found], estimate(default_ns).time_ns)
        return found

    def _keep(self, kernel: Any, launcher: Any, samples_ns: Sequence[float], default_ns: float) -> None:  # noqa: ANN401
        timed, config = estimate(samples_ns), Config(_params(launcher.config))
        times = timed.time_ns, timed.low_ns, timed.high_ns
        choice = Choice(_SPACE, config, *times, len(samples_ns), Evidence.MEASURED, self._toolchain, _PROTOCOL)
        source = source_key(str(kernel.size_hints), str(kernel.triton_meta["signature"]), kernel.fn.src)
        raced = self.rows.get(source)
        self.rows[source] = GeneratedRow(source, kernel.fn.__name__, choice, raced.default_ns if raced else default_ns)


def _params(config: Any) -> dict[str, int]:  # noqa: ANN401 (Triton's, without types)
    return {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
