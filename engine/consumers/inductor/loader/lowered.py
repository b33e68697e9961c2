"""Products as Inductor asks its choices handler for them, and their numbers by what they run. Needs torch alone.

`gemmtune_report`, which the export has beside the loader, keeps their names and reasons, too, and warns of misses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.ir import ComputedBuffer, FlexibleLayout, MutableBox, as_storage_and_layout
from torch._inductor.kernel.bmm import aten_baddbmm, aten_bmm
from torch._inductor.kernel.mm import aten_addmm, aten_bias_addmm, aten_mm
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.select_algorithm import ExternKernelChoice
from torch._inductor.utils import use_aten_gemm_kernels
from torch._inductor.virtualized import V

from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN, ReadEpilogue, read_epilogue
from gemmtune.engine.consumers.inductor.loader.biases import bias_of_product
from gemmtune.engine.consumers.inductor.loader.boundary import warn_once
from gemmtune.engine.consumers.inductor.loader.loader_rows import BIASED, DTYPE_NAMES
from gemmtune.engine.records.gemm.stated import layout_of, stated_texts, unusual_strides

if TYPE_CHECKING:
    from torch._inductor.codegen.common import KernelTemplate
    from torch._inductor.ir import ChoiceCaller
    from torch._inductor.kernel_inputs import KernelInputs

Template: TypeAlias = "KernelTemplate | ExternKernelChoice"
"""Kernel that Inductor offers: a template to render, or one of ATen's."""
Question: TypeAlias = "tuple[KernelInputs, list[Template], str]"
"""Question of Inductor: operands, kernels that may run, and the operation."""
Overrides: TypeAlias = "dict[str, dict[str, Any]] | None"
"""Keywords that Inductor asks for, by template."""
_ATEN = {"mm": aten_mm, "addmm": aten_addmm, "bmm": aten_bmm, "baddbmm": aten_baddbmm}
_ALIGNED_BYTES = 16  # of the addresses that rows are timed at


@dataclass(frozen=True)
class LoweredProduct:
    """Product that a row may describe."""

    m: Any
    """Rows of the first factor: a number or an expression."""
    hint: int
    """Value of m that torch saw first."""
    key: str
    """Table's key of all products that differ in m alone."""
    k: int
    """Columns of the first factor."""
    read: ReadEpilogue
    """Epilogue that Inductor can fuse."""
    has_open_strides: bool = False
    """Whether some of its strides are expressions; the key has those that torch saw first."""
    batch: Any = 1
    """Number of products: a number or an expression, of which the key has the value that torch saw first."""
    scales: ReadEpilogue = PLAIN
    """Scales and bias of 8-bit floats, which every kernel of the product computes."""
    keywords: Mapping[str, bool] = field(default_factory=dict)
    """Keywords of the product's template that the graph gives, not the row."""

    @property
    def full_key(self) -> str:
        """Table's key with the epilogue."""
        return f"{self.key}:{self.read.epilogue}" if self.read.epilogue else self.key

    @property
    def is_dynamic(self) -> bool:
        """Whether m is an expression of sizes that torch left open."""
        return is_open(self.m)


class Counts:
    """Products of one table, by all threads of the process."""

    def __init__(self, device: str, miss: str, unused: str = "") -> None:
        """Begin for a table of a GPU; `miss` is that of `install`, `unused` why this torch uses no table, if so."""
        self.device, self.miss, self.unused = device, miss, unused
        self._outcomes: list[str] = []

    def record(self, outcome: str, *_: Any, **__: Any) -> None:  # noqa: ANN401 (what `gemmtune_report` records)
        """Count a product that was lowered."""
        self._outcomes.append(outcome)

    def see_graph(self, graph: Any) -> None:  # noqa: ANN401 (Inductor's GraphLowering)
        """Count nothing when the lowering of a graph begins."""

    def warn(self, message: str) -> None:
        """Warn, unless this table has said it."""
        warn_once(message, (self, message))

    def report(self) -> Any:  # noqa: ANN401 (that of `gemmtune_report`)
        """Refuse, with the numbers alone."""
        numbers = ", ".join(f"{outcome}: {number}" for outcome, number in Counter(self._outcomes).items())
        found = self.unused or f"compiled products by use: {numbers or 'none'}"
        raise RuntimeError(f"a report needs gemmtune_report, which the export has beside this package; {found}")


