"""One arm in a process of its own: arm.py NAME TABLE OUT, where TABLE is a folder of gemmtune's export.

Without a GPU it rehearses with a small block on the CPU, without Inductor: the numbers mean nothing then.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

# Set before torch is loaded: what an earlier run left on disk must not answer for this one.
CACHE = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{CACHE.name}/inductor"
os.environ["TRITON_CACHE_DIR"] = f"{CACHE.name}/triton"

import torch  # noqa: E402
import torch._dynamo  # noqa: E402
from block import LLAMA, SMALL, Block  # noqa: E402
from problems import FORUM, FORUM_SIZES  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

GPU = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)
SIZES = (1, 2, 16, 32, 64, 128, 256, 512, 1024, 2048, 3000, 4096) if GPU else (1, 2, 16, 48)
BENCHMARKS = re.compile(r"select_algorithm_|benchmarking\.|.*_bench$")  # Inductor's own counters
LAUNCHES = 15
LEAD = 40_000_000  # cycles, about 20 ms: the host is done with a step before the GPU begins with it
LEAD_OF_ONE = 1_000_000  # about 0.5 ms, for one layer
COLD_BYTES = 256 << 20


def main(name: str, table: Path, out: Path) -> None:
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64
    options: dict[str, bool] = {"max_autotune_gemm": True}
    if name.endswith("-table"):
        sys.path.insert(0, str(table))
        import gemmtune_inductor

        gemmtune_inductor.install()
        options = gemmtune_inductor.options()
    if GPU:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        CachingAutotuner.bench = apart(CachingAutotuner.bench)
    run = {"block": block, "layers": layers, "forum": forum}[name.split("-", maxsplit=1)[0]]
    rows = []
    for row in run(options):  # each is kept at once, for time may be over before the next
        rows.append(row)
        out.write_text(json.dumps({"arm": name, "torch": torch.__version__, "rows": rows}, indent=1) + "\n")


def block(options: dict[str, bool]) -> Iterator[dict]:
    """The decoder block, forward and backward, at every m: first call, and GPU time beside eager's."""
    model = Block(LLAMA if GPU else SMALL, DEVICE, DTYPE)
    compiled = compiled_by_inductor(model, options)
    for m in SIZES:
        x = torch.randn(m, model.sizes.hidden, device=DEVICE, dtype=DTYPE, requires_grad=True)
        gradient = torch.randn(m, model.sizes.hidden, device=DEVICE, dtype=DTYPE)
        if m > 1:
            torch._dynamo.mark_dynamic(x, 0)
        row = first_call(m, partial(step, compiled, x, gradient))
        row |= difference(compiled, model, x)
        row |= both_ways(compiled, model, x, gradient)
        yield row
        say(row, ("forward", "step"))


