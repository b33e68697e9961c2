"""Graphs that a capture lowers are those that torch's own engine makes of a model, without a kernel of the GPU, too."""

from __future__ import annotations

import warnings
from typing import Any
from unittest.mock import patch

import pytest

import gemmtune as gt

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch warns of itself
    from functorch.compile import make_boxed_func
    from torch._functorch import config as functorch_config
    from torch._inductor import compile_fx
    from torch.nn.functional import linear, mish, silu

    from gemmtune.engine.consumers.inductor.capture import lowering
    from gemmtune.engine.consumers.inductor.capture.capture import run_backward

pytestmark = [pytest.mark.slow(30), pytest.mark.filterwarnings("ignore:::torch")]  # torch warns of itself


class Gated(torch.nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.gate, self.up, self.down = (torch.nn.Linear(64, 64, dtype=torch.bfloat16) for _ in range(3))
        self.activation = activation

    def forward(self, x):
        return self.down(self.activation(self.gate(x)) * self.up(x))


class Normed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(64, 64))

    def forward(self, x):
        return self.layer(x)


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(64, 64), torch.nn.RMSNorm(64)

    def forward(self, x):
        return x + self.norm(self.layer(x))


class InPlace(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x):
        y = self.layer(x).add_(1).relu_()
        return linear(y, self.layer.weight) * y


MODELS: dict[str, Any] = {
    "silu": (lambda: Gated(silu), torch.bfloat16),
    "mish": (lambda: Gated(mish), torch.bfloat16),
    "weight norm": (Normed, torch.float32),
    "rms norm": (Scaled, torch.float32),
    "in place": (InPlace, torch.float32),
}


def operations(module):
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    return [(str(node.target), tuple(getattr(node.meta.get("val"), "shape", ()))) for node in calls]


def graphs_of_torch(model, dtype):
    found = []

    def see(module, _inputs, **_settings):
        found.append(operations(module))
        return make_boxed_func(module.forward)

    library = torch.library.Library("aten", "IMPL")
    library.impl("_fused_rms_norm", torch.empty_like, "CPU")  # one kernel on a GPU, and none on a CPU
    compiled = torch.compile(model, backend=lambda module, inputs: compile_fx.compile_fx(module, inputs, see))
    with functorch_config.patch(enable_autograd_cache=False, donated_buffer=False):
        run_backward(compiled(torch.zeros(16, 64, dtype=dtype, requires_grad=True)))
    library._destroy()
    return found


@pytest.mark.parametrize("name", MODELS)
def test_gradients_have_the_formulas_of_torchs_engine(name):
    made, dtype = MODELS[name]
    found, lower = [], lowering.Lowering._lower

    def see(self, module, *inputs, **settings):
        found.append(operations(module))
        return lower(self, module, *inputs, **settings)

    with patch.object(lowering.Lowering, "_lower", see):
        gt.capture(made(), torch.zeros(16, 64, dtype=dtype, requires_grad=True), grad=True, device="H200")
    torch._dynamo.reset()
    assert found == graphs_of_torch(made(), dtype)
