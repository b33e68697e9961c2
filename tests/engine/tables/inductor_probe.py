"""Run in a process of its own: Inductor on a machine without a GPU, made to believe in one H200.

Arguments: the folder of an export, a folder with another table, a JSON list of cases {name, m, n, k, dtype, layout}.
Prints one JSON object: what Inductor chose for each case, and the compile-cache keys it made.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import sympy
import torch
import triton
from torch._dynamo.utils import counters
from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCacheDetails
from torch._inductor import config, ir
from torch._inductor.codecache import FxGraphHashDetails, compiled_fx_graph_hash
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel.mm import aten_mm, mm_template, tuned_mm
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.lookup_table.choices import LookupTableChoices
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.utils import is_big_gpu
from torch._inductor.virtualized import V
from triton.backends.compiler import GPUTarget

SM_COUNT = 132


class FakeDriver:
    """What Triton asks of a driver before it launches anything."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self):
        return torch.device("cuda", 0)

    def get_current_device(self):
        return 0


def device_properties(sm_count):
    known = {
        "type": "cuda",
        "index": 0,
        "multi_processor_count": sm_count,
        "cc": 90,
        "major": 9,
        "regs_per_multiprocessor": 65536,
        "max_threads_per_multi_processor": 2048,
        "max_threads_per_block": 1024,
        "warp_size": 32,
    }
    return DeviceProperties(**{name: known[name] for name in DeviceProperties._fields})


@contextlib.contextmanager
def fake_h200(name="NVIDIA H200", sm_count=SM_COUNT):
    properties = SimpleNamespace(
        name=name,
        gcnArchName=name,
        multi_processor_count=sm_count,
        major=9,
        minor=0,
        shared_memory_per_block_optin=232448,
    )
    triton.runtime.driver.set_active(FakeDriver())
    is_big_gpu.cache_clear()
    LookupTableChoices._get_device_key.cache_clear()
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch("torch.cuda.is_available", lambda: True))
        stack.enter_context(patch("torch.cuda.get_device_properties", lambda *_: properties))
        stack.enter_context(patch("torch.cuda.get_device_capability", lambda *_: (9, 0)))
        stack.enter_context(patch("torch.cuda.current_device", lambda: 0))
        stack.enter_context(patch("torch.cuda.is_tf32_supported", lambda: True))
        stack.enter_context(
            patch.object(DeviceProperties, "create", staticmethod(lambda _: device_properties(sm_count)))
        )
        graph = GraphLowering(torch.fx.symbolic_trace(lambda x: x))
        stack.enter_context(V.set_graph_handler(graph))
        yield graph


def operand(graph, name, dtype, rows, columns, layout):
    """A view of a contiguous tensor, as production has it: `layout` t is the transpose of a columns×rows one."""
    base = torch.empty((rows, columns) if layout == "n" else (columns, rows), device="meta")
    view = base if layout == "n" else base.t()
    fixed = ir.FixedLayout(torch.device("cuda", 0), dtype, list(view.shape), list(view.stride()))
    buffer = ir.InputBuffer(name=name, layout=fixed)
    graph.graph_inputs[name] = buffer
    graph.name_to_buffer[name] = buffer
    return ir.TensorBox(ir.StorageBox(buffer))


def choose(case, max_autotune_gemm=True, **fake):
    """What Inductor makes of one product, by both roads: its list of choices, and its lowering of aten.mm."""
    dtype = getattr(torch, case["dtype"])
    with fake_h200(**fake) as graph, config.patch(max_autotune_gemm=max_autotune_gemm):
        a = operand(graph, "a", dtype, case["m"], case["k"], case["layout"][0])
        b = operand(graph, "b", dtype, case["k"], case["n"], case["layout"][1])
        inputs = MMKernelInputs([a.data, b.data])
        offered = [aten_mm, mm_template] if max_autotune_gemm else [aten_mm]
        choices = V.choices.get_template_configs(inputs, offered, "mm")
        counters.clear()
        with patch("torch._inductor.select_algorithm.AlgorithmSelectorCache.do_autotuning", refuse_to_tune):
            try:
                node = tuned_mm(a, b).data.data
            except TuningError as tuned:
                return {"choices": len(choices), "tuned_among": tuned.args[0]}
    only = choices[0]
    rendered = getattr(getattr(only, "bmreq", None), "module_path", None)
    source = Path(rendered).read_text() if rendered else ""
    return {
        "choices": len(choices),
        "name": only.name,
        "blocks": dict(re.findall(r"(\w+) : tl\.constexpr = ([\w.]+)", source)),
        "stages_warps": re.findall(r"num_(?:stages|warps)=(\d+)", source)[:2],
        "node": type(node).__name__,
        "benchmarks": {k: v for k, v in counters["inductor"].items() if re.search("select_algorithm|bench", k)},
    }


