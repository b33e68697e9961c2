"""Program that records its products for an absent H200 and is killed: record_probe.py FOLDER."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch
from models import Mlp
from torch._inductor.graph import GraphLowering

from gemmtune.engine.consumers.inductor.capture.fake_gpu import GPU, fake_gpu
from gemmtune.engine.records import catalogue

CALLS = 5


def module_of(graph):
    """Return the graph itself in place of its generated code."""
    graph.scheduler = SimpleNamespace(nodes=[])
    return SimpleNamespace(call=lambda arguments: graph.orig_gm(*arguments), __file__=__file__, runner=None)


def main(folder: str) -> None:
    sys.path.insert(0, folder)
    import gemmtune_inductor

    path = Path(folder) / "problems.jsonl"
    gemmtune_inductor.record(path)
    options = {**gemmtune_inductor.options(), "fx_graph_cache": False, "compile_threads": 1}
    with fake_gpu(catalogue.device("H200")), patch.object(GraphLowering, "compile_to_module", module_of):
        with GPU:
            model, convolution = Mlp().bfloat16(), torch.nn.Conv2d(16, 32, 3).bfloat16()
            inputs, images = torch.empty(16, 256, dtype=torch.bfloat16), torch.empty(2, 16, 8, 8, dtype=torch.bfloat16)
        compiled, without_product = (torch.compile(each, options=options) for each in (model, convolution))
        with torch.no_grad():
            for _ in range(CALLS):
                compiled(inputs)
                without_product(images)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
