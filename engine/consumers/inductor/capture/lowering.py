"""Lowering of a model's graphs by Inductor, whose code is not generated. Imports torch.

Dynamo and AOTAutograd trace the model as they do for torch.compile. Inductor runs its passes and lowers each graph for
the device, forward and backward, under the settings that a table needs. The graph itself is then run by torch's
interpreter: on tensors without data, or on a GPU.
"""

import contextlib
import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch._dynamo import config as dynamo_config
from torch._functorch import config as functorch_config
from torch._inductor import compile_fx
from torch._inductor.fx_passes import pad_mm
from torch._inductor.graph import GraphLowering
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._sympy.value_ranges import ValueRanges

from gemmtune.engine.consumers.inductor.capture.captured import CapturedProduct, Unseen
from gemmtune.engine.consumers.inductor.capture.mask_values import stated_values
from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN
from gemmtune.engine.consumers.inductor.floor.graph_costs import cost_of_node, rest_bytes
from gemmtune.engine.consumers.inductor.floor.shares import Cost
from gemmtune.engine.consumers.inductor.graphs.flex_nodes import flex_problem
from gemmtune.engine.consumers.inductor.graphs.spans import bounds_of
from gemmtune.engine.consumers.inductor.inputs import OpenSize
from gemmtune.engine.consumers.inductor.loader.explain.table_use import LIBRARY, problem_name
from gemmtune.engine.consumers.inductor.loader.flex.flex_calls import GRAPH_AND_MASK, FlexCall
from gemmtune.engine.consumers.inductor.loader.grouped.grouped_products import GROUPED, GroupedProduct, grouped_product
from gemmtune.engine.consumers.inductor.loader.hooks.activation import CONVOLUTION, lower_convolution, should_pad
from gemmtune.engine.consumers.inductor.loader.loader import options
from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct
from gemmtune.engine.consumers.inductor.loader.recorder import (
    RecordingChoices,
    divisor,
    epilogue_text,
    library_nodes,
    part_runs,
    span_of,
)
from gemmtune.engine.io.blame import line_in
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.records.workload import spanning

_SETTINGS = {**options(), "fx_graph_cache": False, "compile_threads": 1}
"""Settings that a table needs, without caches: a cached graph lowers nothing."""
_UNUSED: Mapping[str, Callable[..., Any]] = {
    "torch._dynamo.symbolic_convert.get_funcname": lambda *_: None,
    "torch._dynamo.guards.profile_guard_manager": lambda *_: 0.0,
}
"""Functions whose results Dynamo writes to logs alone: they parse a model's sources, and flush a core's caches."""

_OF_ONE_TYPE = [getattr(torch.ops.aten, name).default for name in ("mm", "addmm", "bmm", "baddbmm")]
"""Products whose operands need one type."""


@dataclass
class _Graph:
    """A graph that Inductor lowered."""

    products: list[CapturedProduct] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    calls: dict[tuple[str, str], Counter[Cost]] = field(default_factory=lambda: defaultdict(Counter))
    """Calls of kernels of others, by operation and reason, and by cost; less those that were lowered to products."""
    rest_bytes: float = 0.0
    """Bytes per run that everything but products and these calls moves."""
    attentions: dict[str, tuple[int, FlexCall]] = field(default_factory=dict)
    """Places among the products of attentions that did not run yet, by the names of their nodes."""
    runs: int = 0
    """Runs in the current call of the model."""


