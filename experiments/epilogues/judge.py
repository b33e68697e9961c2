"""Time cases as torch.compile runs them: with the vendor library, with the table, with the sweep's best.

    judge.py FOLDER SECONDS CASES NAME ...

FOLDER holds the exports `table` and `sweep`, and the folder CASES has cases.py. A case is written to FOLDER/judged as a
file of its own, and judged once.
"""

from __future__ import annotations

import importlib.util
import json
import math
import statistics
import sys
import time
import warnings
from pathlib import Path
from types import FunctionType
from unittest import mock

import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config
from torch._dynamo.utils import counters
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

COLD_BYTES, MOST_SETS = 256e6, 48
GRAPHS = 3  # per arm: equal kernels in two graphs may differ by 4 %
ROUNDS = 6  # per graph
REST_SECONDS = 2e-3


def main(folder: Path, seconds: float, of_cases: str, names: list[str]) -> None:
    sys.path.insert(0, of_cases)
    from cases import cases

    ends, known = time.monotonic() + seconds, {case.name: case for case in cases()}
    torch._dynamo.config.recompile_limit = 10_000
    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False
    loaders = {arm: loader(folder / arm, arm) for arm in ("table", "sweep") if (folder / arm).exists()}
    (folder / "judged").mkdir(exist_ok=True)
    for name in names:
        file = folder / "judged" / f"{name}.json"
        if file.exists() or time.monotonic() > ends:
            continue
        arms = {arm: its for arm, its in loaders.items() if arm == "table" or known[name].is_swept}
        file.write_text(json.dumps(judged(known[name], {"library": None, **arms}), indent=1) + "\n")
        torch.cuda.empty_cache()


def loader(folder: Path, name: str):
    """Return an export's loader as a module of its own."""
    package = folder / "gemmtune_inductor"
    sys.path.append(str(folder))  # of gemmtune_report beside it
    spec = importlib.util.spec_from_file_location(
        f"loader_of_{name}", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def judged(case, arms: dict) -> dict:
    """Return a case's times, kernels and errors per arm."""
    sets = [case.inputs(number) for number in range(max(2, min(MOST_SETS, math.ceil(COLD_BYTES / case.bytes))))]
    calls = max(len(sets), 8 if case.bytes < COLD_BYTES else 2)
    right = case.right(*sets[0])
    functions, facts = {}, {}
    torch._dynamo.reset()
    for arm, table in arms.items():
        try:
            functions[arm], facts[arm] = compiled(case, arm, sets[0], right, table)
        except Exception as error:
            facts[arm] = {"failed": f"{type(error).__name__}: {error}"[:500]}
    del right
    with torch.compiler.set_stance("fail_on_recompile"):
        graphs = [(arm, captured(functions[arm], sets, calls)) for _ in range(GRAPHS) for arm in functions]
    times = [[] for _ in graphs]
    for number in range(ROUNDS):
        for place in range(len(graphs)) if number % 2 else reversed(range(len(graphs))):
            _, graph = graphs[place]
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            graph.replay()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[place].append(start.elapsed_time(end) * 1e3 / calls)
            time.sleep(REST_SECONDS)
    of_graphs = {arm: [] for arm in functions}
    for (arm, _), its in zip(graphs, times, strict=True):
        of_graphs[arm].append(statistics.median(its))
    us = {arm: statistics.median(its) for arm, its in of_graphs.items()}
    print(case.name, {arm: round(value, 2) for arm, value in us.items()}, flush=True)
    return {"case": case.name, "problem": case.problem, "us": us, "us_of_graphs": of_graphs, "facts": facts}


def compiled(case, arm: str, inputs, right, table):
    """Return a case's compiled function, and what it is made of.

    Each arm has code of its own, for Dynamo would run what it compiled last for all functions of one code. torch's
    `run_and_get_code` would forget what the arms before were compiled to. Inductor times two or more configs of each
    pointwise kernel in its first call and keeps the choice beside the kernel's source, so arms of one source share it.
    """
    counters.clear()
    sources, ran = [], []
    run = CachingAutotuner.run

    def noted(self, *arguments, **settings):
        ran.append(self)
        return run(self, *arguments, **settings)

    def of_any_arm(*tensors):
        return case.run(*tensors)

    code = of_any_arm.__code__.replace(co_name=arm)
    function = FunctionType(code, globals(), arm, closure=of_any_arm.__closure__)
    if table is None:
        call = torch.compile(function, fullgraph=True, dynamic=False)
    else:
        table.install()
        call = torch.compile(function, fullgraph=True, dynamic=False, options=table.options())
    began = time.perf_counter()
    try:
        keeping = mock.patch.object(GraphLowering, "save_output_code", sources.append)
        with keeping, mock.patch.object(CachingAutotuner, "run", noted):
            out = call(*inputs)
        uses = [str(use) for use in table.report().counts] if table else []
    finally:
        if table is not None:
            table.uninstall()
    source = "\n".join(sources)
    benchmarks = {key: value for key, value in counters["inductor"].items() if "select_algorithm" in key}
    facts = {
        "seconds": round(time.perf_counter() - began, 2),
        "kernels": source.count(".run(") + source.count("extern_kernels."),
        "extern": "extern_kernels." in source,
        "fused": "triton_tem" in source and "triton_poi" not in source,
        "error": float((out.double() - right).norm() / right.norm()),
        "benchmarks": benchmarks,
        "uses": uses,
        "pointwise": [chosen(kernel) for kernel in ran if "triton_poi" in kernel.inductor_meta.get("kernel_name", "")],
    }
    return call, facts


def chosen(kernel: CachingAutotuner) -> str:
    """Return the config that a kernel runs with."""
    config = kernel.launchers[0].config
    return f"{config.kwargs} num_warps={config.num_warps}"


def captured(function, sets, calls: int):
    """Return a CUDA graph of calls on operand sets in turn."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for number in range(3):
            function(*sets[number % len(sets)])
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph.kept = [function(*sets[number % len(sets)]) for number in range(calls)]
    return graph


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:])
