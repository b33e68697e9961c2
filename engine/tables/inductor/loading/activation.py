"""Place of a handler of choices in a running torch, with its part of the compile caches' keys. Needs torch alone."""

import copyreg
import inspect
from itertools import count
from typing import Any

import torch
from torch._inductor import choices as inductor_choices
from torch._inductor import virtualized
from torch._inductor.choices import InductorChoices
from torch._inductor.codegen.common import custom_backend_passes, init_backend_registration
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch._inductor.fx_passes import pad_mm

from gemmtune.engine.tables.inductor.loading.large_kernels import generated, tuned_if_large
from gemmtune.engine.tables.inductor.loading.padding import benchmarked, should_pad
from gemmtune.engine.tables.inductor.loading.table_choices import TableChoices
from gemmtune.engine.tables.inductor.recorder import RecordingChoices

__all__ = ["activate", "lacking", "restore"]


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
_installs = count(1)
_kernels: Any = TritonKernel
_replaced: list[tuple[str, Any]] = []  # at most one: the name and the default that install replaced


def activate(handler: TableChoices | RecordingChoices) -> None:
    """Put the handler and its uuid where every thread finds them. Callers hold a lock.

    torch 2.15 has a registry of handlers, whose uuids are part of its cache keys. Other ways that it documents hold for
    the calling thread alone (`V.set_choices_handler`, since torch 2.12 also the configs). There the default handler is
    replaced, and a backend pass carries the uuid. torch hashes the process's passes in order into its cache keys
    (FxGraphHashDetails), so ours comes last. A thread keeps the handler it resolved under the name `_key`, in the
    registry, too, so each install changes the name.

    These keys also hold memory formats, pickled as attributes of any imported module that has a `torch`. That module
    differs between processes, so a reducer names torch itself.
    """
    choices = virtualized._choices
    _replaced.append((choices._key, choices._default))
    choices._key = f"{choices._key}_gemmtune_{next(_installs)}"
    if _register and _unregister:
        _register(_NAME, lambda: handler)
    else:
        choices._default = lambda: handler
        init_backend_registration()
        custom_backend_passes[_NAME] = _CacheTag(handler.uuid())
    copyreg.pickle(torch.memory_format, _name_in_torch)
    pad_mm.should_pad = should_pad
    if isinstance(handler, TableChoices):
        _kernels.codegen_kernel = tuned_if_large


def _name_in_torch(memory_format: torch.memory_format) -> str:
    return str(memory_format).removeprefix("torch.")


def restore() -> None:
    """Put back the choices that `activate` replaced; do nothing if there are none. Callers hold a lock."""
    if _replaced:
        virtualized._choices._key, virtualized._choices._default = _replaced.pop()
        if _register and _unregister:
            _unregister(_NAME)
        else:
            del custom_backend_passes[_NAME]
        del copyreg.dispatch_table[torch.memory_format]
        pad_mm.should_pad = benchmarked
        _kernels.codegen_kernel = generated


def lacking() -> str:
    """Return the first part of Inductor that the handler needs and this torch lacks; empty if it has all."""
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
        "virtualized._choices with _key and _default": {"_key", "_default"} <= set(vars(virtualized._choices)),
    }
    return next((name for name, is_there in has.items() if not is_there), "")
