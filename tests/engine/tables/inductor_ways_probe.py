"""Run in a process of its own on a GPU: one table by torch.compile with a dynamic m, torch.export and AOTInductor.

Arguments: the folder of an export, a folder to write to. Prints one JSON object.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import torch
import torch._inductor.config
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code


def benchmarks():
    return {
        name: count
        for name, count in counters["inductor"].items()
        if re.match(r"select_algorithm_|benchmarking\.|.*_bench$", name)
    }


def error(found, expected):
    return float((found.double() - expected.double()).norm() / expected.double().norm())


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(512, 384, bias=True, device="cuda", dtype=torch.bfloat16)

    def forward(self, x):
        return self.linear(x)


def compiled(model, sizes, options):
    """Blocks of the kernel at each m, and the graphs that were compiled for it."""
    function = torch.compile(model, options=options)
    found = {}
    for m in sizes:
        x = torch.randn(m, 512, device="cuda", dtype=torch.bfloat16)
        torch._dynamo.mark_dynamic(x, 0)
        counters.clear()
        with torch.no_grad():
            out, codes = run_and_get_code(function, x)
            wrong = error(out, model(x))
        block = re.search(r"BLOCK_M : tl\.constexpr = (\d+)", "\n".join(codes))
        found[str(m)] = {
            "graphs": counters["stats"]["unique_graphs"],
            "block_m": block and int(block.group(1)),
            "benchmarks": benchmarks(),
            "error": wrong,
        }
    return found


def ahead(model, folder, options):
    """The same through torch.export and AOTInductor, for one range of m."""
    x = torch.randn(128, 512, device="cuda", dtype=torch.bfloat16)
    counters.clear()
    with torch.no_grad():
        program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("m", min=65, max=256)},))
        settings = {**options, "aot_inductor.package": True}
        package = torch._inductor.aoti_compile_and_package(
            program, package_path=str(folder / "model.pt2"), inductor_configs=settings
        )
        runner = torch._inductor.aoti_load_package(package)
        wrong = max(error(runner(x[:m]), model(x[:m])) for m in (65, 100, 128))
    return {"benchmarks": benchmarks(), "error": wrong}


def main(export, folder):
    sys.path.insert(0, export)
    import gemmtune_inductor

    gemmtune_inductor.install()
    torch.manual_seed(0)
    model = Layer()
    options = gemmtune_inductor.options()
    report = {"compiled": compiled(model, (16, 32, 100, 200, 60, 1000), options)}
    report["ahead"] = ahead(model, Path(folder), options)
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    with torch._inductor.config.patch(fx_graph_cache=False):
        main(sys.argv[1], sys.argv[2])
