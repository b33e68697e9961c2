"""Probe for its own process: Inductor on a machine without a GPU, made to believe in one H200.

Imports torch and the exported loader alone: any torch can run it.

Arguments: the folder of an export, a folder with another table, a JSON list of cases {name, op, batch, m, n, k, dtype,
layout, bias, dynamic}, with ldb and batch_stride_b where they are not dense. Prints one JSON object: what Inductor
chose for each case, and the compile-cache keys it made.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch
import triton
from torch._dynamo.source import ConstantSource
from torch._dynamo.utils import counters
from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCacheDetails
from torch._inductor import config, ir
from torch._inductor.codecache import FxGraphHashDetails, compiled_fx_graph_hash
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel import bmm, mm
from torch._inductor.lookup_table.choices import LookupTableChoices
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.utils import is_big_gpu
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from triton.backends.compiler import GPUTarget

SM_COUNT = 132


class FakeDriver:
    """Driver with the answers that Triton needs before a launch."""

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
def fake_h200(name="NVIDIA H200", sm_count=SM_COUNT, shape_env=None, aot_mode=False):
    properties = SimpleNamespace(
        name=name,
        gcnArchName=name,
        multi_processor_count=sm_count,
        major=9,
        minor=0,
        shared_memory_per_block_optin=232448,
        L2_cache_size=62914560,
    )
    triton.runtime.driver.set_active(FakeDriver())
    is_big_gpu.cache_clear()
    LookupTableChoices._get_device_key.cache_clear()
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch("torch.cuda.is_available", lambda: True))
        start = "torch._subclasses.fake_tensor.init_gpu_context"  # torch 2.11 asks a GPU, and 2.15 has no such name
        stack.enter_context(patch(start, lambda *_: None, create=True))
        stack.enter_context(patch("torch.cuda.get_device_properties", lambda *_: properties))
        stack.enter_context(patch("torch.cuda.get_device_capability", lambda *_: (9, 0)))
        stack.enter_context(patch("torch.cuda.current_device", lambda: 0))
        stack.enter_context(patch("torch.cuda.is_tf32_supported", lambda: True))
        stack.enter_context(patch("torch._inductor.utils.get_max_num_sms", lambda: sm_count))
        stack.enter_context(
            patch.object(DeviceProperties, "create", staticmethod(lambda _: device_properties(sm_count)))
        )
        graph = GraphLowering(torch.fx.symbolic_trace(lambda x: x), shape_env=shape_env)
        graph.aot_mode = aot_mode
        stack.enter_context(V.set_graph_handler(graph))
        yield graph


def tensor(graph, name, dtype, sizes, strides):
    fixed = ir.FixedLayout(torch.device("cuda", 0), dtype, list(sizes), list(strides))
    buffer = ir.InputBuffer(name=name, layout=fixed)
    graph.graph_inputs[name] = buffer
    graph.name_to_buffer[name] = buffer
    return ir.TensorBox(ir.StorageBox(buffer))


def matrix(graph, name, dtype, batch, rows, columns, layout, lead=None, step=None):
    """Return a view of a contiguous tensor; `layout` t is the transpose of a columns×rows one."""
    strides = [lead or columns, 1] if layout == "n" else [1, lead or rows]
    if batch is None:
        return tensor(graph, name, dtype, [rows, columns], strides)
    return tensor(graph, name, dtype, [batch, rows, columns], [rows * columns if step is None else step, *strides])


def lower(graph, case, m):
    """Return Inductor's lowering of the case's operation, with `m` rows."""
    dtype, batch = getattr(torch, case["dtype"]), case["batch"] if case["op"] in ("bmm", "baddbmm") else None
    of_b = case.get("ldb"), case.get("batch_stride_b")
    a = matrix(graph, "a", dtype, batch, m, case["k"], case["layout"][0])
    b = matrix(graph, "b", dtype, batch, case["k"], case["n"], case["layout"][1], *of_b)
    if case["op"] == "mm":
        return mm.tuned_mm(a, b)
    if case["op"] == "bmm":
        return bmm.tuned_bmm(a, b)
    n = case["n"]
    if case["op"] == "baddbmm":
        return bmm.tuned_baddbmm(tensor(graph, "bias", dtype, [batch, m, n], [m * n, n, 1]), a, b)
    shape = {"vector": ([n], [1]), "matrix": ([m, n], [n, 1])}[case["bias"]]
    return mm.tuned_addmm(tensor(graph, "bias", dtype, *shape), a, b)


def choose(case, m=None, backends="ATEN,TRITON", ended=False, options=None, **fake):
    """Lower one product, and its graph if `ended`; return the product's choices and the resulting node.

    `options` replaces max_autotune_gemm.
    """
    offered = []
    settings = {"max_autotune_gemm": True} if options is None else options
    settings = {**settings, "max_autotune_gemm_backends": backends}
    with contextlib.ExitStack() as stack:
        graph = stack.enter_context(fake_h200(**fake))
        stack.enter_context(config.patch(settings))
        for module in (mm, bmm):
            stack.enter_context(patch.object(module, "autotune_select_algorithm", listening(module, offered)))
        stack.enter_context(
            patch("torch._inductor.select_algorithm.AlgorithmSelectorCache.do_autotuning", refuse_to_tune)
        )
        counters.clear()
        try:
            lowered = lower(graph, case, case["m"] if m is None else m)
        except TuningError as tuned:
            return {"choices": [choice.name for choice in offered], "tuned_among": tuned.args[0]}
        node = lowered.data.data
        if ended:
            graph.finalize()
    rendered = [getattr(getattr(choice, "bmreq", None), "module_path", None) for choice in offered]
    source = "".join(Path(path).read_text() for path in rendered if path)
    return {
        "choices": [choice.name for choice in offered],
        "blocks": dict(re.findall(r"(\w+) : tl\.constexpr = ([\w.]+)", source)),
        "stages_warps": re.findall(r"num_(?:stages|warps)=(\d+)", source)[:2],
        "node": type(node).__name__,
        "benchmarks": {k: v for k, v in counters["inductor"].items() if re.search("select_algorithm|bench", k)},
    }


def listening(module, offered):
    original = module.autotune_select_algorithm

    def select(name, choices, *args, **kwargs):
        offered.extend(choices)
        return original(name, choices, *args, **kwargs)

    return select


class TuningError(Exception):
    """Error for a benchmark that Inductor was about to run."""


def refuse_to_tune(self, name, input_nodes, layout, input_gen_fns, inputs_key, choices, *args, **kwargs):
    raise TuningError(len(choices))


def stock_keys(case):
    """Return the keys that stock Inductor looks up for the case, in order."""
    asked = []

    class Asked(LookupTableChoices):
        def lookup_template_configs(self, kernel_inputs, op_name, template_uids, template_hash_map=None):
            asked.append(self.make_lookup_key(kernel_inputs, op_name, include_device=True))
            return {}

        def _fallback(self, template_choices, *args):
            aten = {uid: choices for uid, choices in template_choices.items() if uid.startswith("aten::")}
            return super()._fallback(aten, *args)

    with V.set_choices_handler(Asked()):
        choose(case)
    return list(dict.fromkeys(asked))


def dynamic(case, hint, low=2, high=None, aot_mode=False, **settings):
    """Return the choice for a dynamic m with a first value of `hint`, and the least and greatest m of its graph.

    `high` is an end that the user marked; without one there is none.
    """
    env = ShapeEnv()
    m = env.create_symbol(hint, ConstantSource("m"), DimDynamic.DYNAMIC)
    if high is not None:
        env.constrain_symbol_range(m, compiler_min=low, compiler_max=high)
    found = choose(case, m=m, shape_env=env, aot_mode=aot_mode, **settings)
    bounds = env.bound_sympy(m)
    last = int(bounds.upper) if bounds.upper < 2**62 else None
    return {**found, "serves": [int(bounds.lower), last], "guards": len(env.guards)}


def symbolic_k(case):
    """Return the choices for a product whose k is a symbol with the hint of a row's k."""
    env = ShapeEnv()
    k = env.create_symbol(case["k"], ConstantSource("k"), DimDynamic.DYNAMIC)
    return choose({**case, "k": k}, shape_env=env)


