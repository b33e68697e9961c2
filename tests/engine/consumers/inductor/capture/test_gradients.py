"""Gradients that are called from Python are those of torch's engine, and models are found in any callable."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from functools import partial  # noqa: E402 (torch is there)

from torch.utils.checkpoint import checkpoint  # noqa: E402 (torch is there)

from gemmtune.engine.consumers.inductor.capture import calls, gradients  # noqa: E402
from gemmtune.engine.consumers.inductor.capture.gpu_kernels import _bias, _is_fused  # noqa: E402
from gemmtune.engine.records.errors import UsageError  # noqa: E402


class Twice(torch.autograd.Function):
    """A function in Python with an input that is no tensor, and an output that nobody reads."""

    @staticmethod
    def forward(_, x, factor):
        return x * factor, x + 1

    @staticmethod
    def backward(_, gradient, other):
        return 2 * gradient + other, None


def models():
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    w = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
    b = torch.ones(4, requires_grad=True)
    yield "product and broadcast", (x, w, b), lambda: torch.relu(x @ w + b)
    yield "used twice", (x,), lambda: (x * x).sum(0) + x.mean()
    yield "two types", (x, w), lambda: (x.bfloat16() @ w.bfloat16()).float() * 3
    yield "in Python", (x,), lambda: Twice.apply(x, 2.0)[0] * x
    yield "several outputs", (x,), lambda: torch.cat(x.split(1))


@pytest.mark.parametrize("name", [name for name, *_ in models()])
def test_gradients_are_those_of_the_engine(name):
    inputs, function = next((inputs, function) for each, inputs, function in models() if each == name)
    out = function()
    expected = torch.autograd.grad(out, inputs, torch.ones_like(out))
    found = gradients.grad(function(), inputs)
    for mine, its in zip(found, expected, strict=True):
        assert mine.dtype == its.dtype
        torch.testing.assert_close(mine, its)
    seed = torch.full_like(out, 0.5)
    for mine, its in zip(gradients.grad(function(), inputs, seed), expected, strict=True):
        torch.testing.assert_close(mine, its / 2)


def test_backward_adds_to_the_gradients_of_leaves():
    x = torch.ones(3, requires_grad=True)
    for times in (1, 2):
        gradients.backward([x * 2, x * 3], [torch.ones(3), None])
        assert x.grad.tolist() == [5 * times] * 3
    unused = [x, torch.ones(1, requires_grad=True)]
    assert gradients.grad(x * 2, unused, allow_unused=True)[1] is None
    with pytest.raises(RuntimeError, match="allow_unused"):
        gradients.grad(x * 2, unused)


def test_a_function_of_gradients_is_that_of_the_engine(monkeypatch):
    x, w = torch.ones(2, 3), torch.linspace(-1, 1, 9).reshape(3, 3)

    def pulled_back():
        out, pull_back = torch.func.vjp(lambda a: (a @ w).tanh(), x)
        return pull_back(out)[0]

    expected = pulled_back()
    monkeypatch.setattr("torch.autograd.grad", gradients.grad)
    torch.testing.assert_close(pulled_back(), expected)
    assert expected.abs().sum() > 0


def test_a_checkpointed_block_runs_once_more_per_backward_pass():
    runs = []

    def block(x):
        runs.append(x)
        return (x * x).exp().sin()  # each saves a tensor

    x = torch.ones(2, requires_grad=True)
    for times in (2, 4):
        gradients.backward(checkpoint(block, x, use_reentrant=False))
        assert len(runs) == times


def test_an_inner_tensor_has_its_gradient():
    x = torch.ones(2, requires_grad=True)
    y = x * 3
    assert gradients.grad((y * y).sum(), [y, x])[0].tolist() == [6, 6]


def attention(**changes):
    shapes = {"query": (2, 8, 16, 64), "key": (2, 8, 32, 64), "value": (2, 8, 32, 64)} | changes
    return [torch.empty(shapes[name]) for name in ("query", "key", "value")]


@pytest.mark.parametrize(
    ("changes", "grouped", "fused"),
    [
        ({}, False, True),
        ({"query": (8, 16, 64)}, False, False),
        ({"query": (3, 8, 16, 64)}, False, False),
        ({"key": (2, 4, 32, 64), "value": (2, 4, 32, 64)}, False, False),
        ({"key": (2, 4, 32, 64), "value": (2, 4, 32, 64)}, True, True),
        ({"key": (2, 3, 32, 64), "value": (2, 3, 32, 64)}, True, False),
        ({"value": (2, 4, 32, 64)}, True, False),
        ({"value": (2, 8, 32, 128)}, False, True),
    ],
)
def test_a_fused_kernel_takes_four_sizes_and_heads_that_agree(changes, grouped, fused):
    query, key, value = attention(**changes)
    assert _is_fused(query, key, value, None, grouped) is fused


def test_rows_whose_elements_are_apart_are_not_fused():
    query, key, value = attention()
    assert not _is_fused(query.transpose(2, 3), key, value, None, False)
    assert not _is_fused(query, key, value, torch.empty(2, 8, 16, 1).expand(2, 8, 16, 32), False)
    assert _is_fused(query, key, value, torch.empty(16, 32), False)


@pytest.mark.parametrize(("columns", "stride"), [(32, 32), (30, 32), (33, 48)])
def test_a_mask_is_numbers_to_add_with_rows_at_multiples_of_16(columns, stride):
    query, key, _ = attention(key=(2, 8, columns, 64))
    mask = torch.zeros(16, columns, dtype=torch.bool)
    mask[0] = True
    bias = _bias(query, key, mask)
    assert bias.shape == (2, 8, 16, columns)
    assert bias.dtype == query.dtype
    assert bias[0, 0, 0].tolist() == [0] * columns
    assert set(bias[0, 0, 1].tolist()) == {float("-inf")}
    assert bias.stride(-2) in (stride, 0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x)

    def other(self, x):
        return self.linear(x)


MODEL = Model()


def through_a_global(x):
    return MODEL(x)


def test_models_are_found_in_callables_functions_and_methods():
    inner = Model()

    def through_a_closure(x):
        return inner(MODEL(x))

    for call, found in (
        (MODEL, [MODEL]),
        (through_a_global, [MODEL]),
        (through_a_closure, [inner, MODEL]),
        (MODEL.other, [MODEL]),
        (partial(through_a_global), [MODEL]),
        (partial(torch.add, inner, other=MODEL), [inner, MODEL]),
        (torch.relu, []),
    ):
        assert calls.models_of(call) == found, call


def test_a_call_is_built_from_a_class_or_a_function_without_parameters():
    assert calls.built_call(MODEL, "m:MODEL", has_inputs=True) is MODEL
    build = lambda: MODEL  # noqa: E731 (a function)
    assert isinstance(calls.built_call(Model, "m:Model", has_inputs=False), Model)
    assert isinstance(calls.built_call(build, "m:build", has_inputs=True), Model)
    assert calls.built_call(through_a_global, "m:f", has_inputs=True) is through_a_global
    alone = lambda: 1  # noqa: E731 (a function)
    assert calls.built_call(alone, "m:f", has_inputs=False) is alone
    with pytest.raises(UsageError, match="m:f returns int, which cannot be called"):
        calls.built_call(alone, "m:f", has_inputs=True)
    with pytest.raises(UsageError, match="m:f builds no model: ZeroDivisionError: "):
        calls.built_call(lambda: 1 // 0, "m:f", has_inputs=True)


def test_an_error_is_described_by_the_first_line_of_its_cause():
    error = RuntimeError("outer")
    error.__cause__ = ValueError(f"{'x' * 301}\nmore")
    assert calls.described(error) == f"ValueError: {'x' * 300}"
    assert calls.described(KeyError()) == "KeyError: "


def test_an_input_that_no_output_follows_from_has_zeros_if_they_are_wanted():
    x, other = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
    first, zeros = gradients.grad((x * 2).sum(), [x, other], None, True, False, True, materialize_grads=True)
    assert (first.tolist(), zeros.tolist()) == ([2] * 3, [0] * 2)


def test_gradients_in_batches_are_refused():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(NotImplementedError, match="in batches"):
        gradients.grad(x * 2, x, torch.eye(3), is_grads_batched=True)