def layers(options: dict[str, bool]) -> Iterator[dict]:
    """Each linear layer alone, at every m: its product beside eager's, on operands that are in no cache."""
    sizes = LLAMA if GPU else SMALL
    for name, (inputs, outputs) in sizes.layers.items():
        torch._dynamo.reset()
        weight = torch.randn(outputs, inputs, device=DEVICE, dtype=DTYPE)
        function = compiled_by_inductor(torch.nn.functional.linear, options)
        for m in SIZES:
            copies = max(2, COLD_BYTES // (weight.nbytes + m * inputs * weight.itemsize)) if GPU else 2
            pairs = [(torch.randn(m, inputs, device=DEVICE, dtype=DTYPE), weight.clone()) for _ in range(copies)]
            if m > 1:
                for x, _ in pairs:
                    torch._dynamo.mark_dynamic(x, 0)
            row = {"layer": name, **first_call(m, partial(function, *pairs[0]))}
            turns = Turns(pairs)
            row |= beside(
                {"forward": (partial(turns, function), partial(turns, torch.nn.functional.linear))}, LEAD_OF_ONE
            )
            yield row
            say(row, ("forward",))


def forum(options: dict[str, bool]) -> Iterator[dict]:
    """The forum's program as it stands: one layer with a bias and gradients, one m after another, nothing marked."""
    inputs, outputs = FORUM
    layer = torch.nn.Linear(inputs, outputs, device=DEVICE, dtype=DTYPE)
    compiled = compiled_by_inductor(layer, options)
    for m in FORUM_SIZES:
        x = torch.randn(m, inputs, device=DEVICE, dtype=DTYPE)
        gradient = torch.randn(m, outputs, device=DEVICE, dtype=DTYPE)
        row = first_call(m, partial(step, compiled, x, gradient))
        row |= both_ways(compiled, layer, x, gradient)
        yield row
        say(row, ("forward", "step"))


def compiled_by_inductor(model: Callable, options: dict[str, bool]) -> Callable:
    """By Inductor; a rehearsal on a CPU does without its C++ compiler."""
    return torch.compile(model, options=options) if GPU else torch.compile(model, backend="aot_eager")


class Turns:
    """One pair of operands after the other, so that none is in the cache when its turn comes."""

    def __init__(self, pairs: list) -> None:
        self._pairs, self._next = pairs, 0

    def __call__(self, function: Callable) -> None:
        self._next = (self._next + 1) % len(self._pairs)
        function(*self._pairs[self._next])


def apart(bench: Callable) -> Callable:
    """Counts apart what Inductor times of its pointwise kernels and reductions: no table concerns them."""

    def counted(*arguments: object, **settings: object) -> object:
        before = Counter(counters["inductor"])
        answer = bench(*arguments, **settings)
        counters["inductor"] = before
        counters["other"]["timed"] += 1
        return answer

    return counted


def benchmarks() -> dict[str, int]:
    """What Inductor benchmarked for products since the counters were cleared, by its own names."""
    return {name: count for name, count in counters["inductor"].items() if BENCHMARKS.match(name)}


def both_ways(compiled: Callable, eager: Callable, x: torch.Tensor, gradient: torch.Tensor) -> dict:
    calls = {
        "forward": (partial(forward, compiled, x), partial(forward, eager, x)),
        "step": (partial(step, compiled, x, gradient), partial(step, eager, x, gradient)),
    }
    return beside(calls, LEAD)


def forward(model: Callable, x: torch.Tensor) -> None:
    with torch.no_grad():
        model(x)


def step(model: Callable, x: torch.Tensor, gradient: torch.Tensor) -> None:
    model(x).backward(gradient)


def first_call(m: int, call: Callable[[], object]) -> dict:
    """Seconds of the first call at this m, the graphs it compiled, and what Inductor benchmarked for it."""
    counters.clear()
    start = time.perf_counter()
    call()
    wait()
    return {
        "m": m,
        "first_seconds": time.perf_counter() - start,
        "graphs": counters["stats"]["unique_graphs"],
        "benchmarks": benchmarks(),
        "other_kernels_timed": counters["other"]["timed"],
    }


def difference(compiled: Callable, model: Callable, x: torch.Tensor) -> dict:
    """How far the forward pass alone is from eager's, and what was benchmarked for it: it has a graph of its own."""
    counters.clear()
    with torch.no_grad():
        found, expected = compiled(x).double(), model(x).double()
    error = float((found - expected).norm() / expected.norm())
    return {"error": error, "alone_benchmarks": sum(benchmarks().values())}


def beside(calls: dict[str, tuple[Callable, Callable]], lead: int) -> dict:
    """Median GPU time of each call and of eager's, in turns, in milliseconds."""
    row: dict[str, float] = {}
    for name, (ours, eager) in calls.items():
        counters.clear()
        samples: tuple[list[float], list[float]] = ([], [])
        for turn in range(LAUNCHES + 3):
            for call, kept in zip((ours, eager), samples, strict=True):
                elapsed = timed(call, lead)
                if turn >= 3:
                    kept.append(elapsed)
        row[f"{name}_ms"], row[f"{name}_eager_ms"] = median(samples[0]), median(samples[1])
        row[f"{name}_benchmarks"] = sum(benchmarks().values())
    return row


def timed(call: Callable[[], object], lead: int) -> float:
    if not GPU:
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e3
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(lead)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def wait() -> None:
    if GPU:
        torch.cuda.synchronize()


def say(row: dict, timed_as: tuple[str, ...]) -> None:
    times = "  ".join(f"{name} {row[f'{name}_ms']:.4f} ms, eager {row[f'{name}_eager_ms']:.4f}" for name in timed_as)
    counted = sum(row["benchmarks"].values())
    counted += sum(count for name, count in row.items() if name.endswith("_benchmarks"))
    print(
        f"{row.get('layer', ''):8} m={row['m']:<5} first {row['first_seconds']:6.2f} s, {row['graphs']} graphs, "
        f"{counted} benchmarks, {row['other_kernels_timed']} other kernels timed  {times}",
        flush=True,
    )


if __name__ == "__main__":
    with CACHE:
        main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
