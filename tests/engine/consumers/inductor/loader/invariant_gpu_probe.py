"""Probe for its own process: a linear layer's bits at every m with a batch-invariant table, on a GPU.

Arguments: the folder of an export, n, k, the largest m. Prints at how many m a row among others differs from the row
alone, compiled with the table under `torch.use_deterministic_algorithms`, and what the loader counted.
"""

from __future__ import annotations

import json
import random
import sys

import torch


def main(export, n, k, largest):
    sys.path.insert(0, export)
    import gemmtune_inductor

    torch.use_deterministic_algorithms(True)
    torch._dynamo.config.recompile_limit = 64
    gemmtune_inductor.install()
    layer = torch.nn.Linear(k, n, bias=False, device="cuda", dtype=torch.bfloat16)
    compiled = torch.compile(layer, options=gemmtune_inductor.options())
    row, rows = (torch.randn(m, k, device="cuda", dtype=torch.bfloat16) for m in (1, largest))
    draw, differing = random.Random(0), 0
    with torch.no_grad():
        alone = compiled(row)
        for m in range(1, largest + 1):
            x, places = rows[:m].clone(), {0, draw.randrange(m), m - 1}
            x[list(places)] = row
            if m > 1:
                torch._dynamo.maybe_mark_dynamic(x, 0)
            differing += not torch.equal(compiled(x)[list(places)], alone.expand(len(places), n))
    json.dump({"differing": differing, "report": gemmtune_inductor.report().to_dict()}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
