"""Small modules with every product that PyTorch has, for corpus_probe.py. Sizes are tiny: nothing runs.

A case is a function and its inputs: tensors without data, on the GPU where they do not say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

BF16, FP8, INT8, INT32 = torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.int32


@dataclass(frozen=True)
class T:
    """Description of an input."""

    sizes: tuple[int, ...]
    dtype: torch.dtype = BF16
    strides: tuple[int, ...] | None = None
    grad: bool = False
    dynamic: tuple[int, ...] = ()
    device: str = "cuda:0"

    def make(self) -> torch.Tensor:
        strides = self.strides or torch.empty(self.sizes, device="meta").stride()
        made = torch.empty_strided(self.sizes, strides, dtype=self.dtype, device=self.device)
        made.requires_grad_(self.grad)
        for place in self.dynamic:
            torch._dynamo.mark_dynamic(made, place)
        return made


@dataclass(frozen=True)
class Case:
    """Function or builder of a module, and its inputs."""

    call: Callable[..., Any]
    inputs: tuple[T, ...]
    builds: bool = False
    needs: str = ""


CASES: dict[str, Case] = {}


def t(*sizes: int, **more: Any) -> T:
    return T(sizes, **more)


def add(name: str, call: Callable[..., Any], *inputs: T, **more: Any) -> None:
    assert name not in CASES, name
    CASES[name] = Case(call, inputs, **more)


def build(name: str, builder: Callable[[], nn.Module], *inputs: T, **more: Any) -> None:
    add(name, builder, *inputs, builds=True, **more)


def column(rows: int, columns: int, **more: Any) -> T:
    """Describe the transpose of a contiguous matrix."""
    return T((rows, columns), strides=(1, rows), **more)


A, B, BT, C = t(64, 256), t(256, 96), column(256, 96), t(64, 96)
X, Y = t(4, 16, 64), t(4, 64, 32)

# Products by their names, and in other words
add("mm", torch.mm, A, B)
add("mm nt", torch.mm, A, BT)
add("mm tt", torch.mm, column(64, 256), BT)
add("addmm", torch.addmm, t(96), A, B)
add("addmm nt", torch.addmm, t(96), A, BT)
add("addmm matrix", torch.addmm, C, A, BT)
add("bmm", torch.bmm, X, Y)
add("baddbmm", torch.baddbmm, t(4, 16, 32), X, Y)
add("addbmm", torch.addbmm, t(16, 32), X, Y)
add("mv", torch.mv, A, t(256))
add("addmv", torch.addmv, t(64), A, t(256))
add("dot", torch.dot, t(256), t(256))
add("inner", torch.inner, A, t(96, 256))
add("outer", torch.outer, t(64), t(96))
add("matmul 1 1", torch.matmul, t(256), t(256))
add("matmul 1 2", torch.matmul, t(256), B)
add("matmul 3 1", torch.matmul, X, t(64))
add("matmul 3 2", torch.matmul, t(4, 16, 256), B)
add("matmul 2 3", torch.matmul, t(16, 64), Y)
add("matmul 3 3 broadcast", torch.matmul, t(1, 16, 64), Y)
add("matmul 4 4", torch.matmul, t(2, 2, 16, 64), t(2, 2, 64, 32))
add("linear", F.linear, A, t(96, 256), t(96))
add("linear without bias", F.linear, A, t(96, 256))
add("bilinear", F.bilinear, t(8, 16), t(8, 24), t(12, 16, 24), t(12))
add("einsum", lambda a, b: torch.einsum("bij,bjk->bik", a, b), X, Y)
add("einsum of four", lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b), t(2, 2, 16, 64), t(2, 2, 16, 64))
add("tensordot", lambda a, b: torch.tensordot(a, b, dims=2), t(8, 16, 24), t(16, 24, 40))
add("chain_matmul", torch.chain_matmul, A, B, t(96, 8))
add("multi_dot", lambda *m: torch.linalg.multi_dot(m), A, B, t(96, 8), t(8, 40))
add("kron", torch.kron, t(4, 8), t(8, 4))
add("cdist", torch.cdist, t(40, 8, dtype=torch.float32), t(48, 8, dtype=torch.float32))
add("several", lambda a, b, c: (torch.relu(a @ b), F.gelu(a @ b + c), (a @ b).float()), A, B, C)
add("sum of two", lambda a, b, c, d: a @ b + c @ d, A, B, A, B)

# Sizes and strides
add("no rows", torch.mm, t(0, 256), B)
add("no k", torch.mm, t(64, 0), t(0, 96))
add("no batch", torch.bmm, t(0, 16, 64), t(0, 64, 32))
add("one row", torch.mm, t(1, 256), BT)
add("one column", torch.addmm, t(1), A, t(256, 1))
add("k of 1", torch.mm, t(64, 1), t(1, 96))
add("primes", torch.addmm, t(97), t(61, 251), t(251, 97))
add("tiny inner sizes", torch.mm, t(128, 3), t(3, 4))
add("deep k", torch.mm, t(16, 8192), t(8192, 16))
add("expanded", torch.mm, T((64, 256), strides=(0, 1)), B)
add("expanded batch", torch.bmm, T((4, 16, 64), strides=(0, 64, 1)), Y)
add("strided rows", torch.mm, T((64, 256), strides=(512, 1)), BT)
add("strided columns", torch.mm, T((64, 256), strides=(512, 2)), BT)
add("overlapping", torch.mm, T((64, 256), strides=(3, 1)), BT)
add("slices", lambda x, w: (x[:, :256] @ w, x[:, -1:] @ w[:1]), t(64, 300), B)
add("transposed result", lambda a, b: (a @ b).t().contiguous(), A, B)
add("channels of an image", lambda x, w: (x.permute(0, 2, 3, 1) @ w).permute(0, 3, 1, 2), t(2, 16, 8, 8), t(16, 32))

# alpha, beta, output types, biases
add("alpha", lambda c, a, b: torch.addmm(c, a, b, alpha=2), t(96), A, BT)
add("beta", lambda c, a, b: torch.addmm(c, a, b, beta=0.5), C, A, BT)
add("beta of 0", lambda c, a, b: torch.addmm(c, a, b, beta=0), t(96), A, BT)
add("alpha and beta of 0", lambda c, a, b: torch.addmm(c, a, b, beta=0, alpha=0), t(96), A, BT)
add("baddbmm beta of 0", lambda c, a, b: torch.baddbmm(c, a, b, beta=0), t(4, 16, 32), X, Y)
add("baddbmm alpha", lambda c, a, b: torch.baddbmm(c, a, b, alpha=0.125), t(4, 1, 32), X, Y)
add("baddbmm number", torch.baddbmm, t(), X, Y)
add("mm to fp32", lambda a, b: torch.mm(a, b, out_dtype=torch.float32), A, B)
add("bmm to fp32", lambda a, b: torch.bmm(a, b, out_dtype=torch.float32), X, Y)
add("addmm to fp32", lambda c, a, b: torch.addmm(c, a, b, out_dtype=torch.float32), t(96, dtype=torch.float32), A, B)
for words, given in {
    "number": t(),
    "number nt": t(),
    "one": t(1),
    "column": t(64, 1),
    "row": t(1, 96),
    "expanded row": T((64, 96), strides=(0, 1)),
    "expanded column": T((64, 96), strides=(1, 0)),
    "transposed": column(64, 96),
    "strided": T((96,), strides=(2,)),
}.items():
    add(f"bias {words}", torch.addmm, given, A, BT if "nt" in words else B)
add("bias computed", lambda c, a, b: torch.addmm(c.float().exp().bfloat16(), a, b), t(96), A, BT)
add("bias of a constant", lambda a, b: torch.addmm(torch.full((), 2.0, dtype=BF16, device=a.device), a, b), A, BT)
add("bias of fp32", torch.addmm, t(96, dtype=torch.float32), A, B)

# Types
add("fp32", torch.mm, t(64, 256, dtype=torch.float32), t(256, 96, dtype=torch.float32))
add("fp64", torch.addmm, *(t(*s, dtype=torch.double) for s in ((96,), (64, 256), (256, 96))))
add("complex", torch.mm, t(64, 256, dtype=torch.complex64), t(256, 96, dtype=torch.complex64))
add("integers", torch.mm, t(64, 256, dtype=INT32), t(256, 96, dtype=INT32))
add("booleans", lambda a, b: (a.float() @ b.float()) > 0, t(64, 256, dtype=torch.bool), t(256, 96, dtype=torch.bool))
add("mixed", torch.mm, A, t(256, 96, dtype=torch.float32))
add("weight of int8", lambda x, w, s: (x @ w.to(BF16)) * s, A, t(256, 96, dtype=INT8), t(96))
_INT8 = (t(64, 256, dtype=INT8), column(256, 96, dtype=INT8))
add("int_mm", torch._int_mm, *_INT8)
_FP8 = (t(64, 256, dtype=FP8), column(256, 96, dtype=FP8))
_ONE = t(dtype=torch.float32)


def scaled(a: Any, b: Any, x: Any, y: Any, bias: Any = None) -> Any:
    return torch._scaled_mm(a, b, x, y, bias, out_dtype=BF16)


add("scaled_mm", scaled, *_FP8, _ONE, _ONE)
add("scaled_mm with a bias", scaled, *_FP8, _ONE, _ONE, t(96))
add("scaled_mm by rows", scaled, *_FP8, t(64, 1, dtype=torch.float32), t(1, 96, dtype=torch.float32))

# Grouped products; offsets are of int32
_OFFSETS = t(4, dtype=INT32)


def grouped(a: Any, b: Any, offsets: Any = None) -> Any:
    return torch._grouped_mm(a, b, offs=offsets, out_dtype=BF16)


def scaled_grouped(a: Any, b: Any, x: Any, y: Any, offsets: Any = None) -> Any:
    return torch._scaled_grouped_mm(a, b, x, y, offs=offsets, out_dtype=BF16)


_EXPERTS = T((4, 256, 96), strides=(256 * 96, 1, 256))
_FP8_EXPERTS = T((4, 256, 96), FP8, (256 * 96, 1, 256))
add("grouped 2 3", grouped, A, t(4, 256, 96), _OFFSETS)
add("grouped 2 3 nt", grouped, A, _EXPERTS, _OFFSETS)
add("grouped 3 2", grouped, t(4, 64, 256), B, _OFFSETS)
add("grouped 3 3", grouped, t(4, 64, 256), _EXPERTS)
add("grouped 2 2", grouped, A, B, _OFFSETS)
add("grouped open", grouped, t(64, 256, dynamic=(0,)), _EXPERTS, _OFFSETS)
add("grouped with gradients", grouped, t(64, 256, grad=True), T((4, 256, 96), BF16, (256 * 96, 1, 256), True), _OFFSETS)
_LAYER = (A, t(256, 256), _EXPERTS, _OFFSETS)
add("grouped in a layer", lambda x, v, w, o: grouped(F.silu(x @ v), w, o) @ w[0].t(), *_LAYER)
_FUNCTION = "nn.functional.grouped_mm"
add("grouped function", lambda a, b, o: F.grouped_mm(a, b, offs=o), A, _EXPERTS, _OFFSETS, needs=_FUNCTION)
_SCALES = {2: t(64, dtype=torch.float32), 3: t(4, 64, dtype=torch.float32), 4: t(4, 96, dtype=torch.float32)}
add("scaled grouped 2 3", scaled_grouped, t(64, 256, dtype=FP8), _FP8_EXPERTS, _SCALES[2], _SCALES[4], _OFFSETS)
add("scaled grouped 3 3", scaled_grouped, t(4, 64, 256, dtype=FP8), _FP8_EXPERTS, _SCALES[3], _SCALES[4])

# Sparse, packed and ragged
add("semi-structured", torch._sparse_semi_structured_mm, t(64, 128), t(64, 16, dtype=torch.int16), B)
add("int4", lambda x, w, s: torch._weight_int4pack_mm(x, w, 32, s), A, t(12, 2, 32, 4, dtype=INT32), t(8, 96, 2))


def jagged(values: Any, offsets: Any, weight: Any) -> Any:
    ragged = torch.nested.nested_tensor_from_jagged(values, offsets, min_seqlen=1, max_seqlen=32)
    return F.linear(ragged, weight).values()


add("jagged", jagged, A, t(5, dtype=torch.int64), t(96, 256))
add("sparse rows", lambda r, c, v, b: torch.sparse_csr_tensor(r, c, v, (64, 256)) @ b, t(65, dtype=torch.int64),
    t(640, dtype=torch.int64), t(640, dtype=torch.float32), t(256, 96, dtype=torch.float32))  # fmt: skip

# Convolutions
IMAGE = t(4, 16, 8, 8)
LAST = T((4, 16, 8, 8), strides=(1024, 1, 128, 16))
add("conv1d", F.conv1d, t(2, 16, 40), t(24, 16, 3), t(24))
add("conv2d", F.conv2d, IMAGE, t(24, 16, 3, 3), t(24))
add("conv3d", F.conv3d, t(2, 8, 6, 6, 6), t(12, 8, 3, 3, 3), t(12))
add("conv 1x1", F.conv2d, IMAGE, t(24, 16, 1, 1), t(24))
add("conv 1x1 last", F.conv2d, LAST, t(24, 16, 1, 1), t(24))
add("conv 1x1 with a row", F.conv2d, LAST, t(32, 16, 1, 1))
add("conv 1x1 strided", lambda x, w: F.conv2d(x, w, stride=2), LAST, t(32, 16, 1, 1))
add("conv 1d of 1", F.conv1d, t(2, 16, 40), t(24, 16, 1))
add("conv transposed", F.conv_transpose2d, IMAGE, t(16, 24, 3, 3), t(24))
add("conv grouped", lambda x, w: F.conv2d(x, w, groups=4), IMAGE, t(24, 4, 3, 3))
add("conv by channel", lambda x, w: F.conv1d(x, w, groups=16), t(2, 16, 40), t(16, 1, 3))
_LAYERS = (lambda: nn.Conv2d(16, 24, 3)), nn.ReLU, (lambda: nn.Conv2d(24, 8, 1))
build("conv with gradients", lambda: nn.Sequential(*(each() for each in _LAYERS)), t(4, 16, 8, 8, grad=True))

# Attention, recurrence, embeddings
HEADS = t(2, 4, 32, 64)
add("attention", F.scaled_dot_product_attention, HEADS, HEADS, HEADS)
add("attention by hand", lambda q, k, v: torch.softmax(q @ k.mT / 8, -1) @ v, HEADS, HEADS, HEADS)


def flex(q: Any, k: Any, v: Any) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(q, k, v)


add("flex attention", flex, t(1, 2, 128, 64), t(1, 2, 128, 64), t(1, 2, 128, 64))


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


build("MultiheadAttention", SelfAttention, t(2, 32, 64, grad=True))
build("LSTM", lambda: nn.LSTM(16, 24), t(4, 2, 16))
build("GRU", lambda: nn.GRU(16, 24), t(4, 2, 16))
build("embedding", lambda: nn.Sequential(nn.Embedding(40, 16), nn.Linear(16, 40)), t(2, 8, dtype=torch.int64))
build("embedding bag", lambda: nn.Sequential(nn.EmbeddingBag(40, 16), nn.Linear(16, 40)), t(2, 8, dtype=torch.int64))


# Training
class Mlp(nn.Module):
    def __init__(self, inner: Callable[[Any], Any] = F.gelu) -> None:
        super().__init__()
        self.up, self.down, self.inner = nn.Linear(256, 96), nn.Linear(96, 256), inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.inner(self.up(x)))


class Checkpointed(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().forward, x, use_reentrant=False)


class Autocast(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", BF16):
            return torch.addmm(x.sum(), super().forward(x), self.up.weight.t())


class Gated(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.up(x)) * F.linear(x, self.up.weight))


build("mlp", Mlp, t(64, 256, grad=True))
build("checkpoint", Checkpointed, t(64, 256, grad=True))
build("dropout", lambda: Mlp(lambda x: F.dropout(x, 0.5)), t(64, 256, grad=True))
build("autocast", lambda: Autocast().float(), t(64, 256, dtype=torch.float32, grad=True))
build("gated", Gated, t(64, 256, grad=True))
add("bias number with gradients", torch.addmm, t(grad=True), t(64, 256, grad=True), t(256, 96, grad=True))
add("addmm_", lambda c, a, b: c.clone().addmm_(a, b), C, A, B)
add("mm into", lambda c, a, b: torch.mm(a, b, out=c.clone()), C, A, B)


def step(weight: torch.Tensor, x: torch.Tensor) -> Any:
    gradient = x.t() @ x @ weight
    first, second = torch._foreach_mul([weight, gradient], 0.9), torch._foreach_sqrt([gradient])
    return [a + b for a, b in zip(first, [*second, gradient @ weight.t() @ weight], strict=True)]


add("optimizer", step, t(256, 96), A)

# Open sizes, control flow, and the CPU
add("open rows", torch.mm, t(64, 256, dynamic=(0,)), BT)
add("open rows with a bias", torch.addmm, t(96), t(64, 256, dynamic=(0,)), BT)
add("open rows, number", torch.addmm, t(), t(64, 256, dynamic=(0,)), BT)
add("open k", torch.mm, t(64, 256, dynamic=(1,)), t(256, 96, dynamic=(0,)))
add("open batch", torch.bmm, t(4, 16, 64, dynamic=(0,)), t(4, 64, 32, dynamic=(0,)))
_BRANCHES = (lambda x, y: x @ y), (lambda x, y: (x + 1) @ y)
add("condition", lambda p, a, b: torch.cond(p, *_BRANCHES, (a, b)), t(dtype=torch.bool), A, B)
add("cpu", torch.mm, *(t(*s, dtype=torch.float32, device="cpu") for s in ((64, 256), (256, 96))))
add("cpu linear", F.linear, *(t(*s, dtype=torch.float32, device="cpu") for s in ((64, 256), (96, 256), (96,))))
