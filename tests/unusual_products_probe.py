"""Probe for its own process on a GPU: products of views, scalars and batches with a bias, with the table of a folder.

Prints one JSON object: Inductor's benchmark counters, what the loader reports, and the errors against fp64.
"""

from __future__ import annotations

import json
import re
import sys

import torch
import torch._inductor.config
from torch._dynamo.utils import counters


def products(h, head, s, w, c, x, a, mask, q, k):
    return (
        h[:, -1] @ head,
        torch.bmm(s[..., :32], w.expand(4, 32, 48)),
        torch.addmm(c, x, a, alpha=0.5),
        torch.baddbmm(mask, q, k.mT, alpha=0.125),
    )


SIZES = (
    *((8, 128, 512), (512, 1024), (4, 64, 96), (32, 48), (64, 256)),
    *((64, 128), (128, 256), (4, 64, 64), (4, 64, 32), (4, 64, 32)),
)


def main(export: str) -> None:
    sys.path.insert(0, export)
    import gemmtune_inductor

    gemmtune_inductor.install()
    torch.manual_seed(0)
    inputs = [torch.randn(size, device="cuda", dtype=torch.bfloat16) for size in SIZES]
    counters.clear()
    outputs = torch.compile(products, dynamic=False, options=gemmtune_inductor.options())(*inputs)
    right = products(*(each.double() for each in inputs))
    errors = [float((one.double() - two).norm() / two.norm()) for one, two in zip(outputs, right, strict=True)]
    counted = counters["inductor"].items()
    benchmarks = {
        name: count for name, count in counted if re.match(r"select_algorithm_|benchmarking\.|.*_bench$", name)
    }
    use = gemmtune_inductor.report().to_dict()
    json.dump({"benchmarks": benchmarks, "use": use, "errors": errors}, sys.stdout)


if __name__ == "__main__":
    with torch._inductor.config.patch(fx_graph_cache=False):
        main(sys.argv[1])
