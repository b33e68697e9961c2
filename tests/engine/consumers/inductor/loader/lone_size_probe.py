"""Probe for its own process: graphs whose dimensions are marked dynamic, with a table that would leave a size alone.

Imports torch and the exported loader alone: any torch can run it.

Arguments: the folder of an export, a JSON list of graphs {sizes, m, cases}: the first sizes of an input that is all
dynamic, what m is of these ("product", or a number times the first), and the cases of its products as inductor_probe.py
has them. Prints, for each, what each product runs, the sizes that the graph serves, and what torch says of the guards.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.source import LocalSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    ConstraintViolationError,
    DimDynamic,
    RelaxedUnspecConstraint,
    ShapeEnv,
    StatelessSymbolicContext,
)

sys.path.insert(0, str(Path(__file__).parent))
from inductor_probe import choose


def answer(graph):
    env, sizes = ShapeEnv(), graph["sizes"]
    marked = StatelessSymbolicContext(
        dynamic_sizes=[DimDynamic.DYNAMIC] * len(sizes),
        constraint_sizes=[RelaxedUnspecConstraint(warn_only=False)] * len(sizes),
    )
    source = LocalSource("x")
    x = FakeTensorMode(shape_env=env).from_tensor(torch.empty(sizes), symbolic_context=marked, source=source)
    sizes_of_x: Any = x.shape
    symbols = [size.node.expr for size in sizes_of_x]
    m = symbols[0] * symbols[1] if graph["m"] == "product" else symbols[0] * graph["m"]
    found = [choose(case, m=m, shape_env=env) for case in graph["cases"]]
    refusal = ""
    try:
        env.produce_guards([x], [source], input_contexts=[marked])
    except ConstraintViolationError as error:
        refusal = str(error)
    bounds = [env.bound_sympy(symbol) for symbol in symbols]
    return {
        "blocks": [each["blocks"].get("BLOCK_M") for each in found],
        "serves": [[int(b.lower), int(b.upper) if b.upper < 2**62 else None] for b in bounds],
        "refusal": refusal,
    }


def main(export, graphs):
    sys.path.insert(0, export)
    import gemmtune_inductor

    gemmtune_inductor.install(policy="ignore")
    json.dump([answer(graph) for graph in graphs], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
