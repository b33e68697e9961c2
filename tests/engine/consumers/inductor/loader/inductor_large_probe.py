"""Probe for its own process on a GPU: a softmax of few rows and of many with the table in the given folder.

Prints one JSON object: per softmax the configs that coordinate descent timed, and its error.
"""

from __future__ import annotations

import json
import sys

import torch
import torch._dynamo
import torch._inductor.config
from torch._dynamo.utils import counters

COLUMNS = 2048


def main(export):
    sys.path.insert(0, export)
    import gemmtune_inductor

    gemmtune_inductor.install()
    torch._inductor.config.force_disable_caches = True
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    found = {}
    for name, rows in (("small", 256), ("large", l2_bytes // COLUMNS // 2)):  # reads and writes four times the L2
        torch._dynamo.reset()
        counters.clear()
        x = torch.randn(rows, COLUMNS, device="cuda")
        call = torch.compile(lambda x: torch.softmax(x, -1), dynamic=False, options=gemmtune_inductor.options())
        error = float((call(x) - torch.softmax(x, -1)).abs().max())
        found[name] = {"timed": counters["inductor"]["coordesc_tuning_bench"], "error": error}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
