"""Record of the products that Inductor lowers, for `record` in a running program and for `gemmtune capture`.

Needs torch alone. The file of `record` has one JSON object per line:

    {"type": "start", "process": "6f0c...", "torch": "2.13.0", "device": "NVIDIA H200"}
    {"type": "product", "process": "6f0c...", "graph": 1, "problem": "16x4096x4096:bf16:nt", ...}
    {"type": "unseen", "process": "6f0c...", "graph": 1, "operation": "mm_plus_mm", "reason": "two products of ..."}
    {"type": "runs", "process": "6f0c...", "graph": 1, "runs": 64}
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4
from weakref import WeakKeyDictionary

import torch
from torch._inductor.lowering import fallback_node_due_to_unsupported_type, lowerings
from torch._inductor.virtualized import V

from gemmtune.engine.consumers.inductor.epilogues.reader import read_epilogue
from gemmtune.engine.consumers.inductor.loader.boundary import absent, nothing, or_else
from gemmtune.engine.consumers.inductor.loader.explain.table_use import LIBRARY, problem_name
from gemmtune.engine.consumers.inductor.loader.hooks.quantised import quantised_product
from gemmtune.engine.consumers.inductor.loader.lowered import (
    AtenChoices,
    LoweredProduct,
    Template,
    is_for_aten,
    lowered_product,
    root_of,
)

if TYPE_CHECKING:
    from torch._inductor.ir import ChoiceCaller
    from torch._inductor.kernel_inputs import KernelInputs

__all__ = ["ProductFile", "absent"]

_LIBRARY_CALLS = (
    *("int4pack", "int8pack", "semi_structured", ".addbmm", "_addmm_activation", "._trilinear"),
    *("dot_product", "cudnn_attention", "_flash_attention", "_efficient_attention", "convolution", "_rnn", "lstm"),
    "triton_kernel_wrapper",
)
"""Parts of names of operations that multiply matrices, or may, and are no product to Inductor."""
_FAST_PATH = " for all products; torch.backends.mha.set_fastpath_enabled(False) gives them rows"
_WAYS = dict.fromkeys(("_transformer_encoder_layer_fwd", "_native_multi_head_attention"), _FAST_PATH) | {
    "grouped_mm_fallback": "; in bfloat16, transformers calls torch's grouped product, which rows serve",
    "grouped_mm": "; gemmtune capture lists the model's grouped products, to tune them",
    "flex_attention": "; gemmtune capture lists the model's attention, to tune it",
}
"""Ways to products, by a part of the name of an operation; the first part that fits counts."""
_PRODUCTS = (
    *(f"aten.{name}." for name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "vdot", "_int_mm")),
    *("aten._scaled_mm.", "aten._scaled_mm_v2."),
)
"""Beginnings of names of ATen's products, which Inductor takes for its own unless it does not know their types."""
_COMPILED = (
    *("aten", "prims", "prim", "inductor", "inductor_prims", "higher_order", "_operator", "rngprims", "debugprims"),
)
"""Namespaces of operations whose code is Inductor's or ATen's."""
_SCALED = "aten._scaled_mm_v2."
"""Beginning of the name of a scaled product that Inductor lowers from torch 2.13 on."""
_GROWTH = 1.25  # of a graph's runs from one line of the file to the next
_UNBOUNDED = 2**62


class ProductSink(Protocol):
    """Receiver of the products of one recording."""

    uuid: str
    """Text that no other recording has; part of torch's cache keys, for a cached graph lowers nothing."""

    def add(self, product: LoweredProduct | str, node: Any, graph: Any) -> None:  # noqa: ANN401 (torch's)
        """Take a product of a graph, or the operation and why it is no problem; called by any thread."""

    def see_graph(self, graph: Any) -> None:  # noqa: ANN401 (Inductor's GraphLowering)
        """Take the calls of libraries in a graph that is lowered now; called by any thread."""


class RecordingChoices(AtenChoices):
    """Inductor's choices, with a record of each product."""

    def __init__(self, sink: ProductSink, *, only_aten: bool = False) -> None:
        self._sink, self._only_aten = sink, only_aten

    def uuid(self) -> str:
        """Return the recording's part of every compile cache key."""
        return f"gemmtune-record:{self._sink.uuid}"

    def run_graph(self, run: Callable[..., Any], graph: Any, *inputs: Any, **named: Any) -> Any:  # noqa: ANN401 (torch's)
        """Lower a graph by Inductor's function, and record its calls of libraries before."""
        self._sink.see_graph(graph)
        return run(graph, *inputs, **named)

    def get_template_configs(
        self,
        kernel_inputs: KernelInputs,
        templates: list[Template],
        op_name: str,
        kwarg_overrides: dict[str, dict[str, Any]] | None = None,
    ) -> list[ChoiceCaller]:
        """Return Inductor's own choices, or ATen's alone."""
        see(self._sink, kernel_inputs, templates, op_name)
        if not self._only_aten or kernel_inputs.device().type != "cuda":
            return super().get_template_configs(kernel_inputs, templates, op_name, kwarg_overrides)
        if not is_for_aten(op_name, templates):
            return []
        return self.aten(kernel_inputs, templates, op_name, kwarg_overrides)

    def takes_convolution(self, product: LoweredProduct, _device: torch.device) -> bool:
        """Record a convolution of 1x1 as the product that a table serves, and leave it as it is."""
        _hand(self._sink, product)
        return False


