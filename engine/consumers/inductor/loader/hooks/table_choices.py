"""Inductor's choices by a table: one kernel per product. Needs torch, and the CuTe packages for rows of theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.kernel.bmm import bmm_template
from torch._inductor.kernel.mm import decompose_k_subgraph_template, mm_template
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.utils import _use_autotune_backend
from torch._inductor.virtualized import V

from gemmtune.engine.consumers.inductor.loader.biases import leave_out_bias, with_whole_bias
from gemmtune.engine.consumers.inductor.loader.boundary import nothing, or_else
from gemmtune.engine.consumers.inductor.loader.hooks.binaries import Binaries
from gemmtune.engine.consumers.inductor.loader.hooks.dynamic_rows import dynamic_row
from gemmtune.engine.consumers.inductor.loader.hooks.flex_rows import FLEX_TEMPLATES
from gemmtune.engine.consumers.inductor.loader.hooks.open_sizes import as_in_table
from gemmtune.engine.consumers.inductor.loader.hooks.quantised import quantised_product, row_of, with_matrices
from gemmtune.engine.consumers.inductor.loader.loader_rows import InductorTable, ProductRow
from gemmtune.engine.consumers.inductor.loader.lowered import (
    AtenChoices,
    Counts,
    LoweredProduct,
    Overrides,
    Question,
    Template,
    fix_layouts,
    has_options,
    is_for_aten,
    is_for_templates,
    lowered_product,
    root_of,
)
from gemmtune.engine.consumers.inductor.loader.one_order import every_m, unstrided

if TYPE_CHECKING:
    from torch._inductor.codegen.common import KernelTemplate
    from torch._inductor.ir import ChoiceCaller
    from torch._inductor.kernel_inputs import KernelInputs
    from torch._inductor.scheduler import BaseSchedulerNode, Scheduler

_LOGIC = 24  # part of the cache key: add 1 whenever the loader compiles a row to something else
TRITON_TEMPLATES = {"triton::mm": mm_template, "triton::bmm": bmm_template}
"""Inductor's templates that rows may name."""


