"""Products with a beta of 0, of whose bias Inductor's templates must take nothing. Needs torch alone."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.virtualized import V


def unread_bias(alpha: float) -> dict[str, Any]:
    """Return keywords of a template that scales its product by alpha, and leaves the bias out.

    Inductor's own would multiply the bias by 0, and keep a NaN of memory that nobody has written; torch's operator
    takes nothing of it. Triton drops the load, which nothing uses.
    """

    def scaled(product: Any, _bias: Any) -> Any:  # noqa: ANN401 (values of Inductor's code)
        return product if alpha == 1 else V.ops.mul(product, V.ops.constant(alpha, torch.float32))

    return {"epilogue_fn": scaled, "epilogue_fn_hash": f"gemmtune: {alpha!r} times the product"}