class Lowering:
    """Graphs of one capture, and the products in each.

    Attributes:
        uuid: text that no other recording has.
        compiled: occurrences in all graphs by the name of the problem.
        is_running: whether a graph is traced, lowered or run now.
        mixed: operands of a product of two types, which no kernel takes and tensors without data do not notice; or
            empty.
    """

    uuid = "capture"

    def __init__(
        self,
        sizes: Sequence[OpenSize],
        calls: Sequence[Mapping[str, int]],
        value_of: Callable[[torch.Tensor], torch.Tensor | None],
    ) -> None:
        """Begin for open sizes, which graphs know by their values in the calls, unless two share one.

        `value_of` returns the values of a tensor that a graph reads when it runs, None where they are unknown.
        """
        self._value_of = value_of
        self._ranges: dict[int, OpenSize] = {}
        for values, size in ((values, size) for values in calls for size in sizes):
            if [*values.values()].count(values[size.name]) == 1:
                self._ranges.setdefault(values[size.name], size)
        self._graphs: list[_Graph] = []
        self._current = _Graph()
        self._depth = 0
        self.compiled: Counter[str] = Counter()
        self.mixed = ""
        self.drawn: set[int] = set()
        """Storages of the inputs that stand for a user's: no problem states their values."""

    @property
    def is_running(self) -> bool:
        """Whether a graph is traced, lowered or run now."""
        return self._depth > 0

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """Lower every graph that is compiled meanwhile, generate no code, and take nothing from caches."""

        def run_live(graph: Any, *arguments: Any, run: Any = GraphLowering.run) -> object:  # noqa: ANN401 (as below)
            graph.module.graph.eliminate_dead_code(  # as the scheduler does, which does not run here
                lambda node: node.is_impure() or not isinstance(node.target, torch._ops.OpOverload)
            )
            return run(graph, *arguments)

        def without_code(graph: Any) -> SimpleNamespace:  # noqa: ANN401 (Inductor's GraphLowering)
            called = list(library_nodes(graph.module))
            for node, operation, reason in called:
                grouped = grouped_product(node) if node.target in GROUPED else ""
                if isinstance(grouped, GroupedProduct):
                    self._append(Grouped.parse(problem_name(grouped.key, grouped.hint)), *grouped)
                elif not isinstance(attention := flex_problem(node), str):
                    self._current.attentions[node.name] = len(self._current.products), (call := attention[1])
                    self._append(attention[0], call.key, call.length, call.hint)
                else:
                    named = f"{operation}{_sizes(operation, node)}"
                    self._current.calls[named, grouped or attention or reason][cost_of_node(node)] += 1
            self._current.rest_bytes += rest_bytes(part_runs(graph.module), [node for node, *_ in called])
            graph.scheduler = SimpleNamespace(nodes=[])
            return SimpleNamespace(call=lambda _: None, __file__=__file__, runner=None)

        with (
            contextlib.ExitStack() as stack,
            dynamo_config.patch(run_gc_after_compile=False),  # a search for cycles per graph
            functorch_config.patch(
                enable_autograd_cache=False,
                donated_buffer=False,
                graphsafe_rng_functionalization=False,  # it asks for the GPU's random generators
            ),
            patch.object(GraphLowering, "compile_to_module", without_code),
            patch.object(GraphLowering, "run", run_live),
            patch.object(pad_mm, "should_pad", should_pad),
            patch.dict(lowerings, {CONVOLUTION: partial(lower_convolution, lowerings[CONVOLUTION])}),
        ):
            for name, answer in _UNUSED.items():
                stack.enter_context(patch(name, answer))
            yield

    def compile(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile a graph of Dynamo, as a backend of torch.compile."""
        with self._busy():
            compile_graph: Any = compile_fx.compile_fx  # its types allow Inductor's own code alone
            compiled = compile_graph(module, inputs, inner_compile=self._lower, config_patches=_SETTINGS)

        def run(*arguments: Any) -> Any:  # noqa: ANN401 (torch's protocol)
            with self._busy():
                return compiled(*arguments)

        return run

    def add(self, product: LoweredProduct | str, node: Any, graph: Any) -> None:  # noqa: ANN401 (torch's)
        """Take a product of the graph that is lowered now."""
        if isinstance(product, str):
            operation, _, reason = product.partition(": ")
            costs = {cost_of_node(node): 1.0} if isinstance(node, torch.fx.Node) else {}
            self._current.unseen.append(Unseen(operation, reason, 1, costs))
            return
        if isinstance(node, torch.fx.Node):
            self._current.calls[str(node.target), LIBRARY][cost_of_node(node)] -= 1  # a 1x1 convolution
        problem = Problem.parse(problem_name(product.key, product.hint))
        chain = epilogue_text(node)
        found = CapturedProduct(problem, 1, epilogues=((chain, 1),) if chain else ())
        found = self._opened(product, found) if product.is_dynamic else found
        spread = self._of_batches(product, found) if getattr(product.batch, "free_symbols", None) else [found]
        self._current.products += spread
        self.compiled.update(each.problem.name for one in spread for each in one.variants)

    def see_graph(self, graph: Any) -> None:  # noqa: ANN401 (torch's)
        """Take nothing: `settings` does once the graph is lowered."""

    def _append(self, problem: Grouped | Flex, key: str, size: Any, hint: int) -> None:  # noqa: ANN401 (as below)
        """Take a grouped product, or an attention, of the graph that is lowered now; its range size may be open."""
        product, found = LoweredProduct(size, hint, key, 0, PLAIN), CapturedProduct(problem, 1)
        self._current.products.append(self._opened(product, found) if product.is_dynamic else found)
        self.compiled[problem.name] += 1

    def _opened(self, product: LoweredProduct, found: CapturedProduct) -> CapturedProduct:
        """Return a product with the range of its open m."""
        first, last = self._span(product)
        return replace(found, m=str(product.m), first=max(2, first), last=last, step=divisor(product.m))

    def _of_batches(self, product: LoweredProduct, found: CapturedProduct) -> list[CapturedProduct]:
        """Return a product at the sizes that span its open batch, which share its run."""
        first, last = self._span(replace(product, m=product.batch))
        problem = gemm(found.problem)
        sizes = spanning(max(2, first), last, divisor(product.batch)) or (problem.batch,)
        each = found.times(1 / len(sizes))
        return [replace(each, problem=replace(problem, batch=size)) for size in sizes]

    def _see_mask(self, graph: _Graph, name: str, place: int, *arguments: Any) -> None:  # noqa: ANN401 (torch's)
        """State the values that an attention's mask reads when it first runs; `place` is that of the mask."""
        at, call = graph.attentions.pop(name, (0, None))
        if call is None:
            return
        tensors = [each for each in arguments[place + 4] if isinstance(each, torch.Tensor)]
        if any(tensors[each].untyped_storage()._cdata in self.drawn for each in call.read):
            return
        read = [self._value_of(tensors[each]) for each in call.read]
        counts = [None if each is None else self._value_of(each) for each in arguments[place][2:6:2]]
        before = graph.products[at].problem
        assert isinstance(before, Flex)
        problem = Flex.from_fields({**before.to_fields(), **stated_values(before, read, counts)})
        graph.products[at] = replace(graph.products[at], problem=problem)
        self.compiled.update({problem.name: 1})
        self.compiled = +(self.compiled - Counter([before.name]))

    def take_runs(self) -> tuple[list[CapturedProduct], list[Unseen], float]:
        """Return the products, other work and other bytes that ran since the last call, and start to count anew."""
        ran = [graph for graph in self._graphs if graph.runs]
        products = [product.times(graph.runs) for graph in ran for product in graph.products]
        unseen = [work.times(graph.runs) for graph in ran for work in graph.unseen]
        rest = sum(graph.rest_bytes * graph.runs for graph in ran)
        for graph in self._graphs:
            graph.runs = 0
        return products, unseen, rest

    def _lower(self, module: torch.fx.GraphModule, inputs: Sequence[Any], **settings: Any) -> Callable[..., Any]:  # noqa: ANN401 (torch's protocol)
        """Lower one graph, forward or backward, and return a function that runs it by torch's interpreter."""
        self.mixed = self.mixed or _mixed(module)
        with unset_fake_temporarily():  # constants of the graph have data
            whole = copy.deepcopy(module)
        graph = _Graph()
        for node in whole.graph.nodes:
            if (
                place := GRAPH_AND_MASK.get(getattr(node.target, "__name__", ""), (0, 0))[1]
            ) and node.op == "call_function":
                node.target = _watched(node.target, partial(self._see_mask, graph, node.name, place))
        whole.recompile()
        self._graphs.append(graph)
        self._current = graph
        with V.set_choices_handler(RecordingChoices(self, only_aten=True)):
            compile_fx.compile_fx_inner(module, inputs, **settings)
        for call, costs in graph.calls.items():
            if (count := costs.total()) > 0:
                graph.unseen.append(
                    Unseen(*call, count, {cost: float(runs) for cost, runs in costs.items() if runs > 0})
                )

        def run(arguments: list[Any]) -> Any:  # noqa: ANN401 (torch's protocol)
            graph.runs += 1
            given = list(arguments)
            arguments.clear()
            with self._busy():
                return whole(*given)

        run._boxed_call = True  # type: ignore[attr-defined] # torch's protocol: the list is emptied
        return run

    def _span(self, product: LoweredProduct) -> tuple[int, int | None]:
        """Return the least and the greatest m of a graph whose symbols lie in the ranges of the open sizes."""
        shapes: Any = V.graph.sizevars.shape_env
        values = shapes.backed_var_to_val if hasattr(shapes, "backed_var_to_val") else shapes.var_to_val  # until 2.12
        known: dict[Any, Any] = {}
        for symbol in product.m.free_symbols:
            bounds = shapes.bound_sympy(symbol)
            size = self._ranges.get(int(values.get(symbol, 0)))
            lower, upper = bounds.lower, bounds.upper
            known[symbol] = ValueRanges(max(lower, size.first), min(upper, size.last)) if size else bounds
        if all(bounds.is_int and bounds.upper < 2**62 for bounds in known.values()):
            return bounds_of(product.m, known)
        return span_of(product)

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1


def _sizes(operation: str, node: torch.fx.Node) -> str:
    """Return the sizes of attention's queries, keys and values, or a product's matrices, as `[2, 8, 512, 64]×...`."""
    if "mm" in (name := operation.partition(".")[2]) and "grouped" not in name:  # whose reason has sizes
        values = [each.meta.get("val") for each in node.all_input_nodes]
        return "×".join(str([*x.shape]) for x in values if isinstance(x, torch.Tensor) and x.dim() > 1)
    operator, *arguments = node.target, *node.args
    for place, each in enumerate(arguments):
        if isinstance(each, torch._ops.OpOverload):  # in a checkpointed block, with a state of randomness
            operator, arguments = each, arguments[place + 1 :]
            break
    schema = getattr(operator, "_schema", None)
    if schema is None or "scaled_dot_product" not in schema.name:
        return ""
    given = dict(zip((each.name for each in schema.arguments), arguments, strict=False))
    read = [given[name] for name in ("query", "key", "value") if isinstance(given.get(name), torch.fx.Node)]
    return "×".join(str([*each.meta["val"].shape]) for each in read)


def _watched(operator: Any, see: Callable[..., None]) -> Callable[..., Any]:  # noqa: ANN401 (torch's)
    """Return an operator that shows its arguments before it runs."""

    def attention_watched(*arguments: Any) -> Any:  # noqa: ANN401 (as above)
        see(*arguments)
        return operator(*arguments)

    return attention_watched


def _mixed(module: torch.fx.GraphModule) -> str:
    """Return the operands of a product that differ in type, the first one found; empty if there is none."""
    for node in module.graph.nodes:
        if node.target in _OF_ONE_TYPE:
            values = [each.meta["val"] for each in node.all_input_nodes]
            if len({each.dtype for each in values}) > 1:
                operands = " and ".join(f"{str(v.dtype).removeprefix('torch.')}{list(v.shape)}" for v in values)
                place = line_in(node.meta.get("stack_trace") or "")
                return f"{operands} ({place})" if place else operands
    return ""
