"""Places in torch that a table changes: choices, compile caches' keys, padding, convolutions of 1x1, and large kernels.

The vendor library is two to six times slower where rows of an operand do not start at multiples of 16 bytes. Inductor's
padding pass benchmarks such products while it compiles, and a capture for an absent GPU cannot. A rule pads where the
product gains more than the copies of its operands cost, so captures and tables see equal products.

Inductor lowers a convolution of 1x1 in channels-last order to a product where it autotunes, and to a library's kernel
elsewhere. A row of that product may serve it. Needs torch alone.
"""

from __future__ import annotations

import copyreg
import inspect
import math
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack, nullcontext
from functools import partial
from operator import delitem, setitem
from typing import Any
from uuid import uuid4

import torch
from torch._inductor import choices as inductor_choices
from torch._inductor import config, virtualized
from torch._inductor.choices import InductorChoices
from torch._inductor.codegen.common import custom_backend_passes, init_backend_registration
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch._inductor.fx_passes import pad_mm
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V

from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN
from gemmtune.engine.consumers.inductor.loader.boundary import absent, nothing, or_else
from gemmtune.engine.consumers.inductor.loader.hooks.flex_rows import serve_flex
from gemmtune.engine.consumers.inductor.loader.hooks.generated_rows import serve_generated
from gemmtune.engine.consumers.inductor.loader.hooks.grouped_rows import serve_grouped
from gemmtune.engine.consumers.inductor.loader.hooks.table_choices import TableChoices
from gemmtune.engine.consumers.inductor.loader.loader_rows import DTYPE_NAMES
from gemmtune.engine.consumers.inductor.loader.lowered import (
    AtenChoices,
    LoweredProduct,
    dtype_name,
    has_options,
    is_autotuning,
    is_open,
)

_NAME = "gemmtune"
_register = getattr(inductor_choices, "register_inductor_choices", None)
_unregister = getattr(inductor_choices, "unregister_inductor_choices", None)
_ALIGNED = 8  # elements of two bytes in 16 bytes, to which Inductor pads
# Seconds on an H200, see experiments/padding: saved per m·n·k, and there where a row has an odd number of elements;
# per copied element of an operand that is contiguous, and of a transposed one; and per launch of a copy.
_SAVED, _SAVED_ODD = 5e-15, 18e-15
_COPY, _TRANSPOSED_COPY = 1.8e-12, 7.4e-12
_LAUNCH = 8e-6
CONVOLUTION = torch.ops.aten.convolution.default
"""Operator whose lowering is replaced."""
AUTOTUNING: dict[str, bool | str] = {"max_autotune_gemm": True, "max_autotune_conv_backends": "ATEN"}
"""Settings with which Inductor tunes products, and lowers a convolution of 1x1 to one."""
_L2_SIZES = 3  # bytes that a large kernel moves, in sizes of the L2: some 40 us on an H200, see experiments/models


class _Replaced(ExitStack):
    """Replacements of one install.

    The program may replace a function, too. One from before is called, and put back; one from after stays in place, and
    may still call ours, which then changes nothing.
    """

    is_undone = False

    def place(self, owner: Any, key: Any, ours: object) -> None:  # noqa: ANN401 (any object, or a mapping)
        """Replace an attribute of an object; or an item of a mapping, which may be a new one."""
        of_mapping = isinstance(owner, MutableMapping)
        get, put, drop = (type(owner).get, setitem, delitem) if of_mapping else (getattr, setattr, delattr)
        earlier = get(owner, key, self)
        put(owner, key, ours)

        def undo() -> None:
            if get(owner, key, None) is ours:
                drop(owner, key) if earlier is self else put(owner, key, earlier)

        self.callback(undo)

    def function(self, owner: Any, name: str, ours: Callable[..., Any]) -> None:  # noqa: ANN401 (a module or class)
        """Replace a function by ours, which takes the earlier one before its arguments; do nothing if there is none."""
        earlier: Any = getattr(owner, name, None)

        def call(*asked: Any, **named: Any) -> Any:  # noqa: ANN401 (torch's)
            return earlier(*asked, **named) if self.is_undone else ours(earlier, *asked, **named)

        if earlier is not None:
            self.place(owner, name, call)

    def undo(self) -> None:
        """Put back what was there, where nobody has replaced ours."""
        self.is_undone = True
        self.close()


_replaced: list[_Replaced] = []  # at most one: that of the handler in place


