"""Kernels that descend: those of a graph with a table's options that move three times what the L2 holds."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch warns of itself
    from torch._inductor import config

    from gemmtune.engine.consumers.inductor.loader.hooks import activation

L2 = 50 * 2**20


@pytest.mark.parametrize(
    ("device", "has_options", "moved", "descends"),
    [
        ("cuda", True, 3 * L2, True),
        ("cuda", True, 3 * L2 - 1, False),
        ("cuda", False, 9 * L2, False),
        ("cpu", True, 9 * L2, False),
    ],
)
def test_only_a_large_kernel_of_a_graph_with_options_descends(monkeypatch, device, has_options, moved, descends):
    graph = SimpleNamespace(get_current_device_or_throw=lambda: torch.device(device))
    monkeypatch.setattr(activation, "V", SimpleNamespace(graph=graph))
    monkeypatch.setattr(activation, "has_options", lambda: has_options)
    properties = SimpleNamespace(L2_cache_size=L2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda of: properties)
    kernel = SimpleNamespace(estimate_kernel_num_bytes=lambda: moved)
    before = config.coordinate_descent_tuning
    generate: Any = lambda _: config.coordinate_descent_tuning  # noqa: E731 (any answer comes back)
    seen = activation.tuned_if_large(generate, kernel)
    assert seen is (descends or before)
    assert config.coordinate_descent_tuning is before is False
