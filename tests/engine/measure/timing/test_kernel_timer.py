"""Launches of a timed run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-python is not installed")

from gemmtune.engine.measure.timing import kernel_timer
from gemmtune.engine.measure.timing.kernel_timer import KernelTimer, _launches


def test_a_run_takes_the_operand_sets_in_turn_with_something_between_two_launches():
    done, sets = [], [SimpleNamespace(arguments=(number,)) for number in range(3)]
    _launches(done.append, sets, 2, 3, lambda: done.append("between"))()
    assert done == [2, "between", 0, "between", 1]


@pytest.mark.parametrize(
    ("sets", "evicts", "time_ns", "launches"),
    [(64, False, 9e3, 8), (64, True, 9e3, 64), (64, True, 1e6, 8), (2, True, 9e3, 8)],
)
def test_a_loop_uses_all_operand_sets_where_those_of_a_block_would_stay_in_the_l2(
    monkeypatch, sets, evicts, time_ns, launches
):
    done, stream = [], object()
    made = tuple(SimpleNamespace(arguments=(number,)) for number in range(sets))
    context = SimpleNamespace(capture=lambda enqueue: enqueue, main_stream=stream)
    timing = SimpleNamespace(context=context, sets=SimpleNamespace(kernel=made, evicts=evicts))
    monkeypatch.setattr(kernel_timer, "Executable", lambda *_: SimpleNamespace(launch=lambda graph, _: graph()))
    replay, number = KernelTimer(done.append, timing).loop(time_ns)
    replay()
    assert number == launches
    assert done == [each % sets for each in range(launches)]
