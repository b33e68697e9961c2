"""Rows of attention, for which Inductor asks its handler by three methods. Needs torch alone.

A row becomes a list of one config, so nothing is benchmarked. Inductor fails on a single config that does not fit, so
no row is answered for a call that differs in anything that the row was built with.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from torch._inductor import config
from torch._inductor.kernel.flex.flex_attention import flex_attention_backward_template, flex_attention_template
from torch._inductor.kernel.flex.flex_decoding import flex_decoding_template
from torch._inductor.virtualized import V

from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN
from gemmtune.engine.consumers.inductor.loader.boundary import or_else
from gemmtune.engine.consumers.inductor.loader.flex.flex_calls import FlexCall, flex_call
from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct
from gemmtune.engine.records.flex.attention_text import with_length

TableChoices: TypeAlias = Any
"""Handler of `table_choices`, which imports this module."""
FLEX_TEMPLATES = {
    "flex::forward": flex_attention_template,
    "flex::backward": flex_attention_backward_template,
    "flex::decode": flex_decoding_template,
}
"""Inductor's templates that rows may name."""
_METHODS = {
    "forward": "get_flex_attention_fwd_configs",
    "backward": "get_flex_attention_bwd_configs",
    "decode": "get_flex_decode_configs",
}


def serve_flex(handler: TableChoices) -> None:
    """Let the rows of a handler's table serve attention; a torch without one of the methods asks for none.

    A recording puts the handler in place again, so its methods may be replaced already.
    """
    for phase, method in _METHODS.items():
        inductors = getattr(type(handler), method, None)
        if inductors is not None:
            setattr(handler, method, partial(_configs, handler, phase, partial(inductors, handler)))


def _configs(handler: TableChoices, phase: str, inductors: Callable[..., list[Any]], *asked: Any, **named: Any) -> Any:  # noqa: ANN401 (torch's)
    """Return a row's config alone, or what Inductor answers; arguments are those of any torch."""

    def default() -> list[Any]:
        with config.patch(max_autotune=False):
            return inductors(*asked, **named)

    return _served(handler, phase, default) or inductors(*asked, **named)


def _failed(handler: TableChoices, phase: str, default: Callable[[], list[Any]]) -> list[Any]:
    """Count a call whose look-up failed, and return no config."""
    handler._count("failed", f"flex_attention: the look-up of its {phase} kernel failed, see the warning")
    return []


@or_else(_failed)
def _served(handler: TableChoices, phase: str, default: Callable[[], list[Any]]) -> list[Any]:
    """Return the config of the call that is lowered now; none where Inductor's own answer holds.

    `default` returns Inductor's own config alone.
    """
    node: Any = V.graph.current_node
    device = node.args[0].meta["val"].device
    try:
        call = flex_call(node, phase)
    except ValueError as error:
        handler._count("no problem", f"flex_attention: {error}")
        return []
    product = LoweredProduct(call.length, call.hint, call.key, 0, PLAIN)
    key, row = handler._find(product, device)
    if row is None and not product.is_dynamic:
        key, row = _of_range(handler, call, device)
    if row is None:
        handler._count_miss(product, device)
        return []
    handler._count("row" if row.kwargs else "aten row", product, row, "", key)
    return [replace(default()[0], **{name.lower(): value for name, value in row.kwargs.items()})]


def _of_range(handler: TableChoices, call: FlexCall, device: Any) -> tuple[str, Any]:  # noqa: ANN401 (torch's)
    """Return the row whose range has the lengths of a call that leaves none open, with its key; None without one."""
    queries, keys = re.findall(r":(?:q|kv)(\d+)(?=:)", call.key)[:2]
    for dynamic in ("s", "kv") if queries == keys else ("kv",):
        key = with_length(f"{call.key}:dynamic={dynamic}", 1)
        key, row = handler._find(LoweredProduct(int(keys), int(keys), key, 0, PLAIN), device)
        if row is not None:
            return key, row
    return "", None
