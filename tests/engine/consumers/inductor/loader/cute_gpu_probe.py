"""Probe for its own process on a GPU: a table of CuTe rows in torch.compile, in every way that production runs it.

Arguments: the folder of an export, `first` or `cached`. Prints one JSON object. The second process shares the caches of
the first one, and compiles nothing.
"""

from __future__ import annotations

import json
import re
import sys
import threading

import torch
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code

K, N = 4096, 96


def error(found, a, b, bias=None):
    return distance(found, a.double() @ b.double() + (0 if bias is None else bias.double()))


def distance(found, reference):
    return float((found.double() - reference).norm() / reference.norm())


def operand(*shape, device="cuda"):
    return torch.randn(*shape, device=device, dtype=torch.bfloat16)


def main(export, which):
    sys.path.insert(0, export)
    import gemmtune_inductor

    gemmtune_inductor.install()
    options = gemmtune_inductor.options()
    torch.manual_seed(0)
    w, bias = operand(N, K), operand(N)
    report = {"errors": {}, "elsewhere": []}
    errors = report["errors"]

    @torch.compile(dynamic=False, options=options)
    def mm(x, w):
        return x @ w.t()

    x1 = operand(1, K)
    counters.clear()
    y, codes = run_and_get_code(mm, x1, w)
    errors["mm"] = error(y, x1, w.t())
    report["code"] = "\n".join(codes)
    report["use"] = gemmtune_inductor.report().to_dict()
    if which == "cached":
        report["hits"] = counters["inductor"]["fxgraph_cache_hit"]
        json.dump(report, sys.stdout)
        return

    @torch.compile(dynamic=False, options=options)
    def addmm(x, w, bias):
        return torch.nn.functional.linear(x, w, bias)

    x4000 = operand(4000, K)
    errors["clusters"] = error(mm(x4000, w), x4000, w.t())

    x8 = operand(8, K)
    errors["addmm"] = error(addmm(x8, w, bias), x8, w.t(), bias)

    x = operand(8, N).requires_grad_()
    right = operand(N, K)  # the gradient of x is g @ right.t(), compiled in autograd's thread
    g = operand(8, K)

    @torch.compile(dynamic=False, options=options)
    def backward(x, right):
        return x @ right

    backward(x, right).backward(g)
    errors["backward"] = error(x.grad, g, right.t())

    # A layer's weight keeps its sizes, and m alone is dynamic. Of an operand, n and k would be dynamic, too.
    layer = torch.nn.Linear(K, N, bias=False, device="cuda", dtype=torch.bfloat16).requires_grad_(False)
    ranged = torch.compile(layer, dynamic=True, options=options)
    for m in (16, 2, 5, 300):
        xm = operand(m, K)
        errors[f"dynamic {m}"] = error(ranged(xm), xm, layer.weight.t())

    @torch.compile(dynamic=False, options=options)
    def silu_mul(x, w, r):
        return torch.nn.functional.silu(x @ w.t()) * r

    @torch.compile(dynamic=False, options=options)
    def gelu(x, w, bias):
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, bias).float())

    small = w / 64  # a product near 1, as before an activation in a model
    r, packed = operand(8, N), operand(8 * N + 8)
    for name, matrix in (("epilogue", r), ("unaligned epilogue", packed[1 : 1 + 8 * N].view(8, N))):
        product = x8.double() @ small.t().double()
        errors[name] = distance(silu_mul(x8, small, matrix), torch.nn.functional.silu(product) * matrix.double())
    product = x1.double() @ small.t().double() + bias.double()
    errors["bias, gelu, fp32"] = distance(gelu(x1, small, bias), torch.nn.functional.gelu(product))

    class Residual(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.scale = layer, torch.nn.Parameter(operand(N), requires_grad=False)

        def forward(self, x, residual):
            return (self.layer(x) + residual) * self.scale

    model = Residual()
    compiled = torch.compile(model, dynamic=True, options=options)
    for m in (16, 5):
        xm, residual = operand(m, K), operand(m, N)
        product = xm.double() @ layer.weight.t().double()
        expected = (product + residual.double()) * model.scale.double()
        errors[f"dynamic epilogue {m}"] = distance(compiled(xm, residual), expected)

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    static = operand(8, K)
    with torch.cuda.stream(stream):
        addmm(static, w, bias)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        out = addmm(static, w, bias)
    static.copy_(x8)
    graph.replay()
    torch.cuda.synchronize()
    errors["graph"] = error(out, x8, w.t(), bias)

    reduced = torch.compile(lambda x, w: x @ w.t(), dynamic=False, options=options | {"triton.cudagraphs": True})
    for _ in range(3):
        y = reduced(x1, w).clone()
    errors["cudagraph trees"] = error(y, x1, w.t())

    packed = operand(8 * K + 8)
    unaligned = packed[1 : 1 + 8 * K].view(8, K)
    errors["unaligned"] = error(addmm(unaligned, w, bias), unaligned, w.t(), bias)

    found = []

    def serve(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            xs = operand(8, K)
            for _ in range(50):
                y = addmm(xs, w, bias)
            torch.cuda.current_stream().synchronize()
            found.append(error(y, xs, w.t(), bias))

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors["threads"] = max(found) if len(found) == 4 else 1.0

    for number in range(1, torch.cuda.device_count()):
        if torch.cuda.get_device_name(number) == torch.cuda.get_device_name(0):
            there = [operand(8, K, device=f"cuda:{number}"), *(t.to(f"cuda:{number}") for t in (w, bias))]
            for current in (0, number):
                with torch.cuda.device(current):
                    y, codes = run_and_get_code(addmm, *there)
                report["elsewhere"] += codes
                errors[f"GPU {number}, current {current}"] = error(y, there[0], there[1].t(), there[2])

    report["uses"] = gemmtune_inductor.report().to_dict()
    report["benchmarks"] = {
        name: count
        for name, count in counters["inductor"].items()
        if re.match(r"select_algorithm_|benchmarking\.|.*_bench$", name)
    }
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