@or_else(nothing)
def see(sink: ProductSink, kernel_inputs: KernelInputs, templates: list[Template], op_name: str) -> None:
    """Hand a product that Inductor asks about to a sink; once where Inductor asks several times."""
    if not is_for_aten(op_name, templates):
        return
    device = kernel_inputs.device()
    found = quantised_product(kernel_inputs, op_name) or lowered_product(kernel_inputs, op_name)
    product = found if device.type == "cuda" else f"{op_name}: on {device}, no GPU"
    if product:
        _hand(sink, product)


def _hand(sink: ProductSink, product: LoweredProduct | str) -> None:
    root = root_of(V.graph)
    for _ in range(1 if V.graph is root else part_runs(root.module)[V.graph.module]):
        sink.add(product, V.graph.current_node, root)


def part_runs(module: torch.fx.GraphModule) -> Counter[Any]:
    """Return runs of each part per run of a graph: a marked region runs once per call, a branch as its owner does."""
    runs: Counter[Any] = Counter({module: 1})
    for owner in (each for each in module.modules() if isinstance(each, torch.fx.GraphModule)):  # before its parts
        for name, part in owner.named_children():
            users = [user for node in owner.graph.find_nodes(op="get_attr", target=name) for user in node.users]
            called = [getattr(each, "__name__", "") for user in users for each in (user.target, *user.args)]
            if isinstance(part, torch.fx.GraphModule):
                runs[part] += runs[owner] * max(1, called.count("invoke_subgraph"))
    return runs


def span_of(product: LoweredProduct) -> tuple[int, int | None]:
    """Return the least and the greatest m that a product's graph serves; None without an end."""
    if not product.is_dynamic:
        return product.hint, product.hint
    bounds = V.graph.sizevars.shape_env.bound_sympy(product.m)
    return int(max(1, bounds.lower)), None if bounds.upper > _UNBOUNDED else int(bounds.upper)


def divisor(m: Any) -> int:  # noqa: ANN401 (sympy's)
    """Return the divisor of every value of an m: 128 for 128·s, and 1 for a sum or a number."""
    coefficient = m.as_coeff_Mul()[0] if getattr(m, "free_symbols", None) else 1
    return int(coefficient) if coefficient == int(coefficient) and coefficient > 0 else 1


def epilogue_text(node: Any) -> str:  # noqa: ANN401 (torch's)
    """Return the chain that Inductor can fuse behind a product; empty without one, or its reason to have no text."""
    if not isinstance(node, torch.fx.Node):
        return ""
    found = read_epilogue(node)
    if found.epilogue is None:
        return f"unreadable: {found.reason}"
    return str(found.epilogue) if found.epilogue else ""


def library_calls(module: torch.fx.GraphModule) -> Counter[tuple[str, str]]:
    """Return the calls in a graph that run a library's or a user's kernel and are no product to Inductor.

    A call has the operation's name and the reason why no row serves it. Branches and bodies of loops count once.
    """
    return Counter((operation, reason) for _, operation, reason in library_nodes(module))


def library_nodes(module: torch.fx.GraphModule) -> Iterator[tuple[torch.fx.Node, str, str]]:
    """Yield the nodes of `library_calls` per run, each with the operation's name and why no row serves it."""
    for part, runs in part_runs(module).items():
        for node in part.graph.nodes:
            if node.op == "call_function" and (reason := _why_library(node)):
                yield from [(node, str(_operation(node)), reason)] * runs


def _operation(node: torch.fx.Node) -> object:
    """Return the operation of a call; in a checkpointed block, the one that a call runs with a state of randomness.

    A product with a weight of int8, which Inductor makes of three operations, is the one that it lowers to.
    """
    if getattr(node.target, "__name__", "") == "woq_int8":
        return torch.ops.aten._weight_int8pack_mm.default
    return next((each for each in node.args if isinstance(each, torch._ops.OpOverload)), node.target)


