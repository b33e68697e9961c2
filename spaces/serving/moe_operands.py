"""Tensors of a layer's products among the arguments of a launchable, and the strides of their scales.

The order is that of `Operands.arguments` in spaces/serving/moe_kind.py.
"""

from collections.abc import Mapping

from gemmtune.engine.consumers.serving.contract.moe_layer import MoeLayer, MoeType
from gemmtune.engine.consumers.serving.contract.wna16_layer import Wna16Layer
from gemmtune.spaces.triton_source.launches import Argument, Pointer

FIRST, SECOND = 0, 1
"""Numbers of the products."""
_PER_PRODUCT = 5
_WEIGHTS, _EXPERTS, _ALIGNED, _ZEROS = 10, 11, 12, 13
_TYPES: Mapping[MoeType, tuple[str, str, str, str | None, str | None]] = {
    MoeType.BF16: ("bf16", "bf16", "bf16", None, None),
    MoeType.FP16: ("fp16", "fp16", "fp16", None, None),
    MoeType.FP8_TENSOR: ("fp8e4nv", "fp8e4nv", "bf16", "fp32", "fp32"),
    MoeType.FP8_BLOCK: ("fp8e4nv", "fp8e4nv", "bf16", "fp32", "fp32"),
    MoeType.INT8_W8A16: ("bf16", "i8", "bf16", None, "fp32"),
}
"""Types of activations, weights, outputs and both scales."""
_GROUPED = ("bf16", "u8", "bf16", None, "bf16")
"""Types of integer weights with a scale per group, in that order."""
ROUTED_EXPERTS = Pointer("i32", (_EXPERTS,))
"""Numbers of the experts that each token takes."""


def tensors(layer: MoeLayer, product: int, block_m: int) -> dict[str, Argument]:
    """Return the tensors of a product by the names of both engines' arguments; scales that a type has not are None.

    Rows are sorted by expert for tiles of `block_m` rows.
    """
    types = _GROUPED if isinstance(layer, Wna16Layer) else _TYPES[layer.dtype]
    names = ("a_ptr", "b_ptr", "c_ptr", "a_scale_ptr", "b_scale_ptr")
    first = product * _PER_PRODUCT
    found = {
        name: Pointer(of, (first + i,)) if of else None for i, (name, of) in enumerate(zip(names, types, strict=True))
    }
    sorted_by_expert = ("sorted_token_ids_ptr", "expert_ids_ptr", "num_tokens_post_padded_ptr")
    rows = {name: Pointer("i32", (_ALIGNED, block_m, i)) for i, name in enumerate(sorted_by_expert)}
    zeros = Pointer("u8", (_ZEROS + product,)) if isinstance(layer, Wna16Layer) and layer.zeros else None
    return {**found, **rows, "topk_weights_ptr": Pointer("fp32", (_WEIGHTS,)), "b_zp_ptr": zeros}


def scale_strides(layer: MoeLayer, product: int) -> dict[str, int]:
    """Return the strides of the scales: rows and columns of the activations'; experts, k and n of the weights'."""
    n, k = layer.products[product]
    row, part, expert, along_n = 0, 0, int(layer.dtype is MoeType.FP8_TENSOR), 0
    if layer.dtype is MoeType.INT8_W8A16:
        expert, along_n = n, 1
    elif layer.scale_block:
        of_rows, of_columns = layer.scale_block
        row, part, expert = k // of_columns, 1, -(-n // of_rows) * (k // of_columns)
        along_n = row if n > of_rows else 0
    return {"asm": row, "ask": part, "bse": expert, "bsk": part, "bsn": along_n}
