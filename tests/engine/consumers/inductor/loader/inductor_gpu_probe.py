"""Probe for its own process on a GPU: forward and backward of x @ w.t() with the table in the given folder.

Prints one JSON object: Inductor's benchmark counters, the generated code, the errors against fp64, and code and error
on each other equal GPU, which runs the product while the first one is current.
"""

from __future__ import annotations

import json
import re
import sys

import torch
import torch._inductor.config
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code


def error(found, reference):
    return float((found.double() - reference).norm() / reference.norm())


def main(export):
    sys.path.insert(0, export)
    import gemmtune_inductor

    gemmtune_inductor.install()
    torch.manual_seed(0)
    x = torch.randn(256, 512, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(384, 512, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    g = torch.randn(256, 384, device="cuda", dtype=torch.bfloat16)

    @torch.compile(dynamic=False, options=gemmtune_inductor.options())
    def product(x, w):
        return x @ w.t()

    def step():
        y = product(x, w)
        y.backward(g)
        return y

    counters.clear()
    y, codes = run_and_get_code(step)
    torch.cuda.synchronize()
    elsewhere = []
    for number in range(1, torch.cuda.device_count()):
        if torch.cuda.get_device_name(number) == torch.cuda.get_device_name(0):
            there = [t.detach().to(f"cuda:{number}") for t in (x, w)]
            y_there, [code] = run_and_get_code(product, *there)
            reference = there[0].double() @ there[1].double().t()
            elsewhere.append({"error": error(y_there, reference), "code": code})
    report = {
        "benchmarks": {
            name: count
            for name, count in counters["inductor"].items()
            if re.match(r"select_algorithm_|benchmarking\.|.*_bench$", name)
        },
        "code": "\n".join(codes),
        "errors": [
            error(y, x.double() @ w.double().t()),
            error(x.grad, g.double() @ w.double()),
            error(w.grad, g.double().t() @ x.double()),
        ],
        "elsewhere": elsewhere,
    }
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    with torch._inductor.config.patch(fx_graph_cache=False):
        main(sys.argv[1])
