"""Probe for its own process: how Inductor lowers the corpus for an H200 that is not here, with a table and without.

Arguments: the folder of an export, and arms. Prints one JSON object: for each arm and case what was selected among
what, how many kernels would have been timed, the layouts of the outputs, and what the loader reports.

| arm | installed | options |
|---|---|---|
| stock | nothing | none |
| table | the table | the table's |
| bare | the table | none |
| autotune | the table, with `miss="autotune"` | the table's |
| max | the table | max_autotune, which the program sets |
| old | nothing | max_autotune_gemm, which the tables of older loaders asked for |

Torch traces a case once, and each arm lowers its graphs; with open sizes, which lowering may guard, each arm traces.
Nothing is scheduled, generated or run. Inductor's decision to pad needs a GPU, so nothing pads.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import json
import sys
import warnings
from types import SimpleNamespace
from unittest.mock import patch

import torch
from corpus_modules import BF16, CASES, Case
from torch._functorch import config as functorch_config
from torch._inductor import compile_fx, config, select_algorithm
from torch._inductor.fx_passes import pad_mm
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.benchmarking import Benchmarker, InductorBenchmarker, TritonBenchmarker

from gemmtune.engine.consumers.inductor.capture.capture import run_backward
from gemmtune.engine.consumers.inductor.capture.fake_gpu import GPU, fake_gpu
from gemmtune.engine.records import catalogue

CACHES = {"fx_graph_cache": False, "compile_threads": 1}
INSTALLED = ("table", "bare", "autotune", "max")
OPTIONS = {"bare": {}, "max": {"max_autotune": True}, "old": {"max_autotune_gemm": True}}


class Seen:
    """What Inductor did for one case."""

    def __init__(self) -> None:
        self.selections: list[tuple[str, list[str]]] = []
        self.benchmarks = 0
        self.outputs: list[list[str]] = []

    @contextlib.contextmanager
    def watching(self):
        cache = select_algorithm.AlgorithmSelectorCache
        with contextlib.ExitStack() as stack:
            stack.enter_context(patch.object(cache, "__call__", self._selecting(cache.__call__)))
            stack.enter_context(patch.object(cache, "do_autotuning", self._tune))
            for kind in (Benchmarker, InductorBenchmarker, TritonBenchmarker):
                for name in ("benchmark", "benchmark_gpu", "benchmark_cpu"):
                    if name in vars(kind):
                        stack.enter_context(patch.object(kind, name, self._time))
            stack.enter_context(patch.object(GraphLowering, "compile_to_module", self._lowering()))
            yield

    def _selecting(self, select):
        def selecting(cache, name, choices, *arguments, **settings):
            kinds = ["row" if each.name.startswith("triton_") else each.name for each in choices]
            self.selections.append((name, kinds))
            if len(choices) > 1:  # most need the GPU before they are timed
                self.benchmarks += len(choices)
                choices = choices[:1]
            return select(cache, name, choices, *arguments, **settings)

        return selecting

    def _tune(self, *_, **__):
        raise AssertionError("a selection of one choice is not tuned")

    def _time(self, *_, **__):
        self.benchmarks += 1
        return 1.0

    def _lowering(self):
        def lowered(graph):
            """Return a module that nobody calls, in place of the graph's scheduled and generated code."""
            self.outputs.append([layout(each) for each in graph.graph_outputs])
            graph.scheduler = SimpleNamespace(nodes=[])
            return SimpleNamespace(call=lambda _: None, __file__=__file__, runner=None)

        return lowered


def layout(output) -> str:
    """Return type, sizes and strides of a graph's output; symbols count up from 0 in each output."""
    try:
        parts = output.get_dtype(), [*output.get_size()], [*output.get_stride()]
    except (AttributeError, NotImplementedError):  # a number, or nothing
        return type(output).__name__
    return " ".join(map(str, parts))


