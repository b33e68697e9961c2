"""Time cuBLAS, winners and another engine's kernels side by side, cold, in CUDA graphs. Torch alone is the judge.

Usage: judge.py JOBS.json OUT.json SECONDS, where JOBS lists arms per problem: a kernel file, its kind and its launch.
An arm's graph launches it on operand sets that exceed the level-2 cache, each behind an ordinary kernel; rounds
alternate the arms.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from pathlib import Path

import torch
from cutlass import cute

L2_BYTES = 256e6
ROUNDS = 14
COPY_BYTES_PER_SECOND = 4.3e12  # of a copy within an H200
MOST_ERROR = 8e-3


def loaded(file: str):
    return cute.runtime.load_module(file, enable_tvm_ffi=True)["kernel"]


def arm(kind: str, file: str):
    """Return a function (x, weight, out) that launches the kernel on the current stream."""
    if kind == "cublas":
        return lambda x, w, out: torch.mm(x, w.t(), out=out)
    function = loaded(file)
    stream = torch._C._cuda_getCurrentRawStream
    return {
        "gemmtune": lambda x, w, out: function(x, w, out, out, stream(0)),
        "skinny": lambda x, w, out: function(x, w, out, out, stream(0)),
        "splitk": lambda x, w, out: function(x, w, out, stream(0), 1.0),
    }[kind]


def graph_of(function, xs, ws, outs, calls: int, between) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        function(xs[0], ws[0], outs[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(calls):
            between()
            function(xs[i % len(xs)], ws[i % len(ws)], outs[i % len(outs)])
    return graph


def judged(problem: str, arms: dict[str, tuple[str, str]]) -> dict:
    m, n, k = map(int, problem.split(":", maxsplit=1)[0].split("x"))
    nbytes = 2 * (m * k + n * k + m * n)
    sets = max(2, min(48, math.ceil(L2_BYTES / nbytes)))
    calls = max(sets, 8)
    xs = [torch.randn(m, k, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
    ws = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) / k**0.5 for _ in range(sets)]
    outs = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
    small = torch.zeros(1024, device="cuda")
    expected = xs[0].double() @ ws[0].double().t()
    graphs, errors = {"nothing": graph_of(lambda *_: None, xs, ws, outs, calls, lambda: small.add_(1))}, {}
    for name, (kind, file) in arms.items():
        try:
            function = arm(kind, file)
            outs[0].fill_(float("nan"))
            function(xs[0], ws[0], outs[0])
            torch.cuda.synchronize()
            errors[name] = float((outs[0].double() - expected).norm() / expected.norm())
            if not errors[name] < MOST_ERROR:
                print(f"{problem} {name}: error {errors[name]}", flush=True)
                continue
            graphs[name] = graph_of(function, xs, ws, outs, calls, lambda: small.add_(1))
        except Exception as error:
            print(f"{problem} {name}: {type(error).__name__}: {str(error).splitlines()[0][:160]}", flush=True)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    order = list(graphs)
    for number in range(ROUNDS):
        for name in order if number % 2 else order[::-1]:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graphs[name].replay()
            end.record()
            end.synchronize()
            if number >= 2:
                times[name].append(start.elapsed_time(end) * 1e3 / calls)
    idle = times.pop("nothing")
    own = {name: [t - i for t, i in zip(its, idle, strict=True)] for name, its in times.items()}
    us = {name: statistics.median(its) for name, its in own.items()}
    ratio = {
        name: statistics.median(c / t for c, t in zip(own["cublas"], its, strict=True)) for name, its in own.items()
    }
    share = {name: nbytes / (t * 1e-6) / COPY_BYTES_PER_SECOND for name, t in us.items()}
    return {"problem": problem, "us": us, "over_cublas": ratio, "share": share, "error": errors}


def main() -> None:
    jobs, out, seconds = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), float(sys.argv[3])
    began, rows = time.monotonic(), []
    for problem, arms in jobs.items():
        if time.monotonic() - began > seconds:
            print(f"judge: {len(jobs) - len(rows)} problems not timed within {seconds:.0f} s", flush=True)
            break
        rows.append(judged(problem, arms))
        out.write_text(json.dumps(rows, indent=0) + "\n")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
