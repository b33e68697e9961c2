"""Launches of a timed run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-python is not installed")

from gemmtune.engine.measure.timing.kernel_timer import _launches


def test_a_run_takes_the_operand_sets_in_turn_with_something_between_two_launches():
    done, sets = [], [SimpleNamespace(arguments=(number,)) for number in range(3)]
    _launches(done.append, sets, 2, 3, lambda: done.append("between"))()
    assert done == [2, "between", 0, "between", 1]
