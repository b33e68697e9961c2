"""Probe for its own process on a GPU: products with epilogues with the table in the given folder.

Prints one JSON object: Inductor's benchmark counters, and per function the kinds of its kernels and its error.
"""

from __future__ import annotations

import json
import re
import sys

import torch
import torch._dynamo
import torch._inductor.config
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F  # noqa: N812


def main(export):
    sys.path.insert(0, export)
    import gemmtune_inductor

    gemmtune_inductor.install()
    torch._inductor.config.force_disable_caches = True
    torch.manual_seed(0)
    shapes = ((256, 512), (384, 512), (256, 384))
    x, w, r = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes)
    w /= 512**0.5
    functions = {
        "silu_mul": lambda x, w, r: F.silu(x @ w.t()) * r,
        "relu": lambda x, w, r: torch.relu(x @ w.t()),
        "gelu": lambda x, w, r: F.gelu(x @ w.t()),
    }
    kernels, errors = {}, {}
    for name, function in functions.items():
        torch._dynamo.reset()
        call = torch.compile(function, dynamic=False, options=gemmtune_inductor.options())
        out, sources = run_and_get_code(call, x, w, r)
        right = function(x.double(), w.double(), r.double())
        kernels[name] = re.findall(r"^def (triton_(?:tem|poi))", "\n".join(sources), re.MULTILINE)
        errors[name] = float((out.double() - right).norm() / right.norm())
    benchmarks = {key: value for key, value in counters["inductor"].items() if "select_algorithm" in key}
    sys.stdout.write(json.dumps({"benchmarks": benchmarks, "kernels": kernels, "errors": errors}))


if __name__ == "__main__":
    main(sys.argv[1])
