"""Outputs and gradients that a bench compares, and warnings that it passes on."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:::torch")  # torch warns of itself


def test_a_bench_passes_on_what_the_loader_says_and_not_what_torch_says():
    from gemmtune.engine.measure.models.running import quietly

    def run():
        warnings.warn("TensorFloat32 tensor cores are available", stacklevel=1)
        warnings.warn("gemmtune's table has a row of cute::quack_gemm that cannot be linked", stacklevel=1)
        return 3

    with warnings.catch_warnings(record=True) as told:
        assert quietly(run) == 3
    assert ["cannot be linked" in str(warning.message) for warning in told] == [True]


def test_gradients_that_cancel_out_count_as_little_as_they_are():
    """A key's bias changes no softmax, and a sum of a layer norm's outputs changes with no weight."""
    import torch

    from gemmtune.engine.measure.models.running import Prepared, relative_error

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (torch.nn.Linear(64, 64, dtype=torch.bfloat16) for _ in range(3))
            self.norm = torch.nn.LayerNorm(64, dtype=torch.bfloat16)

        def forward(self, x):
            scores = torch.softmax(self.q(x) @ self.k(x).transpose(-1, -2), dim=-1)
            return self.norm(scores @ self.v(x))

    torch.manual_seed(0)
    model, x = Attention(), torch.randn(2, 32, 64, dtype=torch.bfloat16)
    prepared = Prepared(model, [x], {}, grad=True)
    expected = prepared.arm(model).results()
    again = prepared.arm(model).results()
    assert relative_error(again, expected) == 0
    assert float(model.v.weight.grad.norm()) > 1  # a sum would leave rounding errors
    other = Prepared(model.double(), [x.double()], {}, grad=True)
    other._gradients.extend(each.double() for each in prepared._gradients)
    exact = other.arm(model).results()
    assert 0 < relative_error(expected, exact) < 0.1
    assert float(model.k.bias.grad.norm()) < 1e-9  # by itself its error would be far above 1
    wrong = [[*group] for group in exact]
    wrong[-1][0] = 2 * wrong[-1][0]
    assert relative_error(wrong, exact) > 0.1
