"""Place of a handler of choices in a running torch, with its part of the compile caches' keys. Needs torch alone."""

import copyreg
import inspect
from collections.abc import Callable, MutableMapping
from typing import Any, cast
from uuid import uuid4

import torch
from torch._inductor import choices as inductor_choices
from torch._inductor import virtualized
from torch._inductor.choices import InductorChoices
from torch._inductor.codegen.common import custom_backend_passes, init_backend_registration
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch._inductor.fx_passes import pad_mm
from torch._inductor.graph import GraphLowering
from torch._inductor.lowering import lowerings

from gemmtune.engine.consumers.inductor.loader.boundary import absent, nothing, or_else
from gemmtune.engine.consumers.inductor.loader.hooks.other_kernels import (
    CONVOLUTION,
    asking_for_products,
    pads,
    tuned_if_large,
)
from gemmtune.engine.consumers.inductor.loader.hooks.table_choices import TableChoices
from gemmtune.engine.consumers.inductor.loader.lowered import AtenChoices

_NAME = "gemmtune"
_register = getattr(inductor_choices, "register_inductor_choices", None)
_unregister = getattr(inductor_choices, "unregister_inductor_choices", None)


class _Replaced:
    """Replacements of one install.

    The program may replace a function, too. One from before is called, and put back; one from after stays in place, and
    may still call ours, which then changes nothing.
    """

    def __init__(self) -> None:
        self.is_undone = False
        self._undo: list[Callable[[], None]] = []

    def attribute(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:  # noqa: ANN401 (a module or class)
        """Replace an attribute by what `make` returns for it; do nothing if there is none."""
        earlier = getattr(owner, name, None)
        if earlier is not None:
            ours = make(earlier)
            setattr(owner, name, ours)
            self._undo.append(lambda: setattr(owner, name, earlier) if getattr(owner, name, None) is ours else None)

    def function(self, owner: Any, name: str, ours: Callable[..., Any]) -> None:  # noqa: ANN401 (a module or class)
        """Replace a function by ours, which takes the earlier one before its arguments."""

        def make(earlier: Callable[..., Any]) -> Callable[..., Any]:
            def call(*asked: Any, **named: Any) -> Any:  # noqa: ANN401 (torch's)
                return earlier(*asked, **named) if self.is_undone else ours(earlier, *asked, **named)

            return call

        self.attribute(owner, name, make)

    def item(self, mapping: MutableMapping[Any, Any], key: object, ours: object) -> None:
        """Put a value into a mapping, in the place of the one that is there, if any."""
        earlier = {key: mapping[key]} if key in mapping else {}
        mapping[key] = ours

        def undo() -> None:
            if mapping.get(key) is ours:
                del mapping[key]
                mapping.update(earlier)

        self._undo.append(undo)

    def undo(self) -> None:
        """Put back what was there, where nobody has replaced ours."""
        self.is_undone = True
        for each in reversed(self._undo):
            each()


_replaced: list[_Replaced] = []  # at most one: that of the handler in place


def activate(handler: AtenChoices) -> None:
    """Put the handler and its uuid where every thread finds them. Callers hold a lock.

    torch 2.15 has a registry of handlers, whose uuids are part of its cache keys. Before, the default handler is
    replaced, and a backend pass carries the uuid; ours comes last, for torch hashes passes in order. A thread keeps the
    handler that it resolved under the name `_key`, so each install changes the name. Cache keys also hold memory
    formats, pickled as attributes of any module that has a `torch`; a reducer names torch itself in every process.
    """
    choices, replaced = virtualized._choices, _Replaced()
    _replaced.append(replaced)
    replaced.attribute(choices, "_key", lambda key: f"{key}_gemmtune_{uuid4().hex}")
    if _register and _unregister:
        gone = type("NoChoices", (InductorChoices,), {"uuid": lambda _: _NAME})  # for a torch that forgets nothing
        _register(_NAME, lambda: gone() if replaced.is_undone else handler)
    else:
        replaced.attribute(choices, "_default", lambda _: lambda: handler)
        init_backend_registration()
        replaced.item(custom_backend_passes, _NAME, _cache_tag(handler.uuid()))
    replaced.item(copyreg.dispatch_table, torch.memory_format, lambda its: str(its).removeprefix("torch."))
    replaced.item(lowerings, CONVOLUTION, asking_for_products(lowerings[CONVOLUTION]))
    replaced.function(pad_mm, "should_pad", pads)
    if isinstance(handler, TableChoices):
        replaced.function(TritonKernel, "codegen_kernel", tuned_if_large)
        replaced.function(GraphLowering, "run", handler.run_graph)


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
    asked, answered = (_parameters(its, "get_template_configs") for its in (InductorChoices, TableChoices))
    fused = ["scheduler", "node1", "node2", "shared_data_score"]
    has = {
        "InductorChoices.get_template_configs with the known parameters": asked == answered,
        "InductorChoices.get_ktc": hasattr(InductorChoices, "get_ktc"),
        "TritonKernel.codegen_kernel and estimate_kernel_num_bytes": hasattr(TritonKernel, "codegen_kernel")
        and hasattr(TritonKernel, "estimate_kernel_num_bytes"),
        "InductorChoices.can_fuse with the known parameters": _parameters(InductorChoices, "can_fuse") == fused,
        "virtualized.V.choices": hasattr(getattr(virtualized, "V", None), "choices"),
        "virtualized._choices with _key and _default": {"_key", "_default"}
        <= set(vars(getattr(virtualized, "_choices", lacking))),
    }
    return next((name for name, is_there in has.items() if not is_there), "")


def _parameters(owner: type, method: str) -> list[str]:
    return [*inspect.signature(getattr(owner, method, lacking)).parameters]


def _cache_tag(uuid: str) -> CustomGraphModulePass:
    """Return a pass for a device that does not exist: it never runs, but its uuid is part of every cache key."""
    kind = type("CacheTag", (CustomGraphModulePass,), {"__call__": lambda *_: None, "uuid": lambda _: uuid})
    return cast("CustomGraphModulePass", kind())