def _why_library(node: torch.fx.Node) -> str:
    """Return why no row serves a call that is no product to Inductor; empty for Inductor's own code and products."""
    operation = _operation(node)
    name = str(operation)
    if way := next((its for part, its in _WAYS.items() if part in name), ""):
        return f"{LIBRARY}{way}"
    if name.startswith(_PRODUCTS) and fallback_node_due_to_unsupported_type(node):
        return f"tables have no rows of {str(node.all_input_nodes[0].meta['val'].dtype).removeprefix('torch.')}"
    space = name.partition(".")[0] if isinstance(operation, torch._ops.OpOverload) else "_operator"
    is_library = any(part in name for part in _LIBRARY_CALLS) or space not in _COMPILED
    is_library = is_library or (name.startswith(_SCALED) and operation not in lowerings)
    return LIBRARY if is_library else ""


class ProductFile:
    """File of the products of a running program. Each line is written whole, so a kill loses none."""

    def __init__(self, path: str | Path) -> None:
        self.uuid = uuid4().hex
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = Lock()
        self._numbers: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._graphs = 0
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else None
        self._write("start", torch=torch.__version__, device=device)

    def add(self, product: LoweredProduct | str, node: Any, graph: Any) -> None:  # noqa: ANN401 (torch's)
        """Append a product of a graph, or the operation and why it is no problem."""
        with self._lock:
            number = self._number_of(graph)
        if isinstance(product, str):
            operation, _, reason = product.partition(": ")
            self._write("unseen", graph=number, operation=operation, reason=reason, count=1)
        else:
            first, last = span_of(product)
            name = problem_name(product.key, product.hint)
            chain = epilogue_text(node)
            span = {"first": first, "last": last, "step": divisor(product.m)}
            self._write("product", graph=number, problem=name, epilogue=chain, m=str(product.m), **span)

    def choices(self) -> RecordingChoices:
        """Return Inductor's own choices, of which each product is appended."""
        return RecordingChoices(self)

    def see(self, kernel_inputs: KernelInputs, templates: list[Template], op_name: str) -> None:
        """Append a product that Inductor asks about."""
        see(self, kernel_inputs, templates, op_name)

    @or_else(nothing)
    def see_graph(self, graph: Any) -> None:  # noqa: ANN401 (Inductor's GraphLowering)
        """Take the calls of a graph that Inductor lowers, of one without a product, too."""
        if getattr(graph, "parent", None) is None and _calls_of(graph):
            with self._lock:
                self._number_of(graph)

    def close(self) -> None:
        """Close the file; what is lowered or runs later is not recorded."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _number_of(self, graph: Any) -> int:  # noqa: ANN401 (Inductor's GraphLowering)
        """Return the number of a graph, whose calls of libraries are written when it is new. Callers hold the lock."""
        number = self._numbers.get(graph)
        if number is None:
            self._graphs += 1
            number = self._numbers[graph] = self._graphs
            for (operation, reason), count in _calls_of(graph).items():
                self._write("unseen", graph=number, operation=operation, reason=reason, count=count)
            _count_runs(graph, _Runs(lambda runs: self._write("runs", graph=number, runs=runs)))
        return number

    def _write(self, kind: str, **fields: object) -> None:
        line = json.dumps({"type": kind, "process": self.uuid, **fields}) + "\n"
        if self._file is not None:
            os.write(self._file, line.encode())


class _Runs:
    """Counter of a graph's runs that reports rarely as they grow."""

    def __init__(self, report: Callable[[int], None]) -> None:
        self._report, self._runs, self._next, self._lock = report, 0, 1, Lock()

    @or_else(nothing)
    def __call__(self) -> None:
        """Count a run of the graph."""
        with self._lock:
            self._runs += 1
            if self._runs < self._next:
                return
            self._next = max(self._runs + 1, int(self._runs * _GROWTH))
            runs = self._runs
        self._report(runs)


def _calls_of(graph: Any) -> Counter[tuple[str, str]]:  # noqa: ANN401 (Inductor's GraphLowering)
    module = getattr(graph, "module", None)
    return library_calls(module) if isinstance(module, torch.fx.GraphModule) else Counter()


def _count_runs(graph: Any, ran: Callable[[], None]) -> None:  # noqa: ANN401 (Inductor's GraphLowering)
    """Call a function whenever the code of a graph runs; replays of a CUDA graph run no code.

    Graphs of equal code share a module, so the module stays as it is.
    """
    compile_to_module = getattr(graph, "compile_to_module", None)
    if compile_to_module is None:
        return

    def compiled() -> object:
        del graph.compile_to_module
        return _with_runs(compile_to_module(), ran)

    graph.compile_to_module = compiled


@or_else(lambda module, *_: module)
def _with_runs(module: Any, ran: Callable[[], None]) -> Any:  # noqa: ANN401 (a module)
    """Return a module of generated code whose calls are counted."""
    run = module.call

    def call(*arguments: object) -> object:
        ran()
        return run(*arguments)

    return SimpleNamespace(**{**vars(module), "call": call})