def with_warnings(job, times=1):
    """Return the job's answer and gemmtune's warnings, of repeated runs if requested."""
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
    static = [case for case in cases if not case["dynamic"]]
    first = static[0]
    report = {"torch": torch.__version__}
    report["autograd_key_extends_graph_key"] = issubclass(AOTAutogradCacheDetails, FxGraphHashDetails)
    report["stock_keys"] = {c["name"]: stock_keys(c) for c in static}
    report["stock_small_gpu"] = choose(first, sm_count=46)
    report["keys_before"] = [run(cache_key) for run in everywhere]
    warnings.simplefilter("ignore")
    gemmtune_inductor.install(Path(other) / "inductor_table.json")
    report["keys_other"] = [run(cache_key) for run in everywhere]
    gemmtune_inductor.install(miss="autotune")
    report["keys_autotune"] = [run(cache_key) for run in everywhere]
    report["autotuned_miss"] = choose({**first, "m": first["m"] + 1})
    report["autotune_dynamic"] = [dynamic(case, 200) for case in cases if case["dynamic"]]
    gemmtune_inductor.install()
    report["keys_table"] = [run(cache_key) for run in everywhere]
    report["handlers"] = [run(handler) for run in everywhere]
    with V.set_choices_handler(V.choices):
        pass  # leaves the handler behind in this thread
    report["cases"], report["cases_warnings"] = with_warnings(lambda: {c["name"]: choose(c) for c in static})
    options = gemmtune_inductor.options()
    report["options"] = {c["name"]: choose(c, options=options) for c in static}
    report["options_miss"] = choose({**first, "m": first["m"] + 1}, options=options)
    report["small_gpu"] = {c["name"]: choose(c, sm_count=46) for c in static}
    report["symbolic_k"] = symbolic_k(first)
    missing = {c["op"]: {**c, "m": c["m"] + 1} for c in static}
    report["miss"], report["miss_warnings"] = with_warnings(lambda: {op: choose(case) for op, case in missing.items()})
    report["other_layout"] = choose({**next(c for c in static if c["k"] == 200), "layout": "tn"})
    report["other_gpu"], report["other_gpu_warnings"] = with_warnings(lambda: choose(first, name="NVIDIA L4"), times=2)
    no_options = lambda: [choose(c, options={}) for c in static]  # noqa: E731
    report["no_options"], report["no_options_warnings"] = with_warnings(no_options, times=2)
    report["no_triton"] = [choose(c, backends="ATEN") for c in static]
    report["no_aten"] = [choose(c, backends="TRITON") for c in static]
    asked = [case for case in cases if case["dynamic"]][:1]
    for name, settings in {"dynamic": None, "options_dynamic": options}.items():
        report[name] = {
            f"{hint}{':' + str(high) if high else ''}{':aot' if aot else ''}": dynamic(
                case, hint, low, high, aot, options=settings
            )
            for case in asked
            for hint, low, high, aot in DYNAMIC
        }
    report["use"] = table_use(gemmtune_inductor, static, asked[0])
    gemmtune_inductor.install(policy="ignore")
    report["ignored_gpu"], report["ignored_gpu_warnings"] = with_warnings(lambda: choose(first, name="NVIDIA L4"))
    gemmtune_inductor.uninstall()
    gemmtune_inductor.uninstall()
    report["keys_after"] = [run(cache_key) for run in everywhere]
    report["handlers_after"] = [run(handler) for run in everywhere]
    old.close()
    table = json.loads((Path(export) / "lookup_table.json").read_text())
    with V.set_choices_handler(LookupTableChoices()), config.patch({"lookup_table.table": table}):
        report["stock"] = {c["name"]: choose(c) for c in static if c["k"] < 64 * max(c["m"], c["n"])}
    json.dump(report, sys.stdout)


