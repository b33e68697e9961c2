from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")

from torch._inductor.decomposition import select_decomp_table  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from gemmtune.engine.records.epilogue.text import parse_epilogue  # noqa: E402
from gemmtune.engine.tables.inductor.epilogues.reader import read_epilogue  # noqa: E402

pytestmark = pytest.mark.slow(15)

M, N, K, B = 24, 40, 16, 3


def tensors():
    def bf16(*shape):
        return torch.randn(shape, dtype=torch.bfloat16)

    return {
        "x": bf16(M, K),
        "w": bf16(N, K),
        "v": bf16(N, K),
        "r": bf16(M, N),
        "row": bf16(N),
        "column": torch.randn(M, 1),
        "one": torch.tensor(2.0),
        "x3": bf16(B, M, K),
        "w3": bf16(B, K, N),
        "r3": bf16(B, M, N),
        "t": bf16(N, M),
        "wide": bf16(M, 2 * N),
        "mask": torch.ones(M, N, dtype=torch.bool),
    }


def read(function, mode="fake"):
    """Return what the reader finds for each product of a function, in the order of the graph."""
    names = inspect.signature(function).parameters.keys() - {"_"}
    inputs = {name: tensor for name, tensor in tensors().items() if name in names}

    def call(*values):
        return function(**dict(zip(inputs, values, strict=True)))

    graph = make_fx(call, decomposition_table=select_decomp_table(), tracing_mode=mode)(*inputs.values())
    return [
        read_epilogue(node)
        for node in graph.graph.nodes
        if getattr(getattr(node.target, "overloadpacket", None), "__name__", "") in ("mm", "addmm", "bmm")
    ]


def both(y, *functions):
    return tuple(function(y) for function in functions)


def halves(y):
    one, other = y.chunk(2, -1)
    return F.silu(one) * other


def rotated(y):
    return y * 2 + torch.cat([-y[:, 20:], y[:, :20]], -1)


def normed(y):
    return y * torch.rsqrt((y * y).mean(-1, keepdim=True)), y


FUSED = {
    "silu.mul(matrix)": lambda x, w, r, **_: F.silu(x @ w.t()) * r,
    "mul(matrix.silu)": lambda x, w, r, **_: F.silu(r) * (x @ w.t()),
    "gelu": lambda x, w, row, **_: F.gelu(F.linear(x, w, row)),
    "gelu_tanh": lambda x, w, **_: F.gelu(x @ w.t(), approximate="tanh"),
    "add(matrix).relu": lambda x, w, r, **_: torch.relu(x @ w.t() + r),
    "add(matrix.mul(0.5))": lambda x, w, r, **_: torch.add(x @ w.t(), r, alpha=0.5),
    "mul(0.5).to(fp32)": lambda x, w, **_: (x @ w.t()).float() * 0.5,
    "sigmoid.mul(matrix).add(row)": lambda x, w, r, row, **_: torch.sigmoid(x @ w.t()) * r + row,
    "maximum(-1).minimum(1)": lambda x, w, **_: torch.clamp(x @ w.t(), -1, 1),
    "sub(1,x)": lambda x, w, **_: 1 - x @ w.t(),
    "mul(column[fp32]).mul(scalar[fp32]).to(fp32)": lambda x, w, column, one, **_: (x @ w.t()) * column * one,
    "mul(matrix[t])": lambda x, w, t, **_: (x @ w.t()) * t.t(),
    "matrix[bool].where(0,x)": lambda x, w, mask, **_: torch.where(mask, 0, x @ w.t()),
    "gelu_backward(matrix)": lambda x, w, r, **_: torch.ops.aten.gelu_backward(x @ w.t(), r),
    "gelu_tanh_backward(matrix)": lambda x, w, r, **_: torch.ops.aten.gelu_backward(x @ w.t(), r, approximate="tanh"),
    "silu_backward(matrix)": lambda x, w, r, **_: torch.ops.aten.silu_backward(x @ w.t(), r),
    "relu_backward(matrix)": lambda x, w, r, **_: torch.ops.aten.threshold_backward(x @ w.t(), r, 0),
    "gelu+x": lambda x, w, **_: both(x @ w.t(), F.gelu, lambda y: y),
    "gelu+relu": lambda x, w, **_: both(x @ w.t(), F.relu, F.gelu),
    "gelu.add(matrix)": lambda x3, w, row, r3, **_: F.gelu(F.linear(x3, w, row)) + r3,
    "mul(matrix).add(row)": lambda x3, w3, r3, row, **_: torch.bmm(x3, w3) * r3 + row,
    "mul(2)": lambda x3, w, **_: F.linear(x3, w).view(B, M, 5, 8) * 2,
    "relu": lambda x, w, **_: both(torch.relu(x @ w.t()), lambda y: y, lambda y: y.sum(0)),
}
"""Functions by the epilogue of their product."""