def activate(handler: AtenChoices) -> None:
    """Put the handler and its uuid where every thread finds them. Callers hold a lock.

    torch 2.15 has a registry of handlers, whose uuids are part of its cache keys. Before, the default handler is
    replaced, and a backend pass carries the uuid; ours comes last, for torch hashes passes in order. A thread keeps the
    handler that it resolved under the name `_key`, so each install changes the name. Cache keys also hold memory
    formats, pickled as attributes of any module that has a `torch`; a reducer names torch itself in every process.
    """
    choices, replaced, uuid = virtualized._choices, _Replaced(), handler.uuid()
    _replaced.append(replaced)
    replaced.place(choices, "_key", f"{choices._key}_gemmtune_{uuid4().hex}")
    if _register and _unregister:
        gone = type("NoChoices", (InductorChoices,), {"uuid": lambda _: _NAME})  # for a torch that forgets nothing
        _register(_NAME, lambda: gone() if replaced.is_undone else handler)
    else:
        replaced.place(choices, "_default", lambda: handler)
        init_backend_registration()
        # A pass for a device that does not exist never runs, but its uuid is part of every cache key.
        tag = {"__call__": lambda *_: None, "uuid": lambda _: uuid}
        replaced.place(custom_backend_passes, _NAME, type("CacheTag", (CustomGraphModulePass,), tag)())
    replaced.place(copyreg.dispatch_table, torch.memory_format, lambda its: str(its).removeprefix("torch."))
    replaced.place(lowerings, CONVOLUTION, partial(lower_convolution, lowerings[CONVOLUTION]))
    replaced.function(pad_mm, "should_pad", pads)
    replaced.function(GraphLowering, "run", handler.run_graph)
    if isinstance(handler, TableChoices):
        replaced.function(TritonKernel, "codegen_kernel", tuned_if_large)
        serve_generated(handler, replaced.function, chooses_configs)
        serve_grouped(handler, replaced.place)
        serve_flex(handler)


def restore() -> None:
    """Put back what `activate` replaced; do nothing if there is nothing. Callers hold a lock."""
    if _replaced:
        _replaced.pop().undo()
        if _register and _unregister:
            or_else(nothing)(_unregister)(_NAME)  # behind the name's return: threads forget what they resolved under it


def lacking() -> str:
    """Return the first part of Inductor that the handler needs and this torch lacks; empty if it has all."""
    if absent:
        return " and ".join(absent)

    def known(method: str) -> bool:
        asked, answered = (inspect.signature(getattr(its, method, lacking)) for its in (InductorChoices, TableChoices))
        return [*asked.parameters] == [*answered.parameters]

    has = {
        "InductorChoices.get_template_configs with the known parameters": known("get_template_configs"),
        "InductorChoices.get_ktc": hasattr(InductorChoices, "get_ktc"),
        "TritonKernel.codegen_kernel and estimate_kernel_num_bytes": hasattr(TritonKernel, "codegen_kernel")
        and hasattr(TritonKernel, "estimate_kernel_num_bytes"),
        "InductorChoices.can_fuse with the known parameters": known("can_fuse"),
        "virtualized.V.choices": hasattr(getattr(virtualized, "V", None), "choices"),
        "virtualized._choices with _key and _default": {"_key", "_default"}
        <= set(vars(getattr(virtualized, "_choices", lacking))),
    }
    return next((name for name, is_there in has.items() if not is_there), "")


def pads(earlier: Callable[..., bool], *asked: Any, **named: Any) -> bool:  # noqa: ANN401 (torch's)
    """Decide to pad by the loader's rule; with `shape_padding` on, the earlier function decides.

    A batch-invariant table pads nothing: the rule asks for m, and padded products have other bits.
    """
    if _keeps_bits():
        return False
    return (earlier if getattr(config, "shape_padding", True) else should_pad)(*asked, **named)


@or_else(lambda *_, **__: False)
def should_pad(match: Any, mat1: torch.Tensor, mat2: torch.Tensor, op: Any, input: Any = None) -> bool:  # noqa: A002, ANN401 (torch's)
    """Decide in the place of Inductor's function of that name."""
    sizes = (*mat1.shape, *mat2.shape)
    is_known = all(isinstance(size, int) for size in sizes) and mat1.element_size() == mat2.element_size() == 2
    if op is torch.ops.aten.bmm or not is_known or not mat1.is_cuda:
        return False
    m, k, _, n = sizes
    rows = (_row(mat1), _row(mat2), n)
    if not any(row % _ALIGNED for row in rows):
        return False
    copied = [operand for operand, size in ((mat1, m), (mat2, n)) if size % _ALIGNED or k % _ALIGNED]
    copies = (_LAUNCH + each.numel() * (_COPY if each.stride(1) == 1 else _TRANSPOSED_COPY) for each in copied)
    return bool(m * n * k * (_SAVED_ODD if any(row % 2 for row in rows) else _SAVED) > sum(copies))


