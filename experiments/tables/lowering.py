"""Count lowerings in one version of torch, without a GPU. Usage: lowering.py TABLE|- OUT; versions.py starts it.

The Python that runs it has gemmtune and the torch in question. The programs run through Dynamo and AOTAutograd on the
meta device, and Inductor is told that their tensors are on an H200. It lowers, schedules and generates code for every
graph, forward and backward, and none of that code runs. Benchmarks are counted instead of run.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch
import torch._inductor.config
from block import LLAMA, Block
from problems import FORUM, FORUM_SIZES
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch._inductor import compile_fx, select_algorithm
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel import bmm, mm
from torch._inductor.runtime.benchmarking import Benchmarker, InductorBenchmarker, TritonBenchmarker
from torch._inductor.virtualized import V
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils._triton import has_triton

from gemmtune.engine.consumers.inductor.capture.fake_gpu import GPU, allow_cuda_tensors
from gemmtune.engine.records import catalogue
from gemmtune.engine.toolchain.absent_gpu import target

SIZES = (1, 2, 16, 64, 256, 560, 1024, 2048, 4096)


def main(table: str, out: Path) -> None:
    torch._dynamo.config.recompile_limit = 64
    allow_cuda_tensors()
    options = {"compile_threads": 1, "fx_graph_cache": False}
    if table != "-":
        sys.path.insert(0, table)
        import gemmtune_inductor

        gemmtune_inductor.install(policy="strict")
        options |= gemmtune_inductor.options()
    else:
        options |= {"max_autotune_gemm": True, "shape_padding": False}
    counts = Counts()
    attends = patch("torch.nn.functional.scaled_dot_product_attention", attention)
    with attends, counts.listening(), functorch_config.patch(enable_autograd_cache=False):
        rows = [*forum(options, counts), *block(options, counts)]
    out.write_text(json.dumps(rows))


def forum(options: dict[str, object], counts: Counts) -> Iterator[dict]:
    """Run a layer with a bias, one m after another, without marks; the forum's three m come first."""
    inputs, outputs = FORUM
    layer = torch.nn.Linear(inputs, outputs, device="meta", dtype=torch.bfloat16)
    sizes = (*FORUM_SIZES, *(m for m in SIZES if m not in FORUM_SIZES))
    yield from program("forum", layer, sizes, options, counts, marked=False)


def block(options: dict[str, object], counts: Counts) -> Iterator[dict]:
    yield from program("block", Block(LLAMA, "meta", torch.bfloat16), SIZES, options, counts, marked=True)


def program(name: str, model: torch.nn.Module, sizes: tuple, options: dict, counts: Counts, *, marked: bool):
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=compiler(options))
    width = next(model.parameters()).shape[-1]
    for m in sizes:
        x = torch.randn(m, width, device="meta", dtype=torch.bfloat16, requires_grad=True)
        if marked and m > 1:
            torch._dynamo.mark_dynamic(x, 0)
        counters.clear()
        counts.clear()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            step(compiled, x)
        row = {"program": name, "m": m, "graphs": counters["stats"]["unique_graphs"], **counts.report()}
        row["said"] = sorted({str(w.message) for w in said if "gemmtune" in str(w.message)})
        print(row, flush=True)
        yield row


def step(compiled: Callable, x: torch.Tensor) -> None:
    """Run forward here, and backward in a thread of its own, like autograd on a GPU."""
    y = compiled(x)
    failed = []

    def backward() -> None:
        try:
            y.backward(torch.empty_like(y))
        except Exception as error:  # handed to the thread that waits
            failed.append(error)

    thread = threading.Thread(target=backward)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def compiler(options: dict[str, object]) -> Callable:
    """Return a torch.compile backend that is Inductor without its compilers."""
    passes = partial(joint, compile_fx._recursive_joint_graph_passes)

    def compile_graph(module: torch.fx.GraphModule, inputs: list) -> Callable:
        with patch.object(compile_fx, "_recursive_joint_graph_passes", passes):
            return compile_fx.compile_fx(module, inputs, inner_compile=lowered, config_patches=options)

    return compile_graph


def lowered(module: torch.fx.GraphModule, inputs: list, **settings: object) -> object:
    """Run Inductor's own step for one graph, forward or backward."""
    with h200():
        return compile_fx.compile_fx_inner(module, on_gpu(module), **settings)


def on_gpu(module: torch.fx.GraphModule) -> list:
    """Declare that every tensor of a graph is on the GPU, and return the graph's inputs."""
    nodes = module.graph.nodes
    inputs = [node.meta["val"] for node in nodes if node.op == "placeholder"]
    mode = next(value.fake_mode for value in inputs if isinstance(value, torch.Tensor))
    for node in nodes:
        if node.kwargs.get("device") == torch.device("meta"):
            node.update_kwarg("device", GPU)
    with mode, torch.no_grad():
        inputs = [placed(value) if isinstance(value, torch.Tensor) else value for value in inputs]
    with torch.no_grad():
        FakeTensorProp(module, mode).propagate_dont_convert_inputs(*inputs)
    return inputs


