"""Probe for its own process on a GPU: calls of one list, FOLDER open|unusual, with the table of a folder.

Prints one JSON object: Inductor's benchmark counters, what the loader reports, and the errors against fp64.
"""

from __future__ import annotations

import json
import re
import sys

import torch
import torch._inductor.config
from torch._dynamo.utils import counters


def last_tokens(h, w):
    return h[:, -1] @ w


def to_fp32(a, b):
    return torch.mm(a, b, out_dtype=torch.float32) if a.dtype == torch.bfloat16 else a @ b


def one_matrix_for_a_batch(s, w):
    return torch.bmm(s[..., :32], w.expand(4, 32, 48))


def halved(c, x, a):
    return torch.addmm(c, x, a, alpha=0.5)


def scores(mask, q, k):
    return torch.baddbmm(mask, q, k.mT, alpha=0.125)


CALLS = {
    "open": (
        (last_tokens, (8, "open 96", 512), (512, 320)),
        (last_tokens, (8, "open 200", 512), (512, 320)),
        (torch.bmm, ("open 5", 16, 64), ("open 5", 64, 32)),
        (torch.bmm, ("open 12", 16, 64), ("open 12", 64, 32)),
        (torch.mm, (16, 32768), (32768, 16)),
        (to_fp32, (64, 256), (256, 96)),
    ),
    "unusual": (
        (last_tokens, (8, 128, 512), (512, 1024)),
        (one_matrix_for_a_batch, (4, 64, 96), (32, 48)),
        (halved, (64, 256), (64, 128), (128, 256)),
        (scores, (4, 64, 64), (4, 64, 32), (4, 64, 32)),
    ),
}


def made(sizes):
    found = torch.randn([int(str(size).removeprefix("open ")) for size in sizes], device="cuda", dtype=torch.bfloat16)
    for place, size in enumerate(sizes):
        if isinstance(size, str):
            torch._dynamo.mark_dynamic(found, place)
    return found


def main(export: str, calls: str) -> None:
    sys.path.insert(0, export)
    import gemmtune_inductor

    gemmtune_inductor.install()
    torch.manual_seed(0)
    counters.clear()
    errors = []
    for call, *sizes in CALLS[calls]:
        torch._dynamo.reset()
        inputs = [made(each) for each in sizes]
        out = torch.compile(call, options=gemmtune_inductor.options())(*inputs)
        right = call(*(each.double() for each in inputs))
        errors.append(float((out.double() - right).norm() / right.norm()))
    counted = counters["inductor"].items()
    benchmarks = {
        name: count for name, count in counted if re.match(r"select_algorithm_|benchmarking\.|.*_bench$", name)
    }
    use = gemmtune_inductor.report().to_dict()
    json.dump({"benchmarks": benchmarks, "use": use, "errors": errors}, sys.stdout)


if __name__ == "__main__":
    with torch._inductor.config.patch(fx_graph_cache=False):
        main(*sys.argv[1:])