def lower(arms, module, inputs, **settings):
    """Lower one graph in each arm, and return a function that runs it by torch's interpreter."""
    whole = copy.deepcopy(module)
    for arm in arms:
        strides = getattr(torch._guards.TracingContext.try_get(), "output_strides", None)
        if strides:
            strides.clear()
        arm.lower(copy.deepcopy(module), inputs, settings)

    def run(arguments):
        given = list(arguments)
        arguments.clear()
        return whole(*given)

    vars(run)["_boxed_call"] = True
    return run


class Arm:
    """Way to lower a case, and what was seen of it."""

    def __init__(self, kind: str, loader) -> None:
        self.kind, self.loader, self.seen, self.failure, self.said = kind, loader, Seen(), "", []
        self.uses: list[dict] = []

    def lower(self, module, inputs, settings) -> None:
        """Lower a graph; a failure is noted, and ends nothing."""
        with self.watched():
            options = OPTIONS.get(self.kind, {})
            if self.kind in INSTALLED:
                self.loader.install(policy="ignore", miss="autotune" if self.kind == "autotune" else "aten")
                options = OPTIONS.get(self.kind, self.loader.options())
            with config.patch({**CACHES, **options}):
                compile_fx.compile_fx_inner(module, inputs, **settings)

    @contextlib.contextmanager
    def watched(self):
        with self.seen.watching(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                yield
            except Exception as error:  # the answer
                self.failed(error)
            finally:
                self.said += [str(each.message) for each in caught if "gemmtune" in str(each.message)]
                if self.kind in INSTALLED:
                    self.uses += self.loader.report().to_dict()["uses"]
                    self.loader.uninstall()

    def failed(self, error: Exception) -> None:
        lines = str(error).strip().splitlines()
        self.failure = self.failure or f"{type(error).__name__}: {' '.join(lines)[:400]}"

    def found(self) -> dict:
        return {**vars(self.seen), "failure": self.failure, "said": self.said, "uses": self.uses}


def compiled(case: Case, arms: list[Arm]) -> None:
    """Compile a case once for all arms; what fails before it is lowered fails in each."""
    torch._dynamo.reset()
    call, dtype = case.call, torch.float32 if case.inputs[0].dtype == torch.float32 else BF16
    try:
        if case.builds:
            with GPU:
                call = call().to(dtype)
        backend = functools.partial(compile_fx.compile_fx, inner_compile=functools.partial(lower, arms))
        inputs = [each.make() for each in case.inputs]
        is_training = any(each.grad for each in case.inputs)
        with torch.set_grad_enabled(is_training), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            output = torch.compile(call, backend=backend)(*inputs)
            if is_training:
                run_backward(output)
    except Exception as error:  # the answer
        for arm in arms:
            arm.failed(error)


def missing(name: str) -> bool:
    """Return whether this torch lacks what a case needs."""
    try:
        functools.reduce(getattr, name.split(".") if name else [], torch)
    except AttributeError:
        return True
    return False


def main(export: str, *arms: str) -> None:
    sys.path.insert(0, export)
    import gemmtune_inductor as loader

    names = [name for name, case in CASES.items() if not missing(case.needs)]
    wanted = {kind: names.split(",") if names else [] for kind, _, names in (arm.partition("=") for arm in arms)}
    report: dict = {"lacks": [name for name in CASES if name not in names], **{kind: {} for kind in wanted}}
    settings = functorch_config.patch(enable_autograd_cache=False, donated_buffer=False)
    gc.freeze()  # what torch imports stays
    with fake_gpu(catalogue.device("H200")), settings, patch.object(pad_mm, "should_pad", lambda *_, **__: False):
        for name in names:
            every = [Arm(kind, loader) for kind, only in wanted.items() if not only or name in only]
            is_open = any(each.dynamic for each in CASES[name].inputs)
            for group in [[arm] for arm in every] if is_open else [every]:
                compiled(CASES[name], group)
            for arm in every:
                report[arm.kind][name] = arm.found()
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
