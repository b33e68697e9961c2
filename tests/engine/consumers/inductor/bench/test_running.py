"""Outputs and gradients that a bench compares, and warnings that it passes on."""

from __future__ import annotations

import time
import warnings

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:::torch")  # torch warns of itself


def test_a_bench_passes_on_what_the_loader_says_and_not_what_torch_says():
    from gemmtune.engine.consumers.inductor.bench.running import quietly

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

    from gemmtune.engine.consumers.inductor.bench.running import Prepared, relative_error

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


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        ([[1.0, 2.0]], [[1.0, 2.0]], 0.0),
        ([[3.0, 4.0]], [[0.0, 0.0]], 5.0),  # nothing to compare with: the difference itself
        ([[3.0, 4.5]], [[3.0, 4.0]], 0.1),
        ([[1.0], [2.2]], [[1.0], [2.0]], 0.1),  # the worst group counts
        ([[1.1], [2.0]], [[1.0], [2.0]], 0.1),
    ],
)
def test_an_error_is_the_norm_of_the_difference_over_the_expected_norm(found, expected, error):
    import torch

    from gemmtune.engine.consumers.inductor.bench.running import relative_error

    ones, others = ([[torch.tensor(value) for value in group] for group in groups] for groups in (found, expected))
    assert relative_error(ones, others) == pytest.approx(error)
    with pytest.raises(ValueError, match="other sizes than eager's"):
        relative_error(ones, [*others, []])
    with pytest.raises(ValueError, match="other sizes than eager's"):
        relative_error([[each.reshape(1) for each in group] for group in ones], others)


def test_results_are_the_outputs_of_floats_and_then_the_gradients():
    import torch

    from gemmtune.engine.consumers.inductor.bench.running import Prepared

    model = torch.nn.Linear(2, 2)
    x = torch.ones(3, 2, requires_grad=True)

    def call(x, flag=7, *, scale):
        return {"y": model(x) * scale, "rows": torch.tensor(3), "text": "x"}

    prepared = Prepared(call, [x, 7], {"scale": torch.full((), 2.0)}, grad=True)
    outputs, gradients = prepared.arm(call).results()
    assert [each.shape for each in outputs] == [(3, 2)]
    assert not outputs[0].requires_grad
    assert [each.shape for each in gradients] == [(2, 2), (2,), (3, 2)]
    first = [each.clone() for each in gradients]
    again = prepared.arm(call).results()[1]
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))  # they start from nothing
    inference = Prepared(call, [x], {"scale": torch.full((), 2.0)}, grad=False)
    outputs, gradients = inference.arm(call).results()
    assert (len(outputs), gradients) == (1, [])
    assert prepared.leaves[-1] is x


def test_gradients_of_a_loss_are_one_and_others_are_drawn_once():
    import torch

    from gemmtune.engine.consumers.inductor.bench.running import Prepared

    prepared = Prepared(None, [], {}, grad=True)
    loss, rows = prepared.gradients_of([torch.tensor(5.0), torch.zeros(3)])
    assert loss.item() == 1
    assert rows.abs().sum() > 0
    assert prepared.gradients_of([torch.tensor(5.0), torch.zeros(3)])[1] is rows


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("compile", {}),
        ("max-autotune", {"mode": "max-autotune-no-cudagraphs"}),
        ("table", {"options": {"max_autotune": True}}),
    ],
)
def test_each_arm_is_compiled_in_its_way_and_eager_is_not(monkeypatch, name, given):
    import torch

    from gemmtune.engine.consumers.inductor.bench import running
    from gemmtune.engine.consumers.inductor.loader import loader

    prepared = running.Prepared("model", [], {}, grad=False)
    asked = []
    monkeypatch.setattr(torch, "compile", lambda call, **options: asked.append((call, options)) or "compiled")
    monkeypatch.setattr(loader, "options", lambda: {"max_autotune": True})
    assert running.compiled_arm(prepared, name).compiled == "compiled"
    assert asked == [("model", given)]
    assert running.compiled_arm(prepared, "eager").compiled == "model"


def test_a_first_call_waits_for_the_gpu_and_counts_what_was_benchmarked(monkeypatch):
    import torch

    from gemmtune.engine.consumers.inductor.bench import running

    counters = {"inductor": {"select_algorithm_autotune": 3, "a.benchmark_gpu": 4, "b.benchmark_gpu": 5, "other": 9}}
    now, events = iter((10.0, 12.5)), []
    monkeypatch.setattr(running, "counters", type("Counters", (dict,), {"clear": lambda self: None})(counters))
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: events.append("wait"))
    found = running.first_call(lambda: events.append("call"))
    assert found == running.FirstCall(2.5, 3, 9)
    assert events == ["call", "wait"]


def test_a_peak_is_what_a_call_holds_beyond_what_was_held_before(monkeypatch):
    import torch

    from gemmtune.engine.consumers.inductor.bench.running import Prepared, peak_bytes

    model, events = torch.nn.Linear(2, 2), []
    prepared = Prepared(model, [torch.ones(1, 2)], {}, grad=True)
    model.weight.grad = torch.ones(2, 2)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: events.append("wait"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: events.append("reset"))

    def allocated():
        events.append("before")
        assert model.weight.grad is None
        return 1000

    monkeypatch.setattr(torch.cuda, "memory_allocated", allocated)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: events.append("peak") or 5096)
    assert peak_bytes(prepared.arm(lambda x: events.append("call") or model(x))) == 4096
    assert events == ["wait", "reset", "before", "call", "wait", "peak"]


def test_an_arm_compiles_into_caches_of_its_own(monkeypatch):
    import os

    import torch

    from gemmtune.engine.consumers.inductor.bench.running import cold

    before = torch._dynamo.config.recompile_limit
    with cold():
        first = os.environ["TORCHINDUCTOR_CACHE_DIR"]
        assert torch._dynamo.config.recompile_limit == 64
    with cold():
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] != first
    assert torch._dynamo.config.recompile_limit == before


def test_a_model_is_compiled_once_before_all_arms_and_forgotten(monkeypatch):
    import torch
    from torch._inductor.async_compile import AsyncCompile

    from gemmtune.engine.consumers.inductor.bench import running

    events = []

    def compiled(call, **given):
        def run(*inputs):
            events.append(("call", given))
            return call(*inputs)

        return run

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(torch._dynamo, "reset", lambda: events.append("reset"))
    monkeypatch.setattr(AsyncCompile, "wait_pool_ready", lambda: events.append("processes"))
    running.load_compiler(running.Prepared(torch.sin, [torch.ones(2)], {}, grad=False))
    assert events == [("call", {}), "processes", "reset"]
