"""Probe for its own process on a GPU: grouped products by a table of binaries in torch.compile.

Arguments: the folder of an export, `first` or `cached`. Prints one JSON object. The second process shares the caches of
the first one, and compiles nothing.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code

GROUPS, N, K, ROWS = 4, 384, 256, 1024
SPREADS = {"even": (256, 512, 768, 1024), "skewed": (0, 1000, 1000, 1024), "one": (0, 0, 1024, 1024)}


def rows(x, experts, ends):
    return torch._grouped_mm(x, experts.transpose(1, 2), offs=ends)


def scaled(x, experts, of_x, of_experts, ends):
    return torch._scaled_grouped_mm(x, experts.transpose(1, 2), of_x, of_experts, offs=ends, use_fast_accum=True)


def second(x, experts, of_x, of_experts, ends):
    functional: Any = torch.nn.functional  # without a stub
    kind = functional.ScalingType.RowWise
    sides, more = (of_x, kind, of_experts, kind), {"offs": ends, "use_fast_accum": True}
    return functional.scaled_grouped_mm(x, experts.transpose(1, 2), *sides, **more)


def quantised(real):
    """Return values of 8 bits with a scale per row of the last two dimensions, and what they stand for."""
    scale = real.detach().float().abs().amax(-1, keepdim=True) / 448
    values = (real.detach() / scale).to(torch.float8_e4m3fn)
    return values, scale[..., 0], (values.double() * scale).detach()


def layers(x, experts, ends):
    return rows(x, experts, ends) + rows(torch.nn.functional.silu(x), experts, ends)


def reference(x, experts, ends):
    firsts = [0, *ends[:-1]]
    parts = [x[a:b].double() @ w.double().t() for a, b, w in zip(firsts, ends, experts, strict=True)]
    return torch.cat(parts)


def error(found, expected):
    return float((found.double() - expected).norm() / expected.norm())


def made(*shape, grad=False):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).requires_grad_(grad)


def main(export, which):
    sys.path.insert(0, export)
    import gemmtune_inductor

    gemmtune_inductor.install()
    options = gemmtune_inductor.options()
    torch.manual_seed(0)
    report: dict = {"errors": {}}
    errors = report["errors"]
    x, experts = made(ROWS, K, grad=True), made(GROUPS, N, K, grad=True)
    ends = {name: torch.tensor(each, dtype=torch.int32, device="cuda") for name, each in SPREADS.items()}
    compiled = torch.compile(rows, dynamic=False, options=options)
    counters.clear()
    out, codes = run_and_get_code(compiled, x, experts, ends["even"])
    report["code"] = "\n".join(codes)
    report["hits"] = counters["inductor"]["fxgraph_cache_hit"]
    for name, spread in SPREADS.items():
        out = compiled(x, experts, ends[name])
        errors[name] = error(out, reference(x, experts, spread))
        gradient = made(ROWS, N)
        x.grad = experts.grad = None
        out.backward(gradient)
        plain, weights = (each.detach().double().requires_grad_() for each in (x, experts))
        reference(plain, weights, spread).backward(gradient.double())
        errors[f"{name}, input"], errors[f"{name}, weight"] = (
            error(x.grad, plain.grad),
            error(experts.grad, weights.grad),
        )
    few, of_few, real_few = quantised(x)
    weights, of_weights, real_weights = quantised(experts)
    of_scales = torch.compile(scaled, dynamic=False, options=options)
    for name, spread in SPREADS.items():
        found = of_scales(few, weights, of_few, of_weights, ends[name])
        errors[f"scales, {name}"] = error(found, reference(real_few, real_weights, spread))
    if torch.__version__ >= (2, 13):  # before, torch.compile leaves it out of its graphs
        operands = few, weights, of_few, of_weights, ends["skewed"]
        found, codes = run_and_get_code(torch.compile(second, dynamic=False, options=options), *operands)
        errors["second operator"] = float(not torch.equal(found, of_scales(*operands)))
        report["second"] = "\n".join(codes)
    if which == "first":
        with torch.no_grad():
            one_config = {
                "triton.autotune_pointwise": False
            }  # torch times two of silu and of the sum, which have no row
            graphs = {"triton.cudagraphs": True, **one_config}
            in_graph = torch.compile(layers, dynamic=False, options={**options, **graphs})
            for name in ("even", "skewed", "one") * 2:
                torch.compiler.cudagraph_mark_step_begin()
                found = in_graph(x, experts, ends[name]).clone()
                both = (reference(each, experts, SPREADS[name]) for each in (x, torch.nn.functional.silu(x)))
                errors[f"graph, {name}"] = error(found, sum(both))
            dynamic = torch.compile(rows, options=options)
            for count in (600, 700, 40):
                some = made(count, K)
                torch._dynamo.maybe_mark_dynamic(some, 0)
                spread = (0, count // 2, count // 2, count)
                found = dynamic(some, experts, torch.tensor(spread, dtype=torch.int32, device="cuda"))
                errors[f"open, {count}"] = error(found, reference(some, experts, spread))
    report["use"] = gemmtune_inductor.report().to_dict()
    report["benchmarks"] = {
        name: count for name, count in counters["inductor"].items() if "select_algorithm" in name or "bench" in name
    }
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
