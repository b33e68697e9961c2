"""Model that is warmed up in one process and served in another, on the GPU if there is one."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

import torch
from torch._dynamo.utils import counters

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = (2, 60, 64, 100, 256, 1000)


class Layer(torch.nn.Module):
    """Layer with a product of the table; on a GPU, with further operations that Inductor compiles.

    On a CPU a C++ compiler would take half of the test's time.
    """

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(512, 384, device=DEVICE, dtype=torch.bfloat16)
        self.norm = torch.nn.RMSNorm(384, device=DEVICE, dtype=torch.bfloat16)

    def forward(self, x):
        y = self.linear(x)
        return self.norm(torch.nn.functional.silu(y)) if DEVICE == "cuda" else y


@cache
def compiled():
    """Compile with the loader's options, spelled out because the loader has two names here."""
    return torch.compile(Layer(), options={"max_autotune_gemm": False, "shape_padding": False})


def forward(m):
    x = torch.randn(m, 512, device=DEVICE, dtype=torch.bfloat16)
    torch._dynamo.mark_dynamic(x, 0)
    with torch.no_grad():
        compiled()(x)


def main(export, artifacts):
    """Serve from the folder and the warm file of an export: print what the cache of graphs answered."""
    sys.path.insert(0, export)
    import gemmtune_inductor

    gemmtune_inductor.install()
    torch.compiler.load_cache_artifacts(Path(artifacts).read_bytes())
    for m in SIZES:
        forward(m)
    asked = {name: count for name, count in counters["inductor"].items() if name.startswith("fxgraph_cache")}
    sys.stdout.write(f"{json.dumps(asked)}\n")
