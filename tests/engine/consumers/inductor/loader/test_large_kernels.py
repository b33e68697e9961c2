"""Kernels that descend: those of a graph with a table's options that move three times what the L2 holds, and no row."""

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

    from gemmtune.engine.consumers.inductor.loader import boundary
    from gemmtune.engine.consumers.inductor.loader.hooks import activation, generated_rows

L2 = 50 * 2**20


@pytest.mark.parametrize(
    ("device", "has_options", "moved", "invariant", "descends"),
    [
        ("cuda", True, 3 * L2, False, True),
        ("cuda", True, 3 * L2 - 1, False, False),
        ("cuda", False, 9 * L2, False, False),
        ("cpu", True, 9 * L2, False, False),
        ("cuda", True, 3 * L2, True, False),
    ],
)
def test_only_a_large_kernel_of_a_graph_with_options_descends(
    monkeypatch, device, has_options, moved, invariant, descends
):
    graph = SimpleNamespace(get_current_device_or_throw=lambda: torch.device(device))
    choices = SimpleNamespace(is_batch_invariant=invariant)
    monkeypatch.setattr(activation, "V", SimpleNamespace(graph=graph, choices=choices))
    monkeypatch.setattr(activation, "has_options", lambda: has_options)
    properties = SimpleNamespace(L2_cache_size=L2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda of: properties)
    kernel = SimpleNamespace(estimate_kernel_num_bytes=lambda: moved)
    before = config.coordinate_descent_tuning
    generate: Any = lambda _: config.coordinate_descent_tuning  # noqa: E731 (any answer comes back)
    seen = activation.tuned_if_large(generate, kernel)
    assert seen is (descends or before)
    with config.patch(deterministic=True):
        assert activation.tuned_if_large(generate, kernel) is before
    assert config.coordinate_descent_tuning is before is False


SOURCE = """@triton_heuristics.pointwise(
    size_hints={'x': 64},
    triton_meta={'signature': {'x': '*fp32', 'XBLOCK': 'constexpr'}},
)
@triton.jit
def kernel(x):
    pass
"""
CONFIG = {"XBLOCK": 64, "num_warps": 4, "num_stages": 1}


@pytest.mark.parametrize(
    ("may_choose", "other_gpu", "fixed", "config"),
    [(True, False, None, CONFIG), (False, False, None, None), (True, True, None, None), (True, False, "its", None)],
)
def test_a_row_serves_a_graph_that_may_choose_on_the_gpu_of_the_table(
    monkeypatch, may_choose, other_gpu, fixed, config
):
    device = torch.device("cuda")
    graph = SimpleNamespace(get_current_device_or_throw=lambda: device)
    monkeypatch.setattr(generated_rows, "V", SimpleNamespace(graph=graph))
    rows = {generated_rows.key_of(SOURCE): CONFIG}
    handler = SimpleNamespace(_table=SimpleNamespace(generated=rows), is_other_gpu=lambda its: other_gpu)
    kernel = SimpleNamespace(fixed_config=fixed, max_block={"X": 4096}.__getitem__)
    seen = []

    def generate(its):
        seen.append(its.fixed_config)
        return SOURCE

    assert generated_rows._generated(handler, lambda its: may_choose, generate, kernel) == SOURCE
    assert seen[0] is fixed
    assert [its.config for its in seen[1:]] == ([config] if config else [])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (CONFIG, "gemmtune's loader failed.*StopIteration"),  # of a second source
        ({**CONFIG, "XBLOCK": 8192}, "config has XBLOCK=8192, which does not divide 4096"),
        ({**CONFIG, "XBLOCK": 96}, "config has XBLOCK=96, which does not divide 4096"),
        ({**CONFIG, "YBLOCK": 4}, "config names YBLOCK, which the kernel lacks"),
        ({**CONFIG, "R0_BLOCK": 4}, "config names R0_BLOCK, which the kernel lacks"),
        ({"num_warps": 4, "num_stages": 1}, "config lacks the kernel's XBLOCK"),
    ],
)
def test_a_kernel_that_cannot_be_generated_with_its_row_is_inductors_own(monkeypatch, config, message):
    graph = SimpleNamespace(get_current_device_or_throw=lambda: None)
    monkeypatch.setattr(generated_rows, "V", SimpleNamespace(graph=graph))
    monkeypatch.setattr(boundary, "_warned", set())
    rows = {generated_rows.key_of(SOURCE): config}
    handler = SimpleNamespace(_table=SimpleNamespace(generated=rows), is_other_gpu=lambda its: False)
    kernel = SimpleNamespace(fixed_config=None, max_block={"X": 4096}.__getitem__)
    sources: Any = iter([SOURCE])
    with pytest.warns(UserWarning, match=message):
        found = generated_rows._generated(handler, lambda its: True, lambda its: next(sources), kernel)
    assert (found, kernel.fixed_config) == (SOURCE, None)
