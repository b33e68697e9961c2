"""Run one arm in a process of its own. Usage: arm.py NAME TABLE OUT, with TABLE a folder of gemmtune's export.

Without a GPU the script rehearses with a small block on the CPU, without Inductor, and its numbers mean nothing.
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
from importlib.util import find_spec
from pathlib import Path

# Set before torch is loaded: what an earlier run left on disk must not answer for this one.
CACHE = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{CACHE.name}/inductor"
os.environ["TRITON_CACHE_DIR"] = f"{CACHE.name}/triton"
# Inductor sets this itself, but after Triton has put the release of its own ptxas into the keys of its cache: then its
# pool of processes compiles under other keys, and each benchmark compiles once more what the pool had compiled.
PTXAS = Path(find_spec("torch").origin).with_name("bin") / "ptxas"
if PTXAS.is_file():
    os.environ.setdefault("TRITON_PTXAS_PATH", str(PTXAS))

import torch  # noqa: E402
import torch._dynamo  # noqa: E402
from block import LLAMA, SMALL, Block  # noqa: E402
from paired import GPU, beside  # noqa: E402
from problems import BLOCK_SIZES, FORUM, FORUM_SIZES, LAYER_SIZES, REHEARSED  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

DEVICE, DTYPE = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)
BENCHMARKS = re.compile(r"select_algorithm_|benchmarking\.|.*_bench$")  # Inductor's own counters
PAIRS, PAIRS_OF_LAYER = 16, 128
LEAD = 40_000_000  # cycles, about 20 ms: the host is done with a step before the GPU begins with it
LEAD_OF_ONE = 1_000_000  # about 0.5 ms, for one layer
COLD_BYTES = 256 << 20  # several times the L2 of an H200


def main(name: str, table: Path, out: Path) -> None:
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64
    options: dict[str, bool] = {"max_autotune_gemm": True}
    if not name.endswith("-default"):
        sys.path.insert(0, str(table))
        import gemmtune_inductor

        gemmtune_inductor.install()
        options = gemmtune_inductor.options()
    if GPU:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        CachingAutotuner.bench = apart(CachingAutotuner.bench)
    if name.endswith("-warm"):
        torch.compiler.load_cache_artifacts(out.with_name("warm.bin").read_bytes())
    run = {"block": block, "layers": layers, "forum": forum, "serving": serve}[name.split("-", maxsplit=1)[0]]
    rows = []
    for row in run(options):  # each is kept at once, for time may be over before the next
        rows.append(row)
        out.write_text(json.dumps({"arm": name, "torch": torch.__version__, "rows": rows}, indent=1) + "\n")


def block(options: dict[str, bool]) -> Iterator[dict]:
    """Run the decoder block forward and backward at every m: first call, and GPU time relative to eager's."""
    model = Block(LLAMA if GPU else SMALL, DEVICE, DTYPE)
    compiled = compiled_by_inductor(model, options)
    for m in BLOCK_SIZES if GPU else REHEARSED:
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
    """Run each linear layer alone at every m, relative to eager's product, on operands outside every cache."""
    sizes = LLAMA if GPU else SMALL
    for name, (inputs, outputs) in sizes.layers.items():
        torch._dynamo.reset()
        weight = torch.randn(outputs, inputs, device=DEVICE, dtype=DTYPE)
        function = compiled_by_inductor(torch.nn.functional.linear, options)
        for m in LAYER_SIZES if GPU else REHEARSED:
            copies = max(4, COLD_BYTES // (weight.nbytes + m * inputs * weight.itemsize)) if GPU else 4
            pairs = [(torch.randn(m, inputs, device=DEVICE, dtype=DTYPE), weight.clone()) for _ in range(copies)]
            if m > 1:
                for x, _ in pairs:
                    torch._dynamo.mark_dynamic(x, 0)
            row = {"layer": name, **first_call(m, partial(function, *pairs[0]))}
            ours, eager = partial(on, function, pairs), partial(on, torch.nn.functional.linear, pairs)
            row |= compared("forward", ours, eager, copies, PAIRS_OF_LAYER, LEAD_OF_ONE)
            yield row
            say(row, ("forward",))


def forum(options: dict[str, bool]) -> Iterator[dict]:
    """Run the forum's program unchanged: one layer with a bias and gradients, one m after another, without marks."""
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


def serve(_options: dict[str, bool]) -> Iterator[dict]:
    """Run the block of `serving.py` forward at every m: first call, and GPU time relative to eager's."""
    import serving

    for m in BLOCK_SIZES:
        row = first_call(m, partial(serving.forward, m))
        row["compiled"] = counters["inductor"]["fxgraph_cache_miss"]
        x = serving.tokens(m)
        ours, eager = (partial(alone, partial(forward, model, x)) for model in (serving.compiled(), serving.model()))
        row |= compared("forward", ours, eager, 1, PAIRS, LEAD)
        yield row
        say(row, ("forward",))


def compiled_by_inductor(model: Callable, options: dict[str, bool]) -> Callable:
    """Compile with Inductor, or in a rehearsal on a CPU without its C++ compiler."""
    return torch.compile(model, options=options) if GPU else torch.compile(model, backend="aot_eager")


def on(function: Callable, operands: list, number: int) -> None:
    function(*operands[number])


def apart(bench: Callable) -> Callable:
    """Count separately what Inductor times of pointwise kernels and reductions, which no table concerns."""

    def counted(*arguments: object, **settings: object) -> object:
        before = Counter(counters["inductor"])
        answer = bench(*arguments, **settings)
        counters["inductor"] = before
        counters["other"]["timed"] += 1
        return answer

    return counted


def benchmarks() -> dict[str, int]:
    """Return the benchmarks of products since the counters were cleared, by Inductor's names."""
    return {name: count for name, count in counters["inductor"].items() if BENCHMARKS.match(name)}


def both_ways(compiled: Callable, eager: Callable, x: torch.Tensor, gradient: torch.Tensor) -> dict:
    row = {}
    for name, call, operands in (("forward", forward, (x,)), ("step", step, (x, gradient))):
        ours, others = (partial(alone, partial(call, model, *operands)) for model in (compiled, eager))
        row |= compared(name, ours, others, 1, PAIRS, LEAD)
    return row


def alone(call: Callable, _number: int) -> None:
    """Time with one set of operands, because a block reads more than the cache holds."""
    call()


def forward(model: Callable, x: torch.Tensor) -> None:
    with torch.no_grad():
        model(x)


def step(model: Callable, x: torch.Tensor, gradient: torch.Tensor) -> None:
    model(x).backward(gradient)


def first_call(m: int, call: Callable[[], object]) -> dict:
    """Return the seconds of the first call at this m, its compiled graphs, and its benchmarks."""
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
    """Return the error of the forward pass against eager's, and its benchmarks: it has a graph of its own."""
    counters.clear()
    with torch.no_grad():
        found, expected = compiled(x).double(), model(x).double()
    error = float((found - expected).norm() / expected.norm())
    return {"error": error, "alone_benchmarks": sum(benchmarks().values())}


def compared(name: str, ours: Callable, eager: Callable, sets: int, pairs: int, lead: int) -> dict:
    """Return both times in ms, their ratio with its interval, and Inductor's benchmarks meanwhile."""
    counters.clear()
    our_ms, eager_ms, ratio = beside(ours, eager, sets=sets, pairs=pairs, lead=lead)
    return {
        f"{name}_ms": our_ms,
        f"{name}_eager_ms": eager_ms,
        f"{name}_over_eager": ratio,
        f"{name}_benchmarks": sum(benchmarks().values()),
    }


def wait() -> None:
    if GPU:
        torch.cuda.synchronize()


def say(row: dict, timed_as: tuple[str, ...]) -> None:
    times = "  ".join(
        f"{name} {row[f'{name}_ms']:.4f} ms, {ratio:.3f} ({low:.3f} to {high:.3f}) of eager's"
        for name in timed_as
        for ratio, low, high in (row[f"{name}_over_eager"],)
    )
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