def _row(operand: torch.Tensor) -> int:
    """Return the elements from one row, or column, of a matrix to the next; those of a lone one, whatever its step."""
    steps = zip(operand.shape, operand.stride(), strict=True)
    return max(step if size > 1 else operand.numel() for size, step in steps)


def lower_convolution(lower: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:  # noqa: ANN401 (Inductor's)
    """Lower a convolution by Inductor's own function, or as a product if the handler of choices takes that."""
    takes = getattr(V.choices, "takes_convolution", None)
    product = None if takes is None or settings or is_autotuning() else _product(*arguments)
    if takes is None or product is None or not takes(product, arguments[0].get_device()):
        return lower(*arguments, **settings)
    with _as_product() or nullcontext():
        return lower(*arguments)


@or_else(nothing)
def _as_product() -> Any:  # noqa: ANN401 (Inductor's)
    """Return a context in which a convolution becomes a product, as far as this torch has the settings."""
    return config.patch({name: its for name, its in AUTOTUNING.items() if hasattr(config, name)})


@or_else(nothing)
def _product(x: Any, weight: Any, bias: Any, *rest: Any) -> LoweredProduct | None:  # noqa: ANN401 (Inductor's)
    """Return the product that a convolution is; None for one of another size, place or type."""
    stride, padding, dilation, transposed, output_padding, groups = rest
    shapes = MMKernelInputs([x, weight]).shapes_hinted()
    ones, zeros = {*stride, *dilation, groups, *shapes[1][2:]}, {*padding, *output_padding, int(transposed)}
    dtype = dtype_name(x.get_dtype())
    is_plain = [*map(len, shapes)] == [4, 4] and ones == {1} and zeros == {0} and 0 not in (*shapes[0], *shapes[1])
    value = V.graph.current_node.meta.get("val")
    is_last = isinstance(value, torch.Tensor) and value.is_contiguous(memory_format=torch.channels_last)
    if not is_plain or x.get_device().type != "cuda" or dtype not in DTYPE_NAMES or not (V.graph.layout_opt or is_last):
        return None
    (batch, k, *image), n = shapes[0], shapes[1][0]
    whole = x.get_size()
    m = whole[0] * whole[2] * whole[3]
    op, row = ("mm", "none") if bias is None else ("addmm", "vector")
    key = ":".join((op, dtype, "nt", f"1x{n}x{k}", row, "dynamic" if is_open(m) else "static"))
    return LoweredProduct(m, batch * math.prod(image), key, k, PLAIN)


def tuned_if_large(generate: Callable[..., str], kernel: Any, *asked: Any, **named: Any) -> str:  # noqa: ANN401 (torch's)
    """Return a kernel's generated source; a large kernel of a graph with a table's options descends when it runs first.

    Inductor chooses the config of a kernel that is no product by a rule or a short race, and descends from there in its
    mode max-autotune, for seconds per kernel. With small kernels this is a gamble: their operands lie in the L2 in the
    model, but not while Inductor times them. A kernel that moves several times what the L2 holds takes as long in both.
    """
    with config.patch(coordinate_descent_tuning=True) if _is_large(kernel) else nullcontext():
        return generate(kernel, *asked, **named)


@or_else(lambda *_: False)
def _is_large(kernel: Any) -> bool:  # noqa: ANN401 (torch's)
    device = V.graph.get_current_device_or_throw()
    if getattr(kernel, "fixed_config", None) or not chooses_configs(device):
        return False
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    return bool(kernel.estimate_kernel_num_bytes() >= _L2_SIZES * l2_bytes)


def chooses_configs(device: torch.device) -> bool:
    """Return whether a graph's kernels between the products may have other configs than Inductor's own."""
    modes = (getattr(config, name, False) for name in ("deterministic", "batch_invariant"))
    keeps_bits = _keeps_bits() or any(modes) or torch.are_deterministic_algorithms_enabled()
    return device.type == "cuda" and has_options() and not keeps_bits


def _keeps_bits() -> bool:
    """Return whether the table in use is batch-invariant."""
    return bool(getattr(getattr(V, "choices", None), "is_batch_invariant", False))
