"""Time cases as torch.compile runs them: plain, with the table, and with the sweep's best.

    judge.py FOLDER SECONDS PART PARTS

FOLDER holds the exports `table` and `sweep`. torch and the exported loader alone are imported. A case of this part is
written to FOLDER/judged as a file of its own, and judged once.
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
from cases import SWEPT, Case, cases
from torch._dynamo.utils import counters
from torch._inductor.graph import GraphLowering

COLD_BYTES, MOST_SETS = 256e6, 48
GRAPHS, ROUNDS = 3, 6
REST_SECONDS = 2e-3


def main(folder: Path, seconds: float, part: int, parts: int) -> None:
    ends = time.monotonic() + seconds
    torch._dynamo.config.recompile_limit = 10_000
    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False
    loaders = {arm: loader(folder / arm, arm) for arm in ("table", "sweep") if (folder / arm).exists()}
    (folder / "judged").mkdir(exist_ok=True)
    for place, case in list(enumerate(cases()))[part::parts]:
        file = folder / "judged" / f"{place}.json"
        if file.exists() or time.monotonic() > ends:
            continue
        arms = {arm: it for arm, it in loaders.items() if arm == "table" or place in SWEPT}
        file.write_text(json.dumps(judged(case, {"compile": None, **arms})) + "\n")
        torch.cuda.empty_cache()


def loader(folder: Path, name: str):
    """Return an export's loader as a module of its own."""
    package = folder / "gemmtune_inductor"
    sys.path.append(str(folder))  # of the report beside it
    spec = importlib.util.spec_from_file_location(
        f"loader_of_{name}", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def judged(case: Case, arms: dict) -> dict:
    """Return a case's times and facts per arm."""
    m, n, k = case.sizes
    each = m * k + n * k + 6 * m * n
    sets = [case.inputs(number) for number in range(max(2, min(MOST_SETS, math.ceil(COLD_BYTES / each))))]
    calls = max(len(sets), 8)
    right = case.right(*sets[0])
    functions, facts = {}, {}
    torch._dynamo.reset()
    for arm, table in arms.items():
        try:
            functions[arm], facts[arm] = compiled(case, arm, sets[0], right, table)
        except Exception as error:
            facts[arm] = {"failed": f"{type(error).__name__}: {error}"[:500]}
    del right
    graphs = [(arm, captured(functions[arm], sets, calls)) for _ in range(GRAPHS) for arm in functions]
    times = [[] for _ in graphs]
    for number in range(ROUNDS):
        for place in range(len(graphs)) if number % 2 else reversed(range(len(graphs))):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            graphs[place][1].replay()
            start.record()
            graphs[place][1].replay()
            end.record()
            end.synchronize()
            times[place].append(start.elapsed_time(end) * 1e3 / calls)
            time.sleep(REST_SECONDS)
    of_graphs: dict = {arm: [] for arm in functions}
    for (arm, _), its in zip(graphs, times, strict=True):
        of_graphs[arm].append(statistics.median(its))
    us = {arm: statistics.median(its) for arm, its in of_graphs.items()}
    print(case.name, {arm: round(value, 2) for arm, value in us.items()}, flush=True)
    return {"case": case.name, "problem": case.problem, "us": us, "us_of_graphs": of_graphs, "facts": facts}


def compiled(case: Case, arm: str, inputs, right, table):
    """Return a case's compiled function, and what it is made of; each arm has code of its own for Dynamo."""
    counters.clear()
    sources: list[str] = []

    def of_any_arm(*tensors):
        return case.run(*tensors)

    function = FunctionType(of_any_arm.__code__.replace(co_name=arm), globals(), arm, closure=of_any_arm.__closure__)
    if table is not None:
        table.install()
    options = {} if table is None else {"options": table.options()}
    call = torch.compile(function, fullgraph=True, dynamic=False, **options)
    began = time.perf_counter()
    try:
        with mock.patch.object(GraphLowering, "save_output_code", sources.append):
            out = call(*inputs)
        uses = [str(use) for use in table.report().counts] if table else []
    finally:
        if table is not None:
            table.uninstall()
    return call, {
        "seconds": round(time.perf_counter() - began, 2),
        "extern": "extern_kernels." in "\n".join(sources),
        "error": float((out.double() - right).norm() / right.norm()),
        "benchmarks": {key: count for key, count in counters["inductor"].items() if "select_algorithm" in key},
        "uses": uses,
    }


def captured(function, sets, calls: int):
    """Return a CUDA graph of calls on operand sets in turn."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.compiler.set_stance("fail_on_recompile"):
        for number in range(3):
            function(*sets[number % len(sets)])
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph.kept = [function(*sets[number % len(sets)]) for number in range(calls)]
    return graph


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