class TuningError(Exception):
    """Inductor was about to benchmark."""


def refuse_to_tune(self, name, input_nodes, layout, input_gen_fns, inputs_key, choices, *args, **kwargs):
    raise TuningError(len(choices))


def symbolic_k_key():
    """The key of a product whose k is a symbol with the hint of a row's k."""
    k = sympy.Symbol("s0", integer=True, positive=True)
    device = torch.device("cuda", 0)
    a = ir.InputBuffer(name="a", layout=ir.FixedLayout(device, torch.bfloat16, [64, k], [k, 1]))
    b = ir.InputBuffer(name="b", layout=ir.FixedLayout(device, torch.bfloat16, [k, 96], [1, k]))
    with fake_h200():
        return V.choices.make_lookup_key(MMKernelInputs([a, b]), "mm", include_device=True)


def said(job, times=1):
    """The job's answer and what gemmtune warned of while it ran, more than once if asked to."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            answer = job()
    return answer, [str(w.message) for w in caught if "gemmtune" in str(w.message)]


def cache_key():
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    return compiled_fx_graph_hash(graph, [torch.ones(2)], {}, [])[0]


def in_thread(function):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(function()))
    thread.start()
    thread.join()
    return answers[0]


class OldThread:
    """A thread that has resolved Inductor's choices handler before the table is installed."""

    def __init__(self):
        self._ask, self._answered, self._stop = threading.Event(), threading.Event(), False
        self._job, self._answer = None, None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self(lambda: type(V.choices))

    def _run(self):
        while True:
            self._ask.wait()
            self._ask.clear()
            if self._stop:
                return
            self._answer = self._job()
            self._answered.set()

    def __call__(self, job):
        self._job = job
        self._ask.set()
        self._answered.wait()
        self._answered.clear()
        return self._answer

    def close(self):
        self._stop = True
        self._ask.set()
        self._thread.join()


def handler():
    return type(V.choices).__name__


def main(export, other, cases):
    sys.path.insert(0, export)
    import gemmtune_inductor

    old = OldThread()
    everywhere = [lambda job: job(), in_thread, old]
    report = {"autograd_key_extends_graph_key": issubclass(AOTAutogradCacheDetails, FxGraphHashDetails)}
    report["keys_before"] = [run(cache_key) for run in everywhere]
    gemmtune_inductor.install(Path(other) / "lookup_table.json")
    report["keys_other"] = [run(cache_key) for run in everywhere]
    gemmtune_inductor.install()
    report["keys_table"] = [run(cache_key) for run in everywhere]
    report["handlers"] = [run(handler) for run in everywhere]
    with V.set_choices_handler(V.choices):
        pass  # leaves the handler behind in this thread
    report["cases"], report["cases_said"] = said(lambda: {c["name"]: choose(c) for c in cases})
    report["small_gpu"] = choose(cases[0], sm_count=46)
    report["symbolic_k"] = symbolic_k_key()
    report["miss"], report["miss_said"] = said(lambda: choose({**cases[0], "m": cases[0]["m"] + 1}))
    report["other_gpu"], report["other_gpu_said"] = said(lambda: choose(cases[0], name="NVIDIA L4"), times=2)
    _, report["no_options_said"] = said(lambda: choose(cases[0], max_autotune_gemm=False), times=2)
    gemmtune_inductor.uninstall()
    gemmtune_inductor.uninstall()
    report["keys_after"] = [run(cache_key) for run in everywhere]
    report["handlers_after"] = [run(handler) for run in everywhere]
    old.close()
    table = json.loads((Path(export) / "lookup_table.json").read_text())
    with V.set_choices_handler(LookupTableChoices()), config.patch({"lookup_table.table": table}):
        report["stock"] = {c["name"]: choose(c) for c in cases if c["k"] < 64 * max(c["m"], c["n"])}
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