PLAIN = {
    "returned": lambda x, w, **_: x @ w.t(),
    "softmax": lambda x, w, **_: torch.softmax(x @ w.t(), -1),
    "normed": lambda x, w, r, **_: normed(x @ w.t() + r),
    "layer norm": lambda x, w, row, r, **_: F.layer_norm(F.linear(x, w, row) + r, (N,), row, row),
    "heads": lambda x3, w, **_: F.linear(x3, w).view(B, M, 5, 8).transpose(1, 2).contiguous() * 2,
    "rotated": lambda x, w, **_: rotated(x @ w.t()),
    "halves": lambda x, w, **_: halves(x @ w.t()),
}
"""Functions whose first product has no epilogue."""

UNKNOWN = {
    "cat within an epilogue": lambda x, w, r, **_: (x @ w.t()) * torch.cat([r[:4], r[4:]]),
    "a tensor with other strides": lambda x, w, wide, **_: (x @ w.t()) * wide[:, :N],
    "a conversion to torch.int32": lambda x, w, **_: (x @ w.t()).int() + 1,
    "atan, no known name": lambda x, w, **_: torch.atan(x @ w.t()),
}
"""Functions with an epilogue that no text describes, by the reason."""


@pytest.mark.parametrize("text", FUSED)
def test_the_operations_behind_a_product_are_its_epilogue(text):
    (found,) = read(FUSED[text])
    assert (str(found.epilogue), found.reason) == (text, "")
    assert parse_epilogue(text) == found.epilogue
    assert found.nodes


@pytest.mark.parametrize("name", PLAIN)
def test_what_no_kernel_of_the_product_can_compute_is_no_epilogue(name):
    found = read(PLAIN[name])[0]
    assert (str(found.epilogue), found.nodes, found.reason) == ("none", frozenset(), "")


@pytest.mark.parametrize("reason", UNKNOWN)
def test_an_epilogue_without_a_text_is_unknown_with_a_reason(reason):
    (found,) = read(UNKNOWN[reason])
    assert found.epilogue is None
    assert reason in found.reason


def test_an_output_of_two_products_belongs_to_the_last_one():
    first, second = read(lambda x, w, v, **_: F.silu(x @ w.t()) * (x @ v.t()))
    assert (str(first.epilogue), str(second.epilogue)) == ("none", "mul(matrix.silu)")


def test_a_value_with_two_users_is_stored_from_five_reads_on():
    def two_users(x, w, v, r, t, row, *more):
        value = sum(more, x @ w.t() + r + t.t() + row)
        return value.neg() + x @ v.t(), value.sigmoid()

    inlined = read(lambda x, w, v, r, t, row, **_: two_users(x, w, v, r, t, row))[1]
    assert str(inlined.epilogue) == "add(matrix.add(matrix2).add(matrix3[t]).add(row).neg)"
    stored = read(lambda x, w, v, r, t, row, column, **_: two_users(x, w, v, r, t, row, column))[1]
    assert str(stored.epilogue) == "add(matrix[fp32].neg).to(fp32)"


def test_a_dynamic_size_changes_no_epilogue():
    (found,) = read(lambda x, w, r, row, **_: F.silu(x @ w.t()) * r + row, mode="symbolic")
    assert str(found.epilogue) == "silu.mul(matrix).add(row)"


def test_reading_adds_no_guard_on_a_dynamic_size():
    graph = make_fx(lambda x, w, c: (x @ w.t()).relu() * c, tracing_mode="symbolic")(
        torch.randn(24, 16), torch.randn(40, 16), torch.randn(24, 1)
    )
    (product,) = [node for node in graph.graph.nodes if node.target is torch.ops.aten.mm.default]
    shapes = product.meta["val"].fake_mode.shape_env
    before = len(shapes.guards)
    assert str(read_epilogue(product).epilogue) == "relu.mul(column)"
    assert len(shapes.guards) == before