def table_use(loader, static, ranged):
    """Return what the loader reports, logs and warns of for graphs of one product each."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))
    log = logging.getLogger("gemmtune")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    loader.install()
    found = {"empty": str(loader.report())}
    first = static[0]
    aten, addmm = (next(c for c in static if c["name"] == name) for name in (ATEN_CASE, ADDMM_CASE))

    def compile_all():
        for case in (first, first, aten, addmm):
            choose(case, ended=True)

    def compile_misses():
        for case in ({**first, "dtype": "float16", "k": 200}, {**addmm, "bias": "matrix", "n": 100}):
            choose(case, ended=True)
        dynamic(ranged, 5000, ended=True)

    _, found["warnings_of_rows"] = with_warnings(compile_all)
    _, found["warnings_of_misses"] = with_warnings(compile_misses, times=2)
    _, found["warnings_of_other_gpu"] = with_warnings(lambda: choose(first, ended=True, name="NVIDIA L4"), times=2)
    symbolic_k(first)
    log.removeHandler(handler)
    return {**found, "log": lines, "text": str(loader.report()), "dict": loader.report().to_dict()}


ATEN_CASE, ADDMM_CASE = "256x96x256:bf16:nt", "64x96x256:bf16:nt:addmm"
DYNAMIC = (
    (40, 2, None, False),
    (200, 2, None, False),
    (300, 2, None, False),
    (5000, 2, None, False),
    (40, 2, 100, False),
    (40, 33, 64, False),
    (40, 2, 100, True),
    (40, 33, 64, True),
)
"""First m, the ends that the user marked, and whether it is compiled ahead of time."""


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
