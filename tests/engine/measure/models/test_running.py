"""Warnings that a bench passes on."""

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
