from __future__ import annotations

import inspect
import math

import pytest

torch = pytest.importorskip("torch")

from torch._inductor import config  # noqa: E402 (torch is there)
from torch._inductor.decomposition import select_decomp_table  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from gemmtune.engine.consumers.inductor.epilogues import reader  # noqa: E402
from gemmtune.engine.consumers.inductor.epilogues.reader import read_epilogue  # noqa: E402
from gemmtune.engine.records.epilogue.text import parse_epilogue  # noqa: E402

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
        "columns": torch.randn(M // 4, 4, 1),
        "one": torch.tensor(2.0),
        "x3": bf16(B, M, K),
        "w3": bf16(B, K, N),
        "r3": bf16(B, M, N),
        "t": bf16(N, M),
        "wide": bf16(M, 2 * N),
        "mask": torch.ones(M, N, dtype=torch.bool),
        "whole": torch.ones(M, N, dtype=torch.int64),
        "double": torch.ones(M, N, dtype=torch.float64),
        "rows3": torch.randn(B, 1, N),
        "row3": bf16(B, 1, N),
        "column3": bf16(B, M, 1),
        "wide3": bf16(B, 1, 2 * N),
        "t3": bf16(B, N, M),
        "gates": bf16(B, 6 * N),
        "heads": bf16(M, 2, N // 2),
        "apart": bf16(M, N, 2),
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


def repeated(y, count):
    for _ in range(count):
        y = y.sin()
    return y


def doubled(y):
    for _ in range(9):
        y = y * y.sin()
    return y


def centred(y):
    return y - y.mean(0, keepdim=True)


def hidden(y):
    return y @ y.t()


def blocks(y, three, two):
    y = y.view(3, 8, N) * three[:, None]
    return y.view(2, 12, N) + two[:, None]


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
    "sub(3,x)": lambda x, w, **_: torch.rsub(x @ w.t(), 3),
    "matrix.sub(x.mul(2))": lambda x, w, r, **_: torch.rsub(x @ w.t(), r, alpha=2),
    "pow(2)": lambda x, w, **_: (x @ w.t()).square(),
    "maximum(-1)": lambda x, w, **_: torch.clamp(x @ w.t(), min=-1),
    "minimum(1)": lambda x, w, **_: torch.clamp(x @ w.t(), max=1),
    "maximum(matrix)": lambda x, w, r, **_: torch.clamp(x @ w.t(), min=r),
    "relu.to(fp16)": lambda x, w, **_: (x @ w.t()).half().relu(),
    "mul(matrix[bool])": lambda x, w, mask, **_: (x @ w.t()) * mask,
    "mul(rows[fp32]).to(fp32)": lambda x3, w3, rows3, **_: torch.bmm(x3, w3) * rows3,
    "add(rows).relu": lambda x3, w3, row3, **_: torch.relu(torch.bmm(x3, w3) + row3),
    "mul(column[fp32].abs.maximum(0.5)).to(fp32)": lambda x, w, column, **_: (
        (x @ w.t()) * column.abs().clamp(min=0.5).expand(M, N)
    ),
    "mul(column[fp32].div(127)).to(fp32)": lambda x, w, columns, **_: (x @ w.t()) * (columns / 127).reshape(-1, 1),
    "mul(column)": lambda x3, w3, column3, **_: torch.bmm(x3, w3) * column3,
    f"mul(gate[{M}]).add(matrix)": lambda x3, w, r3, gates, **_: r3 + gates[:, None, N : 2 * N] * F.linear(x3, w),
    f"mul(gate[{M},fp32]).to(fp32)": lambda x3, w, rows3, **_: F.linear(x3, w) * rows3,
    "mul(gate[8]).add(gate2[12])": lambda x, w, r, wide, **_: blocks((x @ w.t()), r[:3], wide[:2, :N]),
    "sin.mul(matrix[t])": lambda x3, w3, t3, **_: torch.bmm(x3, w3).sin() * t3.transpose(1, 2),
    "mul(matrix)": lambda x, w, heads, **_: (x @ w.t()).view(M, 2, N // 2) * heads,
    "mul(row)": lambda x, w, row, **_: (x @ w.t()).view(M, 2, N // 2) * row.view(2, N // 2),
    "mul(scalar[fp32]).to(fp32)": lambda x, w, one, **_: (x @ w.t()) * one.expand(M, N),
    "mul(column[fp32]).to(fp32)": lambda x, w, column, **_: (x @ w.t()) * column.expand(M, N),
    "add(3)": lambda x, w, **_: (x @ w.t()) + torch.full((M, N), 3.0, dtype=torch.bfloat16),
    "add(matrix.mul(2)).add(matrix)": lambda x, w, r, **_: (x @ w.t()) + r * 2 + r,
    "cos": lambda x, w, **_: (x @ w.t()).cos()[:4],
    "add(matrix)+relu+x": lambda x, w, r, **_: both(x @ w.t(), F.relu, lambda y: y + r, lambda y: y),
    ".".join(["sin"] * 24): lambda x, w, **_: repeated(x @ w.t(), 24),
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
    "summed": lambda x, w, **_: torch.relu(x @ w.t()).sum(),
    "summed columns": lambda x, w, **_: torch.relu(x @ w.t()).sum(1),
    "summed rows alone": lambda x, w, **_: torch.relu(x @ w.t()).sum(0),
    "joined": lambda x, w, r, **_: torch.cat([torch.relu(x @ w.t()), r]),
    "less its mean": lambda x, w, **_: centred(x @ w.t()),
}
"""Functions whose first product has no epilogue."""

UNKNOWN = {
    "cat within an epilogue": lambda x, w, r, **_: (x @ w.t()) * torch.cat([r[:4], r[4:]]),
    "a tensor with other strides": lambda x, w, wide, **_: (x @ w.t()) * wide[:, :N],
    "a conversion to torch.int32": lambda x, w, **_: (x @ w.t()).int() + 1,
    "view of a value that is broadcast": lambda x, w, row, **_: (x @ w.t()) * (row + 1).view(1, N, 1).view(1, N),
    "atan, no known name": lambda x, w, **_: torch.atan(x @ w.t()),
    "an output of torch.bool": lambda x, w, **_: (x @ w.t()) > 0,
    "a conversion to torch.float64": lambda x, w, **_: (x @ w.t()).double() * 2,
    "a conversion to torch.bool": lambda x, w, **_: (x @ w.t()).bool().to(torch.bfloat16) * 2,
    "a tensor of torch.int64": lambda x, w, whole, **_: (x @ w.t()) * whole,
    "a tensor of torch.float64": lambda x, w, double, **_: (x @ w.t()) * double,
    "div with rounding_mode": lambda x, w, r, **_: torch.div(x @ w.t(), r, rounding_mode="floor"),
    "a formula of more than 300 terms": lambda x, w, **_: doubled(x @ w.t()),
    "an epilogue of 25 operations is longer than 24": lambda x, w, **_: repeated(x @ w.t(), 25),
    "a tensor with other strides than rows": lambda x3, w3, wide3, **_: torch.bmm(x3, w3) * wide3[..., :N],
    "strides than rows or columns one after another": lambda x, w, apart, **_: (x @ w.t()) * apart[:, :, 0],
    "a tensor that no two strides": lambda x, w, heads, **_: (x @ w.t()).view(M, 2, N // 2) * heads[:, :1],
}
"""Functions with an epilogue that no text describes, by the reason."""


@pytest.mark.parametrize("text", FUSED)
def test_the_operations_behind_a_product_are_its_epilogue(text):
    if ("gate" in text or "127" in text) and torch.__version__.startswith("2.11."):
        pytest.skip("torch 2.11 fuses no gate, and no column that a reshape makes")
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


def test_a_gate_is_no_epilogue_for_a_scheduler_that_fuses_none(monkeypatch):
    monkeypatch.setattr(reader, "_FUSES_BLOCKS", False)
    (found,) = read(lambda x3, w, rows3, **_: F.linear(x3, w) * rows3)
    assert (found.epilogue, found.reason) == (None, f"a vector per {M} rows, which torch 2.11 fuses into no product")


def test_a_number_that_is_known_at_run_time_has_no_text():
    (found,) = read(lambda x, w, **_: (x @ w.t()) * x.shape[0], mode="symbolic")
    assert (found.epilogue, found.reason) == (None, "a number that is known at run time")


def test_the_input_of_a_second_product_is_an_output_of_the_first():
    first, second = read(lambda x, w, r, **_: hidden(torch.relu(x @ w.t() + r)))
    assert (str(first.epilogue), str(second.epilogue)) == ("add(matrix).relu", "none")


def test_the_graphs_nodes_of_an_epilogue_are_named_with_its_operands_and_outputs():
    (found,) = read(lambda x, w, r, row, **_: both(x @ w.t(), lambda y: (y + r).relu(), lambda y: y * row, lambda y: y))
    assert str(found.epilogue) == "add(matrix).relu+mul(row)+x"
    assert found.nodes == {"add", "relu", "mul"}
    assert [(node.name, place) for node, place in found.outputs] == [("relu", 0), ("mul", 1)]
    assert [tuple(node.meta["val"].shape) for node in found.operands] == [(M, N), (N,)]


def test_the_gelu_that_gpt_2_writes_out_has_its_name():
    def written(x, w, **_):
        y = x @ w.t()
        return 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * torch.pow(y, 3.0))))

    (found,) = read(written)
    assert str(found.epilogue) == "gelu_tanh"


def test_what_is_no_product_has_no_epilogue_but_a_reason():
    graph = make_fx(lambda x: x.relu())(torch.ones(2, 2)).graph
    placeholder, relu, _ = graph.nodes
    assert read_epilogue(relu) == (None, frozenset(), "relu is no product", (), ())
    assert read_epilogue(placeholder).reason == "placeholder is no product"


def test_nothing_is_computed_behind_a_product_where_torch_rounds_between_operations():
    with config.patch(emulate_precision_casts=True):
        (found,) = read(FUSED["gelu_tanh"])
    assert (found.epilogue, found.reason) == (None, "emulate_precision_casts rounds between operations")


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
