"""Limits on what Inductor's scheduler fuses into a row's kernel. Needs torch alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gemmtune.engine.consumers.inductor.loader.boundary import nothing, or_else

if TYPE_CHECKING:
    from torch._inductor.ir import ChoiceCaller
    from torch._inductor.scheduler import BaseSchedulerNode


def fuse_only(choice: ChoiceCaller, nodes: frozenset[str]) -> None:
    """Write the names of the graph's nodes that a kernel may compute into the buffer that a choice makes."""
    output_node: Callable[[], Any] = choice.output_node

    def marked() -> Any:  # noqa: ANN401 (Inductor's TensorBox)
        found = output_node()
        _mark(found, nodes)
        return found

    choice.output_node = marked  # type: ignore[method-assign]


@or_else(nothing)
def _mark(node: Any, nodes: frozenset[str]) -> None:  # noqa: ANN401 (Inductor's TensorBox)
    node.data.data.gemmtune_fuses = nodes


@or_else(lambda *_: True)
def may_fuse(node1: BaseSchedulerNode, node2: BaseSchedulerNode) -> bool:
    """Return whether neither node is a row's kernel, or the second is an epilogue that the first may compute."""
    for template, other in ((node1, node2), (node2, node1)):
        nodes = getattr(template.get_template_node(), "gemmtune_fuses", None) if template.is_template() else None
        if nodes is not None:
            computed = {origin.name for node in other.get_nodes() for origin in getattr(node.node, "origins", ())}
            return template is node1 and computed <= nodes
    return True