class AtenChoices(InductorChoices):
    """Inductor's choices, with a way to take the vendor library's alone."""

    run_graph: Callable[..., Any]
    """Function that lowers a graph by Inductor's function, and sees what that asks no handler of choices for."""

    def uuid(self) -> str:
        """Return the handler's part of every compile cache key."""
        raise NotImplementedError

    def aten(
        self, kernel_inputs: KernelInputs, templates: list[Template], op_name: str, kwarg_overrides: Overrides
    ) -> list[ChoiceCaller]:
        """Return ATen's choice alone; if neither Inductor nor this file has one, all that Inductor offers."""
        if not is_autotuning():  # then Inductor's own answer is ATen's choice
            return super().get_template_configs(kernel_inputs, templates, op_name, kwarg_overrides)
        aten: list[Template] = [t for t in templates if isinstance(t, ExternKernelChoice) and t is not aten_bias_addmm]
        aten = aten[:1] or ([_ATEN[op_name]] if op_name in _ATEN else templates)
        if _is_complete(templates):  # both are offered an expanded bias; only this one runs cuBLAS's fused epilogue
            found: list[ChoiceCaller] = super().get_template_configs(kernel_inputs, [aten_bias_addmm], op_name)
            if found:
                return found
        return super().get_template_configs(kernel_inputs, aten, op_name, kwarg_overrides)


def lowered_product(kernel_inputs: KernelInputs, op_name: str) -> LoweredProduct | str:
    """Return the product, or the operation and why no row describes it; empty text if it is no product."""
    if not isinstance(kernel_inputs, MMKernelInputs):
        return ""
    batch = [kernel_inputs.batch_hinted()] if len(kernel_inputs.mat1mat2()[0].get_size()) > 2 else []
    sizes = _text([*batch, *kernel_inputs.mnk_hinted()])
    if op_name == "mm_plus_mm":  # ATen's choice is an mm into the output and an addmm onto it
        products = " and ".join(_named(kernel_inputs, sizes, (place, place + 1)) for place in (0, 2))
        return f"{op_name}: the sum of {products} in one call; rows are for one product"
    if op_name not in _ATEN:
        return f"{op_name}: this loader serves {', '.join(_ATEN)}, not {sizes}; gemmtune capture lists what to tune"
    found = _described(kernel_inputs, op_name)
    return f"{op_name}: {found}, in a product of {sizes}" if isinstance(found, str) else found


def _named(kernel_inputs: MMKernelInputs, sizes: str, places: Sequence[int]) -> str:
    """Return the name of the problem that two of the operands would be, or its sizes where no row describes it."""
    dtype = dtype_name(kernel_inputs.dtypes()[places[0]])
    layouts, stated = "", {}
    for name, where in zip("ab", [placed(kernel_inputs, place) for place in places], strict=True):
        if isinstance(where, str):
            return sizes
        layouts, stated[f"ld{name}"] = layouts + where[0], where[1]
    return ":".join((sizes, DTYPE_NAMES.get(dtype, dtype), layouts, *stated_texts(stated)))


def _described(kernel_inputs: MMKernelInputs, op_name: str) -> LoweredProduct | str:
    """Return the product, or why no row describes it."""
    types = [*kernel_inputs.dtypes(), kernel_inputs.out_dtype()]
    widens = types[-1] is torch.float32 and types[0].itemsize == 2 and op_name in ("mm", "bmm")
    if len({*types[: -1 if widens else None]}) > 1:
        return f"operands and output have several dtypes: {', '.join(str(t).removeprefix('torch.') for t in types)}"
    m, n, k = kernel_inputs.mnk_symbolic()
    *batch, _, _ = kernel_inputs.mat1mat2()[0].get_size()
    if any(map(is_open, (n, k))):
        return "n or k is dynamic"  # with another k, EVEN_K would be wrong
    if 0 in (m, n, k, *batch):
        return "it is empty"
    dtype, kind = dtype_name(types[0]), "dynamic" if is_open(m) else "static"
    if dtype not in DTYPE_NAMES:
        return f"tables have no rows of {dtype}"
    if kind == "dynamic" and any(map(is_open, batch)):
        return "m and the batch are dynamic"
    bias, stated = bias_of_product(kernel_inputs) if op_name in BIASED else ("none", {})
    if isinstance(stated, str):
        return stated
    layouts = ""
    for name, place in (("a", -2), ("b", -1)):
        where = placed(kernel_inputs, place)
        if isinstance(where, str):
            return where
        layout, stated[f"ld{name}"], stated[f"batch_stride_{name}"] = where
        layouts += layout
    if kind == "dynamic" and layouts[0] == "t" and stated["lda"] is not None:
        return "m is dynamic, and the columns of a view hold m elements"
    hint, count_n, count_k = kernel_inputs.mnk_hinted()
    counts = f"{kernel_inputs.batch_hinted()}x{count_n}x{count_k}"
    dtype += "_float32" * widens
    key = ":".join((op_name, dtype, layouts, counts, bias, kind, *stated_texts(stated)))
    node = V.graph.current_node
    read = (read_epilogue(node) if isinstance(node, torch.fx.Node) else None) or PLAIN
    has_open_strides = any(is_open(step) for each in kernel_inputs.strides_symbolic() for step in each)
    return LoweredProduct(m, hint, key, count_k, read, has_open_strides, *batch)


