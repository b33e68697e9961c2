"""Products of 8-bit operands, for quantised_probe.py. Sizes are tiny: nothing runs."""

from __future__ import annotations

import torch
from corpus_modules import BF16, FP8, INT8, Case, T
from torch.nn import functional as F  # noqa: N812

FP32, E5M2 = torch.float32, torch.float8_e5m2
CASES: dict[str, Case] = {}


def scaled(a, b, of_a, of_b, bias=None, fast=True, out=BF16):
    return torch._scaled_mm(a, b.t(), of_a, of_b, bias=bias, out_dtype=out, use_fast_accum=fast)


def exact(*operands):
    return scaled(*operands, fast=False)


def dequantised(a, b, of_a, of_b):
    return (torch._int_mm(a, b.t()) * of_a * of_b).to(BF16)


def second_version(a, b, of_a, of_b):
    kind = F.ScalingType.RowWise if of_a.numel() > 1 else F.ScalingType.TensorWise
    return F.scaled_mm(a, b.t(), of_a, kind, of_b, kind, output_dtype=BF16, use_fast_accum=True)


class Training(torch.autograd.Function):
    """Product with scales per tensor, whose gradient is summed exactly."""

    @staticmethod
    def forward(context, x, weight, scale):
        context.save_for_backward(weight, scale)
        return scaled(x.to(FP8), weight.to(FP8), scale, scale)

    @staticmethod
    def backward(context, gradient):
        weight, scale = context.saved_tensors
        of_x = scaled(gradient.to(E5M2), weight.t().to(FP8).contiguous(), scale, scale, fast=False)
        return of_x, None, None


def rows(m=64, n=96):
    return T((m, 1), FP32), T((1, n), FP32)


ONE = T((), FP32)
OPERANDS = T((64, 256), FP8), T((96, 256), FP8)
WHOLE = T((64, 256), INT8), T((96, 256), INT8)
CASES["rows"] = Case(scaled, (*OPERANDS, *rows()))
CASES["one token"] = Case(scaled, (T((1, 256), FP8), OPERANDS[1], *rows(1)))
CASES["tensors"] = Case(scaled, (*OPERANDS, ONE, ONE))
CASES["tensors of one element"] = Case(scaled, (*OPERANDS, *rows(1, 1)))
CASES["one scale for both"] = Case(lambda a, b, one: scaled(a, b, one, one), (*OPERANDS, ONE))
CASES["bias"] = Case(scaled, (*OPERANDS, *rows(), T((96,))))
CASES["bias apart"] = Case(scaled, (*OPERANDS, *rows(), T((96,), strides=(2,))))
if torch.__version__ < "2.14":  # which transposes them
    CASES["tensors of three dimensions"] = Case(scaled, (*OPERANDS, *(T((1, 1, 1), FP32) for _ in "ab")))
CASES["silu"] = Case(lambda *x: F.silu(scaled(*x)), (*OPERANDS, *rows()))
CASES["relu"] = Case(lambda *x: torch.relu(scaled(*x)), (*OPERANDS, *rows()))
CASES["exact tensors"] = Case(exact, (*OPERANDS, ONE, ONE))
CASES["exact rows"] = Case(exact, (*OPERANDS, *rows()))
CASES["second version"] = Case(second_version, (*OPERANDS, *rows()), needs="nn.functional.scaled_mm")
CASES["second version of tensors"] = Case(second_version, (*OPERANDS, ONE, ONE), needs="nn.functional.scaled_mm")
CASES["blocks"] = Case(
    scaled, (T((128, 256), FP8), T((128, 256), FP8), T((128, 2), FP32), T((2, 1), FP32, strides=(1, 2)))
)
CASES["fp16"] = Case(lambda *x: scaled(*x, out=torch.float16), (*OPERANDS, ONE, ONE))
CASES["fp16 rows"] = Case(lambda *x: scaled(*x, out=torch.float16), (*OPERANDS, *rows()))
CASES["fp32 rows"] = Case(lambda *x: scaled(*x, out=FP32), (*OPERANDS, *rows()))
CASES["fp32 tensors"] = Case(lambda *x: torch.relu(scaled(*x, out=FP32)).to(BF16), (*OPERANDS, ONE, ONE))
CASES["open rows"] = Case(scaled, (T((64, 256), FP8, dynamic=(0,)), OPERANDS[1], ONE, ONE))
CASES["training"] = Case(Training.apply, (T((64, 256), grad=True), T((96, 256)), ONE))
CASES["int8"] = Case(lambda a, b: torch._int_mm(a, b.t()), WHOLE)
CASES["int8 with scales"] = Case(dequantised, (*WHOLE, *rows()))
CASES["int8 twice"] = Case(lambda a, b: torch._int_mm(a, b.t()) * 2, WHOLE)
CASES["int8 by thirds"] = Case(lambda a, b: torch._int_mm(a, b.t()) / 3, WHOLE)
CASES["fp8 output"] = Case(lambda *x: scaled(*x, out=None), (*OPERANDS, ONE, ONE))
CASES["tensors of one vector each"] = Case(scaled, (*OPERANDS, T((1,), FP32), T((1,), FP32)))
