"""Grouped products, for grouped_probe.py. Sizes are tiny: nothing runs."""

from __future__ import annotations

from typing import Any

import torch
from corpus_modules import BF16, FP8, INT32, Case, T
from torch.nn import functional as F  # noqa: N812

CASES: dict[str, Case] = {}
FP32 = torch.float32
GROUPS, N, K = 4, 96, 256
EXPERTS, ENDS = T((GROUPS, N, K)), T((GROUPS,), INT32)


def rows(x, experts, ends):
    return torch._grouped_mm(x, experts.transpose(1, 2), offs=ends)


def inner(grad, x, ends):
    return torch._grouped_mm(grad.t(), x, offs=ends)


def layer(x, up, down, ends):
    hidden = F.silu(rows(x, up, ends))
    return rows(rows(hidden, down, ends), up, ends)


def chosen(x, experts, ends, mask):
    return rows(x[mask], experts, ends)


def bounded(x, experts, ends, mask):
    few = x[mask]
    torch._check(few.shape[0] >= 2)
    torch._check(few.shape[0] <= 200)
    return rows(few, experts, ends)


def scaled(x, experts, of_x, of_experts, ends):
    return torch._scaled_grouped_mm(x, experts.transpose(1, 2), of_x, of_experts, offs=ends, out_dtype=BF16)


def fast(x, experts, of_x, of_experts, ends):
    return torch._scaled_grouped_mm(x, experts.transpose(1, 2), of_x, of_experts, offs=ends, use_fast_accum=True)


def strided(x, experts, of_x, of_experts, ends):
    return scaled(x, experts, of_x, of_experts[:, :N], ends)


def second(x, experts, of_x, of_experts, ends):
    functional: Any = F  # without a stub
    kind = functional.ScalingType.RowWise
    return functional.scaled_grouped_mm(x, experts.transpose(1, 2), of_x, kind, of_experts, kind, offs=ends)


CASES["rows"] = Case(rows, (T((64, K)), EXPERTS, ENDS))
CASES["in a range"] = Case(rows, (T((96, K)), EXPERTS, ENDS))
CASES["no row"] = Case(rows, (T((64, 2 * K)), T((GROUPS, N, 2 * K)), ENDS))
CASES["empty"] = Case(rows, (T((0, K)), EXPERTS, ENDS))
CASES["inner"] = Case(inner, (T((64, N)), T((64, K)), ENDS))
CASES["batch"] = Case(torch._grouped_mm, (T((GROUPS, 64, K)), T((GROUPS, K, N))))
CASES["open rows"] = Case(rows, (T((64, K), dynamic=(0,)), EXPERTS, ENDS))
CASES["open beyond"] = Case(rows, (T((4096, K), dynamic=(0,)), EXPERTS, ENDS))
CASES["unbacked rows"] = Case(chosen, (T((64, K)), EXPERTS, ENDS, T((64,), torch.bool)))
CASES["unbacked beyond"] = Case(chosen, (T((4096, K)), EXPERTS, ENDS, T((4096,), torch.bool)))
CASES["bounded rows"] = Case(bounded, (T((64, K)), EXPERTS, ENDS, T((64,), torch.bool)))
CASES["layer"] = Case(layer, (T((64, K)), EXPERTS, T((GROUPS, K, N)), ENDS))
CASES["training"] = Case(rows, (T((64, K), grad=True), T((GROUPS, N, K), grad=True), ENDS))
SCALED = (T((GROUPS, N, K), FP8), T((64,), FP32), T((GROUPS, N), FP32), ENDS)
CASES["scales"] = Case(scaled, (T((64, K), FP8), *SCALED))
CASES["second operator"] = Case(second, (T((64, K), FP8), *SCALED))
CASES["fast scales"] = Case(fast, (T((64, K), FP8), *SCALED))
CASES["open scales"] = Case(
    scaled, (T((64, K), FP8, dynamic=(0,)), SCALED[0], T((64,), FP32, dynamic=(0,)), *SCALED[2:])
)
CASES["strided scales"] = Case(strided, (T((64, K), FP8), *SCALED[:2], T((GROUPS, 2 * N), FP32), ENDS))