def is_open(size: Any) -> bool:  # noqa: ANN401 (a number or an expression)
    """Return whether a size is an expression of sizes that torch left open."""
    return bool(getattr(size, "free_symbols", None))


def dtype_name(dtype: torch.dtype) -> str:
    """Return a type's name in a product's key; that of fp32 says how torch multiplies it."""
    precision = torch.backends.cuda.matmul.fp32_precision if dtype is torch.float32 else "none"
    return str(dtype).removeprefix("torch.") if precision in ("ieee", "none") else str(precision)


def fix_layouts(nodes: Sequence[Any]) -> None:
    """Give operands the layouts by which the row was found, and let nothing change them any more."""
    for node in nodes:
        with suppress(NotImplementedError):  # of constants, which have a layout
            as_storage_and_layout(node, freeze=True)


def root_of(graph: Any) -> Any:  # noqa: ANN401 (Inductor's GraphLowering)
    """Return the graph that a graph is a part of, or the graph itself."""
    while (parent := getattr(graph, "parent", None)) is not None:
        graph = parent
    return graph


def _strides(node: Any, size: Sequence[int], stride: Sequence[int]) -> Sequence[int]:  # noqa: ANN401 (Inductor's)
    """Return the strides that an operand will have: Inductor may yet order a computed one anew."""
    while isinstance(node, MutableBox):
        node = node.data
    order = node.get_fill_order() if isinstance(node, ComputedBuffer) else None  # none once its layout is fixed
    return [int(step) for step in FlexibleLayout.fill_ordered(size, order)] if order else stride


def placed(kernel_inputs: MMKernelInputs, place: int) -> tuple[str, int | None, int | None] | str:
    """Return layout, leading dimension and batch stride of an operand, None for dense ones, or why no row has such."""
    node: Any = kernel_inputs.nodes()[place]
    size = kernel_inputs.shapes_hinted()[place]
    stride = _strides(node, size, kernel_inputs.strides_hinted()[place])
    layout, lead = layout_of(size, stride)
    if not layout:
        return f"an operand of sizes {_text(size)} and strides {_text(stride)} is neither row-major nor transposed"
    batch, step = (size[0], stride[0]) if len(size) > 2 else (1, None)
    found = unusual_strides(layout, size[-2], size[-1], lead, batch, step)
    if found != (None, None) and node.get_layout().offset * node.get_dtype().itemsize % _ALIGNED_BYTES:
        return f"an operand of strides {_text(stride)} begins at no multiple of {_ALIGNED_BYTES} bytes"
    return layout, *found


def _text(numbers: Sequence[Any]) -> str:
    return "x".join(map(str, numbers))


def is_autotuning() -> bool:
    """Return whether Inductor may choose its templates."""
    return any(getattr(config, name, False) for name in ("max_autotune", "max_autotune_gemm"))


def has_options() -> bool:
    """Return whether the graph is compiled with a table's options, or with Inductor's own templates."""
    return is_autotuning() or not getattr(config, "shape_padding", False)


def _is_complete(templates: list[Template]) -> bool:
    """Return whether Inductor asks once for all that an addmm may run, as torch 2.11 does: bias_addmm comes first."""
    return templates[:1] == [aten_bias_addmm]


def is_for_aten(op_name: str, templates: list[Template]) -> bool:
    """Return whether ATen answers: an autotuned addmm is asked for ATen, maybe for a subgraph, and for templates."""
    if op_name == "addmm" and use_aten_gemm_kernels():
        return aten_addmm in templates
    return is_for_templates(op_name, templates)


def is_for_templates(op_name: str, templates: list[Template]) -> bool:
    """Return whether a template answers, see `is_for_aten`."""
    if op_name != "addmm" or not is_autotuning() or _is_complete(templates):
        return True
    rendered = [template for template in templates if not isinstance(template, ExternKernelChoice)]
    names = {getattr(template, "uid", type(template).__name__) for template in rendered}
    return not templates or not names <= {"contiguous_addmm", "ContiguousTemplate"}