class TableChoices(AtenChoices):
    """Inductor's choices, one per product: the table's or ATen."""

    def __init__(
        self,
        table: InductorTable,
        policy: str,
        counts: Counts,
        recordings: Sequence[Any],
        *,
        refused: Sequence[str],
        binaries: bool,
    ) -> None:
        """Choose as `install` says, but for rows of `refused` templates; append products to each of `recordings`."""
        self._table, self._policy, self.counts, self._recordings = table, policy, counts, recordings
        used = {key: its for key, rows in table.rows.items() if (its := [r for r in rows if r.template not in refused])}
        self._rows = every_m(used) if table.batch_invariant else used
        self._failed: object = None  # node of the last product whose look-up failed; torch may ask again for it
        how = {"any_version": policy == "ignore", "allowed": binaries}
        self._binaries = Binaries(table.kernels, counts, **how) if table.kernels else None

    @property
    def is_batch_invariant(self) -> bool:
        """Whether equal rows of a product's operands have equal bits at every m."""
        return self._table.batch_invariant

    @property
    def autotunes(self) -> bool:
        """Whether Inductor tunes products without a row."""
        return self.counts.miss == "autotune"

    def uuid(self) -> str:
        """Return the table's part of every compile cache key; a recording has one of its own."""
        how = (self._policy, self.counts.miss, self._table.sha256, self._binaries.lacking if self._binaries else "")
        return ":".join(("gemmtune-table", str(_LOGIC), *how, *(each.uuid for each in self._recordings)))

    def run_graph(self, run: Callable[..., Any], graph: Any, *inputs: Any, **named: Any) -> Any:  # noqa: ANN401 (torch's)
        """Lower a graph by Inductor's function, and let the counts see what it asks no handler of choices for."""
        for each in (self.counts, *self._recordings):
            or_else(nothing)(getattr(each, "see_graph", nothing))(graph)  # a package beside may be an older one
        return run(graph, *inputs, **named)

    @or_else(lambda self, *asked, **named: self._after_failure(*asked, **named))
    def get_template_configs(
        self, kernel_inputs: KernelInputs, templates: list[Template], op_name: str, kwarg_overrides: Overrides = None
    ) -> list[ChoiceCaller]:
        """Return one choice per product; on devices other than CUDA GPUs, Inductor's own choices."""
        asked = kernel_inputs, templates, op_name
        if "decompose_k" in str(getattr(V.graph, "name", "")):  # a product of parts, within a row's choice
            return self.aten(*asked, kwarg_overrides)
        for recording in self._recordings:
            recording.see(*asked)
        device = kernel_inputs.device()
        if device.type != "cuda":
            if isinstance(kernel_inputs, MMKernelInputs) and is_for_aten(op_name, templates):
                self._count("other device", f"{op_name}: on the {device.type.upper()}")
            return super().get_template_configs(*asked, kwarg_overrides)
        if self._failed is not None and self._failed is _current_node():
            return self._after_failure(*asked, kwarg_overrides)
        found = quantised_product(kernel_inputs, op_name) or lowered_product(kernel_inputs, op_name)
        product, (key, row) = row_of(as_in_table(found, self._rows), lambda each: self._find(each, device))
        choices, instead_of, aten = None, "", partial(self.aten, *asked, kwarg_overrides)
        if self._binaries:
            choices, row, instead_of = self._binaries.serve(product, row, *asked, aten)
        if row is None or isinstance(product, str):
            answers = is_for_templates if self.autotunes else is_for_aten
            return self._without_row(asked, kwarg_overrides, answers, lambda: self._count_miss(product, device))
        is_apart = key == product.key or key != product.full_key  # whether an epilogue runs in a kernel of its own
        if choices is None:
            template = None if row.is_aten else self._usable(row)
            if not (is_for_aten if template is None else is_for_templates)(op_name, templates):
                return []
            if template is not None:
                chain = row.fuses_cheap and product.read.epilogue
                # An operand of the epilogue has another shape at m = 1, so that it may be cheap there alone.
                is_cheap = chain and chain.is_cheap and not (self.is_batch_invariant and chain.operands)
                is_apart = is_apart and not is_cheap
                fused = frozenset() if is_apart else product.read.nodes
                choices = self._render(row, template, product, fused, asked)
        if choices:
            self._count("next choice" if instead_of else "row", product, row, instead_of, key, is_apart)
        if choices is not None:
            return choices
        outcome = "unused row" if not row.is_aten else "next choice" if instead_of else "aten row"
        self._count(outcome, product, row, instead_of, key)
        return aten()

    def _without_row(
        self, asked: Question, overrides: Overrides, answers: Callable[..., bool], count: Callable[[], None]
    ) -> list[ChoiceCaller]:
        """Return what a product without a row runs; of its several questions, count the one that `answers` names."""
        _, templates, op_name = asked
        if is_first := answers(op_name, templates):
            count()
        if self.autotunes:
            return super().get_template_configs(*asked, overrides)
        return self.aten(*asked, overrides) if is_first else []

    @or_else(nothing)
    def _count(self, outcome: str, product: LoweredProduct | str, *of_row: Any) -> None:  # noqa: ANN401
        """Count a product by what it runs; arguments are those of `ProductNotes.record`."""
        if product:
            graph = None if outcome in ("other device", "failed") else root_of(V.graph)
            self.counts.record(outcome, graph, product, *of_row)

    def _count_miss(self, product: LoweredProduct | str, device: torch.device) -> None:
        if isinstance(product, str):
            self._count("no problem", product)
        else:
            self._count("miss", product, None, f"; the table is for {self._table.device}" * self.is_other_gpu(device))

    @or_else(lambda *_: False)
    def takes_convolution(self, product: LoweredProduct, device: torch.device) -> bool:
        """Return whether a row serves a convolution of 1x1, which then becomes a product."""
        if not has_options():
            return False
        if self._find(product, device)[1] is not None:
            return True
        for recording in self._recordings:
            recording.add(product, V.graph.current_node, root_of(V.graph))
        self._count_miss(product, device)
        return False

    @or_else(lambda self, *asked, **named: InductorChoices.get_template_configs(self, *asked, **named))  # noqa: PLW0108 (a torch may lack it)
    def _after_failure(
        self, kernel_inputs: KernelInputs, templates: list[Template], op_name: str, kwarg_overrides: Overrides = None
    ) -> list[ChoiceCaller]:
        """Return what a product without a row runs, for one whose look-up failed."""
        self._failed = _current_node()
        failed, asked = f"{op_name}: the look-up failed, see the warning", (kernel_inputs, templates, op_name)
        return self._without_row(asked, kwarg_overrides, is_for_aten, lambda: self._count("failed", failed))

    @staticmethod
    def can_fuse(
        scheduler: Scheduler, node1: BaseSchedulerNode, node2: BaseSchedulerNode, shared_data_score: int
    ) -> bool:
        """Keep everything out of a row's kernel but the epilogue that it may compute."""
        return may_fuse(node1, node2) and InductorChoices.can_fuse(scheduler, node1, node2, shared_data_score)

    def _find(self, product: LoweredProduct | str, device: torch.device) -> tuple[str, ProductRow | None]:
        """Return the row that serves all m of a product, or of the plain product, with its key; None without one."""
        if isinstance(product, str) or self.is_other_gpu(device):
            return "", None
        for key in dict.fromkeys((product.full_key, product.key)):
            rows = self._rows.get(key, self._rows.get(unstrided(key, product.m), ()) if self.is_batch_invariant else ())
            row = dynamic_row(product, rows) if product.is_dynamic else None
            if row is None and (self.is_batch_invariant or not product.is_dynamic):
                serving = [each for each in rows if each.first <= product.hint <= each.last]
                row = min(serving, key=lambda each: each.last - each.first, default=None)
            if row is not None or (rows and product.is_dynamic):
                return key, row
        return "", None

    def _usable(self, row: ProductRow) -> KernelTemplate | None:
        """Return the row's template; None, with a warning, if Inductor's settings rule it out.

        It was timed, so it is used even where Inductor leaves it out: for a large k, and on GPUs under 68 SMs.
        """
        if has_options() and row.template == "decompose_k":
            return None if V.graph.aot_mode or V.graph.cpp_wrapper else decompose_k_subgraph_template
        if has_options() and _use_autotune_backend("TRITON"):
            return TRITON_TEMPLATES[row.template]
        self.counts.warn(
            f"gemmtune's table has a {row.template} row that Inductor's settings rule out: pass "
            f"options=gemmtune_inductor.options() to torch.compile, and keep TRITON in max_autotune_gemm_backends"
        )
        return None

    @or_else(nothing)  # Inductor asked for ATen before, and got none
    def _render(
        self, row: ProductRow, template: KernelTemplate, product: LoweredProduct, fused: frozenset[str], asked: Question
    ) -> list[ChoiceCaller] | None:
        """Return the choice of a row's kernel; None if this torch or Triton cannot make it.

        This torch derives the keywords that are not tuned, but for EVEN_K: a wrong one gives wrong results. It makes
        templates only where it autotunes, so it does while it makes this one.
        """
        kernel_inputs, op_name = with_matrices(with_whole_bias(asked[0], product), product), asked[2]
        fix_layouts(kernel_inputs.nodes())
        own = {"EVEN_K": product.k % row.kwargs["BLOCK_K"] == 0} if "BLOCK_K" in row.kwargs else {}
        with config.patch(max_autotune_gemm=True):
            made = next(self.get_ktc(kernel_inputs, template, op_name, {**row.kwargs, **own, **product.keywords}), None)
            if made is not None:
                made.layout = kernel_inputs.output_layout(flexible=False)
                leave_out_bias(made, kernel_inputs, op_name)
                if made.choice is not None:
                    fuse_only(made.choice, fused)
                    return [made.choice]
        self.counts.warn(f"gemmtune's table has a {row.template} row that Inductor cannot render ({row}); ATen runs")
        return None

    def is_other_gpu(self, device: torch.device) -> bool:
        """Return whether no row applies because the GPU is not the table's, and warn once if so."""
        if self._policy == "ignore" or (name := torch.cuda.get_device_properties(device).name) == self._table.device:
            return False
        self.counts.warn(f"gemmtune's table is for {self._table.device}; on {name} no row applies")
        return True


