"""Probe for its own process on a GPU: one table by torch.compile with a dynamic m, by torch.export or by AOTInductor.

Arguments: the folder of an export, and one of `compiled`, `exported`, `ahead` and `stock`, which is AOTInductor without
gemmtune. Prints one JSON object; a line on stderr before each stage, and where the process was if native code ends it.
"""

from __future__ import annotations

import faulthandler
import json
import platform
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
import torch._inductor.config
from torch._dynamo.utils import counters
from torch._inductor.graph import GraphLowering

SIZES = (16, 32, 100, 200, 60, 1000)


def stage(name):
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # what failed in the stage before must not be blamed on this one
    sys.stderr.write(f"stage: {name}\n")
    sys.stderr.flush()


def benchmarks():
    return {
        name: count
        for name, count in counters["inductor"].items()
        if re.match(r"select_algorithm_|benchmarking\.|.*_bench$", name)
    }


def error(found, expected):
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@contextmanager
def generated():
    """Collect the code that Inductor generates.

    Not by torch's `run_and_get_code`: that forgets every graph first, and so would compile one at each m.
    """
    codes = []
    with patch.object(GraphLowering, "save_output_code", codes.append):
        yield codes


class Layer(torch.nn.Module):
    def __init__(self, device="cuda"):
        super().__init__()
        self.linear = torch.nn.Linear(512, 384, bias=True, device=device, dtype=torch.bfloat16)

    def forward(self, x):
        return self.linear(x)


def compiled(function, model, sizes):
    """Return the kernel's blocks at each m that compiled a graph, and the number of graphs."""
    found = {}
    for m in sizes:
        stage(f"torch.compile, m={m}")
        x = torch.randn(m, 512, device=model.linear.weight.device, dtype=torch.bfloat16)
        torch._dynamo.mark_dynamic(x, 0)
        counters.clear()
        with torch.no_grad(), generated() as codes:
            out = function(x)
            wrong = error(out, model(x))
        block = re.search(r"BLOCK_M : tl\.constexpr = (\d+)", "\n".join(codes))
        found[str(m)] = {
            "graphs": counters["stats"]["unique_graphs"],
            "block_m": block and int(block.group(1)),
            "benchmarks": benchmarks(),
            "error": wrong,
        }
    return found


def exported(model, options):
    """Export the model for one range of m with torch.export, and compile the program."""
    x = torch.randn(128, 512, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        stage("torch.export")
        program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("m", min=65, max=256)},))
        stage("its program is compiled")
        counters.clear()
        with generated() as codes:
            out = torch.compile(program.module(), options=options, dynamic=False)(x)
        wrong = error(out, model(x))
    block = re.search(r"BLOCK_M : tl\.constexpr = (\d+)", "\n".join(codes))
    return {"benchmarks": benchmarks(), "error": wrong, "block_m": block and int(block.group(1))}


def ahead(model, x, folder, options, dynamic_shapes=None):
    """Compile, load and run a package of AOTInductor for one range of m."""
    counters.clear()
    with torch.no_grad():
        stage("torch.export")
        program = torch.export.export(model, (x,), dynamic_shapes=dynamic_shapes)
        # Constants written as assembly ask for an executable stack, which not every kernel and C library grants.
        settings = {**options, "aot_inductor.package": True, "aot_inductor.use_consts_asm_build": False}
        stage("AOTInductor compiles")
        package = torch._inductor.aoti_compile_and_package(
            program, package_path=str(folder / "model.pt2"), inductor_configs=settings
        )
        stage("AOTInductor's package is loaded")
        runner = torch._inductor.aoti_load_package(package)
        errors = []
        for m in (65, 100, 128) if dynamic_shapes else (128,):
            stage(f"AOTInductor's package runs, m={m}")
            found = runner(x[:m])
            stage(f"AOTInductor's result is read, m={m}")
            errors.append(error(found, model(x[:m])))
        stage("AOTInductor's package is unloaded")
        del runner
    return {"benchmarks": benchmarks(), "error": max(errors)}


def main(export, way):
    torch.manual_seed(0)
    stage(f"kernel {platform.release()}, {' '.join(platform.libc_ver())}, torch {torch.__version__}")
    x = torch.randn(128, 512, device="cuda", dtype=torch.bfloat16)
    if way == "stock":
        report = ahead(torch.nn.ReLU(), x, Path(export), {})
    else:
        sys.path.insert(0, export)
        import gemmtune_inductor

        gemmtune_inductor.install()
        options = gemmtune_inductor.options()
        if way == "compiled":
            model = Layer()
            report = compiled(torch.compile(model, options=options), model, SIZES)
        elif way == "exported":
            report = exported(Layer(), options)
        else:
            report = ahead(Layer(), x, Path(export), options, ({0: torch.export.Dim("m", min=65, max=256)},))
    json.dump(report, sys.stdout)
    sys.stdout.flush()
    stage("exit")


if __name__ == "__main__":
    faulthandler.enable()
    with torch._inductor.config.patch(fx_graph_cache=False):
        main(sys.argv[1], sys.argv[2])