def placed(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=GPU)


def joint(passes: Callable, module: torch.fx.GraphModule, *arguments: object, **settings: object) -> object:
    """Run Inductor's passes over the joint graph, which would mistake a meta tensor for one without a value."""
    on_gpu(module)
    return passes(module, *arguments, **settings)


class Counts:
    """Counts of calls to the choices handler and the autotuner since the last `clear`, forward and backward.

    `products` counts those for which Inductor sought a kernel. `triton` and `aten` count the ones with that single
    choice, and `several` those with more. `lookups` counts look-ups in the table: two per addmm from torch 2.12 on,
    three from 2.13 on. `benchmarks` counts the kernels that would have been timed.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def clear(self) -> None:
        self._counts.clear()

    def report(self) -> dict[str, int]:
        names = ("products", "lookups", "triton", "aten", "several", "benchmarks")
        return {name: self._counts[name] for name in names}

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for module in (mm, bmm):
                select = module.autotune_select_algorithm
                stack.enter_context(patch.object(module, "autotune_select_algorithm", partial(self._select, select)))
            stack.enter_context(patch.object(select_algorithm.AlgorithmSelectorCache, "do_autotuning", self._tune))
            for kind in (Benchmarker, InductorBenchmarker, TritonBenchmarker):
                for name in ("benchmark", "benchmark_gpu", "benchmark_cpu"):
                    if name in vars(kind):
                        stack.enter_context(patch.object(kind, name, self._time))
            if hasattr(V.choices, "_find"):
                stack.enter_context(patch.object(V.choices, "_find", partial(self._find, V.choices._find)))
            yield

    def _find(self, find: Callable, *asked: object) -> object:
        self._counts["lookups"] += not isinstance(asked[0], str)
        return find(*asked)

    def _select(self, select: Callable, name: str, choices: list, *args: object, **kwargs: object) -> object:
        self._counts["products"] += 1
        if len(choices) > 1:
            self._counts["several"] += 1
        else:
            extern = isinstance(choices[0], select_algorithm.ExternKernelCaller)
            self._counts["aten" if extern else "triton"] += 1
        return select(name, choices, *args, **kwargs)

    def _tune(self, *arguments: object, **settings: object) -> dict:
        """Replace do_autotuning(name, input_nodes, layout, input_gen_fns, inputs_key, choices, ...)."""
        choices = settings["choices"] if "choices" in settings else arguments[5]
        self._counts["benchmarks"] += len(choices)
        return {choice: float(position) for position, choice in enumerate(choices, start=1)}

    def _time(self, *_: object, **__: object) -> float:
        self._counts["benchmarks"] += 1
        return 1.0


@contextlib.contextmanager
def h200() -> Iterator[None]:
    """Answer the questions of Dynamo, Inductor and Triton about the GPU as an H200 does."""
    answers = {
        "torch.cuda.is_available": lambda: True,
        "torch.cuda.device_count": lambda: 1,
        "torch.cuda.is_tf32_supported": lambda: True,
        "torch.cuda.get_rng_state": lambda *_: torch.empty(0),
        "torch.cuda.set_rng_state": lambda *_: None,
        "torch.cuda._exchange_device": lambda _: 0,
        "torch.cuda._maybe_exchange_device": lambda _: 0,
        "torch.utils._triton.has_triton_tma_device": lambda: True,
        "torch._subclasses.fake_tensor.init_gpu_context": lambda *_: None,
    }
    with target(catalogue.device("H200")), contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(patch(name, answer))
        has_triton.cache_clear()
        stack.enter_context(patch.object(GraphLowering, "compile_to_module", generated))
        yield


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, is_causal: bool) -> torch.Tensor:
    """Return the operator that torch selects on a GPU; to select it, torch would ask the driver."""
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal)[0]


def generated(graph: GraphLowering) -> SimpleNamespace:
    """Generate the graph's code, and return a function that makes its outputs on the meta device."""
    graph.codegen()
    nodes = graph.orig_gm.graph.nodes
    taken = [node.meta["val"] for node in nodes if node.op == "placeholder"]
    (result,) = next(node for node in nodes if node.op == "output").args
    made = [node.meta["val"] if isinstance(node, torch.fx.Node) else node for node in result]

    def call(arguments: list) -> list:
        values = {}
        for given, value in zip(arguments, taken, strict=True):
            pairs = zip(value.shape, given.shape, strict=True) if isinstance(value, torch.Tensor) else [(value, given)]
            for size, number in pairs:
                if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                    values[size.node.expr] = int(number)
        arguments.clear()
        number = lambda size: int(size.node.expr.subs(values)) if isinstance(size, torch.SymInt) else size  # noqa: E731
        return [
            torch.empty_strided(
                [number(size) for size in value.shape],
                [number(stride) for stride in value.stride()],
                dtype=value.dtype,
                device="meta",
            )
            if isinstance(value, torch.Tensor)
            else number(value)
            for value in made
        ]

    return SimpleNamespace(call=call, __file__=__file__, runner=None)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
