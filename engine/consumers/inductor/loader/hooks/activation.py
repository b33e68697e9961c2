"""Place of a handler of choices in a running torch, with its part of the compile caches' keys. Needs torch alone."""

import copyreg
import inspect
from collections.abc import Callable
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
from torch._inductor.lowering import lowerings

from gemmtune.engine.consumers.inductor.loader.boundary import nothing, or_else
from gemmtune.engine.consumers.inductor.loader.hooks.convolutions import CONVOLUTION, asking_for_products
from gemmtune.engine.consumers.inductor.loader.hooks.large_kernels import tuned_if_large
from gemmtune.engine.consumers.inductor.loader.hooks.padding import should_pad
from gemmtune.engine.consumers.inductor.loader.hooks.private_names import absent
from gemmtune.engine.consumers.inductor.loader.hooks.replaced import Replaced
from gemmtune.engine.consumers.inductor.loader.hooks.table_choices import TableChoices
from gemmtune.engine.consumers.inductor.loader.lowered import AtenChoices


class _CacheTag(CustomGraphModulePass):
    """Pass for a device that does not exist: it never runs, but its uuid is part of every compile cache key."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        """Leave the graph as it is."""

    def uuid(self) -> str:
        return self._uuid


_NAME = "gemmtune"
_register = getattr(inductor_choices, "register_inductor_choices", None)
_unregister = getattr(inductor_choices, "unregister_inductor_choices", None)
_replaced: list[Replaced] = []  # at most one: that of the handler in place


def activate(handler: AtenChoices) -> None:
    """Put the handler and its uuid where every thread finds them. Callers hold a lock.

    torch 2.15 has a registry of handlers, whose uuids are part of its cache keys. Other ways that it documents hold for
    the calling thread alone (`V.set_choices_handler`, since torch 2.12 also the configs). There the default handler is
    replaced, and a backend pass carries the uuid. torch hashes the process's passes in order into its cache keys
    (FxGraphHashDetails), so ours comes last. A thread keeps the handler it resolved under the name `_key`, in the
    registry, too, so each install of each loader changes the name.

    These keys also hold memory formats, pickled as attributes of any imported module that has a `torch`. That module
    differs between processes, so a reducer names torch itself.
    """
    choices, replaced = virtualized._choices, Replaced()
    _replaced.append(replaced)
    replaced.attribute(choices, "_key", lambda key: f"{key}_gemmtune_{uuid4().hex}")
    if _register and _unregister:
        gone = type("NoChoices", (InductorChoices,), {"uuid": lambda _: _NAME})  # for a torch that forgets nothing
        _register(_NAME, lambda: gone() if replaced.is_undone else handler)
    else:
        replaced.attribute(choices, "_default", lambda _: lambda: handler)
        init_backend_registration()
        replaced.item(custom_backend_passes, _NAME, _CacheTag(handler.uuid()))
    replaced.item(copyreg.dispatch_table, torch.memory_format, _name_in_torch)
    replaced.item(lowerings, CONVOLUTION, asking_for_products(lowerings[CONVOLUTION]))
    replaced.attribute(pad_mm, "should_pad", lambda earlier: _padding(replaced, earlier))
    if isinstance(handler, TableChoices):
        replaced.attribute(TritonKernel, "codegen_kernel", lambda earlier: _generating(replaced, earlier))
        replaced.attribute(GraphLowering, "run", lambda earlier: _seeing(replaced, handler, earlier))


def _padding(replaced: Replaced, earlier: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decision to pad; with `shape_padding` on, the earlier one decides."""

    def pads(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 (torch's)
        decides = earlier if getattr(config, "shape_padding", True) or replaced.is_undone else should_pad
        return decides(*arguments, **named)

    return pads


def _generating(replaced: Replaced, earlier: Callable[..., str]) -> Callable[..., str]:
    """Return a method that generates a kernel's source, in which large kernels descend."""

    def generate(kernel: Any, *arguments: Any, **named: Any) -> str:  # noqa: ANN401 (torch's)
        if replaced.is_undone:
            return earlier(kernel, *arguments, **named)
        return tuned_if_large(kernel, lambda: earlier(kernel, *arguments, **named))

    return generate


def _seeing(replaced: Replaced, handler: TableChoices, earlier: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that lowers a graph, which the handler sees before."""

    def run(graph: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 (torch's)
        if not replaced.is_undone:
            handler.see_graph(graph)
        return earlier(graph, *arguments, **named)

    return run


def _name_in_torch(memory_format: torch.memory_format) -> str:
    return str(memory_format).removeprefix("torch.")


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
    asked, answered = (
        [*inspect.signature(getattr(its, "get_template_configs", lacking)).parameters]
        for its in (InductorChoices, TableChoices)
    )
    fused = [*inspect.signature(getattr(InductorChoices, "can_fuse", lacking)).parameters]
    has = {
        "InductorChoices.get_template_configs with the known parameters": asked == answered,
        "InductorChoices.get_ktc": hasattr(InductorChoices, "get_ktc"),
        "TritonKernel.codegen_kernel and estimate_kernel_num_bytes": hasattr(TritonKernel, "codegen_kernel")
        and hasattr(TritonKernel, "estimate_kernel_num_bytes"),
        "InductorChoices.can_fuse with the known parameters": fused
        == ["scheduler", "node1", "node2", "shared_data_score"],
        "virtualized.V.choices": hasattr(getattr(virtualized, "V", None), "choices"),
        "virtualized._choices with _key and _default": {"_key", "_default"}
        <= set(vars(getattr(virtualized, "_choices", lacking))),
    }
    return next((name for name, is_there in has.items() if not is_there), "")
