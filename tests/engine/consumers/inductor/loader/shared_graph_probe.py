"""Probe for its own process, without a GPU: the graphs that Dynamo compiles for one m after another, with a table.

Imports torch and the exported loader alone: any torch can run it.

Argument: the folder of an export. The graphs are counted as inductor_ways_probe.py counts them on a GPU. The layer runs
on the CPU; Inductor lowers its product for an H200 among the shapes of the graph, to which the loader adds its guards.
Prints one JSON object: what compiled() of that probe reports of each m, and BLOCK_M of each graph.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from inductor_probe import choose
from inductor_ways_probe import SIZES, Layer, compiled

CASE = {"op": "addmm", "batch": 1, "n": 384, "k": 512, "dtype": "bfloat16", "layout": "nt", "bias": "vector"}


def main(export):
    sys.path.insert(0, export)
    import gemmtune_inductor

    gemmtune_inductor.install(policy="ignore")
    blocks = []

    def backend(module, inputs):
        m = next(value for value in inputs if isinstance(value, torch.SymInt))
        blocks.append(choose(CASE, m=m.node.expr, shape_env=m.node.shape_env)["blocks"].get("BLOCK_M"))
        return module.forward

    torch.manual_seed(0)
    model = Layer("cpu")
    sizes = compiled(torch.compile(model, backend=backend), model, SIZES)
    json.dump({"sizes": sizes, "blocks": blocks}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
