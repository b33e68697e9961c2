"""Time what production runs, side by side: eager, torch.compile with the exported table, and another engine's kernels.

Usage: judge.py JOBS.json TABLE_FOLDER OUT.json SECONDS, where JOBS lists another engine's kernel files per problem.
Torch alone is the judge: each arm is captured in a CUDA graph of launches on operand sets that exceed the level-2
cache, and rounds alternate the arms.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
import time
from pathlib import Path

import torch
from cutlass import cute
from torch._dynamo.utils import counters

L2_BYTES = 200e6
ROUNDS, WARM_UP = 12, 2
COPY_BYTES_PER_SECOND = 4.3e12  # of a copy within an H200
MOST_ERROR = 8e-3


def other_engine(kind: str, file: str):
    """Return a function (x, weight) that launches the kernel on the current stream."""
    function = cute.runtime.load_module(file, enable_tvm_ffi=True)["kernel"]

    def skinny(x, w):
        out = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype, device=x.device)
        function(x, w, out, out, torch._C._cuda_getCurrentRawStream(0))
        return out

    def splitk(x, w):
        out = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype, device=x.device)
        function(x, w, out, torch._C._cuda_getCurrentRawStream(0), 1.0)
        return out

    return {"skinny": skinny, "splitk": splitk}[kind]


def graph_of(function, xs, ws, calls: int):
    """Return a graph of launches on all operand sets, with its outputs."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(2):
            function(xs[i], ws[i])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        outs = [function(xs[i % len(xs)], ws[i % len(ws)]) for i in range(calls)]
    return graph, outs


def judged(problem: str, others: dict[str, tuple[str, str]], table) -> dict:
    """Time the arms of one problem."""
    m, n, k = map(int, problem.split(":", maxsplit=1)[0].split("x"))
    nbytes = 2 * (m * k + n * k + m * n)
    sets = max(2, min(48, math.ceil(L2_BYTES / nbytes)))
    calls = max(sets, 8)
    xs = [torch.randn(m, k, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
    ws = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) / k**0.5 for _ in range(sets)]
    expected = xs[0].double() @ ws[0].double().t()
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(lambda x, w: x @ w.t(), options=table.options(), fullgraph=True)
    functions = {"eager": lambda x, w: x @ w.t(), "table": compiled}
    for name, (kind, file) in others.items():
        functions[name] = other_engine(kind, file)
    graphs, errors = {}, {}
    for name, function in functions.items():
        try:
            out = function(xs[0], ws[0])
            torch.cuda.synchronize()
            errors[name] = float((out.double() - expected).norm() / expected.norm())
            if errors[name] < MOST_ERROR:
                graphs[name] = graph_of(function, xs, ws, calls)
            else:
                print(f"{problem} {name}: error {errors[name]}", flush=True)
        except Exception as error:
            text = next(iter(str(error).splitlines()), "")
            print(f"{problem} {name}: {type(error).__name__}: {text[:160]}", flush=True)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    order = list(graphs)
    for number in range(ROUNDS):
        for name in order if number % 2 else order[::-1]:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            graphs[name][0].replay()  # else the host's launch of the timed one would count
            start.record()
            graphs[name][0].replay()
            end.record()
            end.synchronize()
            if number >= WARM_UP:
                times[name].append(start.elapsed_time(end) * 1e3 / calls)
    us = {name: statistics.median(its) for name, its in times.items()}
    eager = times["eager"]
    over = {name: statistics.median(e / t for e, t in zip(eager, its, strict=True)) for name, its in times.items()}
    benchmarks = sum(
        v for group in counters.values() for key, v in group.items() if re.match(r"select_algorithm_num|bench", key)
    )
    return {
        "problem": problem,
        "us": us,
        "over_cublas": over,
        "share": {name: nbytes / (t * 1e-6) / COPY_BYTES_PER_SECOND for name, t in us.items()},
        "error": errors,
        "benchmarks": benchmarks,
    }


def main() -> None:
    """Judge the problems in turn, and write after each."""
    jobs, folder, out = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], Path(sys.argv[3])
    seconds, began, rows = float(sys.argv[4]), time.monotonic(), []
    sys.path.insert(0, folder)
    import gemmtune_inductor as table

    torch._dynamo.config.recompile_limit = 1000
    table.install()
    for problem, others in jobs.items():
        if time.monotonic() - began > seconds:
            print(f"judge: {len(jobs) - len(rows)} problems not timed within {seconds:.0f} s", flush=True)
            break
        rows.append(judged(problem, others, table))
        out.write_text(json.dumps(rows, indent=0) + "\n")
        torch.cuda.empty_cache()
    print(str(table.report()).splitlines()[0], flush=True)


if __name__ == "__main__":
    main()