def _current_node() -> object:
    return getattr(getattr(V, "graph", None), "current_node", None)


def fuse_only(choice: ChoiceCaller, nodes: frozenset[str]) -> None:
    """Write the names of the graph's nodes that a kernel may compute into the buffer that a choice makes."""
    output_node: Callable[[], Any] = choice.output_node

    @or_else(nothing)
    def mark(node: Any) -> None:  # noqa: ANN401 (Inductor's TensorBox)
        node.data.data.gemmtune_fuses = nodes

    def marked() -> Any:  # noqa: ANN401 (Inductor's TensorBox)
        mark(found := output_node())
        return found

    choice.output_node = marked  # type: ignore[method-assign]


@or_else(lambda *_: True)
def may_fuse(node1: BaseSchedulerNode, node2: BaseSchedulerNode) -> bool:
    """Return whether neither node is a row's kernel, or the second is an epilogue that the first may compute."""
    for template, other in ((node1, node2), (node2, node1)):
        nodes = getattr(template.get_template_node(), "gemmtune_fuses", None) if template.is_template() else None
        if nodes is not None:
            computed = {origin.name for node in other.get_nodes() for origin in getattr(node.node, "origins", ())}
            return template is node1 and computed <= nodes
    return True


def changed_templates(table: InductorTable) -> list[str]:
    """Return the templates whose rows were timed with another source than this torch has, or with an unknown one."""
    rows = [row for of_product in table.rows.values() for row in of_product]
    used = {row.template for row in (*rows, *(row.otherwise for row in rows if row.otherwise))}
    source, known = table.templates, {**TRITON_TEMPLATES, **FLEX_TEMPLATES}
    return [name for name, its in known.items() if name in used and source.get(name) != [its.src_hash]]
