"""Kernels that torch has on a CUDA GPU alone: its choice for attention, and other fused operators. Imports torch.

A torch that was built without CUDA would take attention and these operators apart into operations that no GPU runs.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch
from torch._meta_registrations import _create_grouped_mm_output_tensor

from gemmtune.engine.consumers.inductor.loader.grouped.grouped_products import operands_of

_ATEN = torch.ops.aten
_BACKENDS: Any = torch.backends.cuda  # its functions have no types
_LARGEST_HEAD = 256  # flash attention's; a multiple of 8 after padding
_MASK_ALIGNMENT = 16


@contextlib.contextmanager
def kernels_of_a_gpu() -> Iterator[None]:
    """Give torch the kernels of a GPU that it lacks here, and send attention to the one that it selects there."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call] # torch's
    try:
        for key in ("AutogradCUDA", "CUDA"):
            library.impl("scaled_dot_product_attention", _attention, key)
        for (key, name), kernel in _KERNELS.items():
            if hasattr(_ATEN, name) and not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key):
                library.impl(name, kernel, key)
        yield
    finally:
        library._destroy()


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Return attention by flash attention, cuDNN or the memory-efficient kernel, by products where none applies."""
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    head = query.shape[-1]
    is_even = head == value.shape[-1]
    is_fused = _is_fused(query, key, value, attn_mask, enable_gqa)
    is_square = query.shape[-2] == key.shape[-2] or not is_causal
    is_flash = is_half and attn_mask is None and is_even and is_square and head <= _LARGEST_HEAD
    if is_fused and is_flash and _BACKENDS.flash_sdp_enabled():
        wide = -head % 8
        q, k, v = (torch.nn.functional.pad(each, (0, wide)) if wide else each for each in (query, key, value))
        factor = head**-0.5 if scale is None else scale
        out: torch.Tensor = _ATEN._scaled_dot_product_flash_attention(
            q, k, v, dropout_p, is_causal, False, scale=factor
        )[0]
        return out[..., :head] if wide else out
    with_gradient = torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value))
    bias = None if attn_mask is None or not is_fused else _bias(query, key, attn_mask)
    is_aligned = not any(size % (8 if is_half else 4) for size in (head, value.shape[-1]))
    if is_fused and is_aligned and not enable_gqa and _BACKENDS.mem_efficient_sdp_enabled():
        found = _ATEN._scaled_dot_product_efficient_attention(
            query, key, value, bias, with_gradient, dropout_p, is_causal, scale=scale
        )
        return cast("torch.Tensor", found[0])
    if is_fused and is_half and is_even and is_aligned and _BACKENDS.cudnn_sdp_enabled():
        found = _ATEN._scaled_dot_product_cudnn_attention(
            query, key, value, bias, with_gradient, dropout_p, is_causal, False, scale=scale
        )
        return cast("torch.Tensor", found[0])
    found = _ATEN._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )
    return cast("torch.Tensor", found[0])


def _scaled_groups(*arguments: Any, **named: Any) -> torch.Tensor:  # noqa: ANN401 (torch's)
    its = operands_of(_ATEN._scaled_grouped_mm_v2.default, arguments, named)
    sizes = its["self"], its["mat2"], its.get("offs"), its.get("out_dtype") or torch.bfloat16
    result: torch.Tensor = _create_grouped_mm_output_tensor(*sizes)  # type: ignore[no-untyped-call] # torch's
    return result


_KERNELS: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("Meta", "_transformer_encoder_layer_fwd"): lambda x, *_, **__: torch.empty_like(x),  # a layer's fast path
    # recurrent cells: the next state [batch, n], with an LSTM's cell, and what their gradients need [batch, 5 n or 4 n]
    ("Meta", "_thnn_fused_gru_cell"): lambda _, __, h, *___: (torch.empty_like(h), h.new_empty(len(h), 5 * h.shape[1])),
    ("Meta", "_thnn_fused_lstm_cell"): lambda gates, _, cell, *__: tuple(map(torch.empty_like, (cell, cell, gates))),
    ("Meta", "_scaled_grouped_mm_v2"): _scaled_groups,
    # without a kernel of the GPU, torch takes these apart into operations that a GPU does not run
    **{("CUDA", name): torch.empty_like for name in ("silu_backward", "mish_backward", "_fused_rms_norm")},
}
"""Kernels by dispatch key and operator: on Meta, sizes that torch would run an operator to know; on CUDA, never run."""


def _is_fused(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, enable_gqa: bool
) -> bool:
    """Return whether a kernel takes sizes and heads, and rows whose elements are neighbours: not an expanded mask's."""
    if not query.dim() == key.dim() == value.dim() == 4 or query.shape[0] != key.shape[0]:  # batch, heads, length, head
        return False
    is_dense = all(each is None or each.stride(-1) == 1 for each in (query, key, value, mask))
    heads = query.shape[-3] == key.shape[-3] or (enable_gqa and query.shape[-3] % key.shape[-3] == 0)
    return is_dense and heads and key.shape[:2] == value.shape[:2]


def _bias(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return a mask as numbers to add, one per pair of positions, its rows aligned in memory."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask.logical_not(), float("-inf"))
    columns = mask.shape[-1]
    if missing := -columns % _MASK_ALIGNMENT:
        mask = torch.nn.functional.pad(mask, (0, missing))[..., :columns]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
