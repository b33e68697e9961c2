"""Rounds of a model's arms: each arm is captured several times, and neither always goes first."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-python is not installed")

from gemmtune.engine.measure.models import rounds  # noqa: E402
from gemmtune.engine.platform.gpu_info import present_device  # noqa: E402

ARMS = ("eager", "compile", "table")


@pytest.fixture
def captured(monkeypatch):
    """Names of the arms in the order of their captures; a replay is the number of its capture."""
    names = []

    def replay(arm):
        names.append(arm)
        number = len(names)
        return lambda: number

    monkeypatch.setattr(rounds, "_early", list)
    monkeypatch.setattr(rounds, "_replay", replay)
    monkeypatch.setattr(rounds, "_sample_ms", lambda call, repeats: float(call()))
    return names


def test_arms_are_captured_anew_in_alternating_order(captured):
    samples, refused = rounds.timed_in_graphs({name: name for name in ARMS}, 0.0)
    assert refused == ""
    assert captured == [*ARMS, *ARMS[::-1]] * 2
    its = {name: [number + 1 for number, other in enumerate(captured) if other == name] for name in ARMS}
    assert samples == {name: tuple(1e6 * number for number in its[name] for _ in range(2)) for name in ARMS}


def test_an_arm_that_cannot_be_captured_is_named(captured, monkeypatch):
    def refuse(arm):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(rounds, "_replay", refuse)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    samples, refused = rounds.timed_in_graphs({"eager": "eager"}, 0.0)
    assert samples == {}
    assert refused == "eager: RuntimeError: operation not permitted when stream is capturing"


@pytest.mark.gpu
@pytest.mark.skipif(present_device() is None, reason="needs a GPU")
def test_a_gpu_times_all_arms_in_all_rounds():
    layer = torch.nn.Linear(1024, 1024, dtype=torch.bfloat16, device="cuda")
    rows = torch.randn(512, 1024, dtype=torch.bfloat16, device="cuda")
    with torch.no_grad():
        samples, refused = rounds.timed_in_graphs({"one": lambda: layer(rows), "other": lambda: layer(rows)}, 0.5)
    assert refused == ""
    assert len(samples["one"]) == len(samples["other"]) >= 8
    assert all(time > 0 for its in samples.values() for time in its)
