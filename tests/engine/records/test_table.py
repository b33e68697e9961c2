"""Rows of a table: the kernel that a lead is of."""

from __future__ import annotations

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row


def choice(space, time_ns):
    config = Config({"x": int(time_ns)})
    return Choice(space, config, time_ns, time_ns, time_ns, 9, Evidence.MEASURED, "torch 2.13.0", "graph-cold-l2")


ATEN, FAST, MIDDLE, SLOW = choice("aten", 100.0), choice("a", 80.0), choice("b", 90.0), choice("c", 125.0)


@pytest.mark.parametrize(
    ("choices", "baseline", "kernel", "lead"),
    [
        ((FAST, ATEN, MIDDLE), ATEN, FAST, 0.25),
        ((MIDDLE, ATEN, FAST), ATEN, MIDDLE, 100 / 90 - 1),  # that ships, for a reason beside its time
        ((ATEN, MIDDLE, FAST, SLOW), ATEN, FAST, 0.25),
        ((ATEN, SLOW), ATEN, SLOW, -0.2),
        ((ATEN,), ATEN, None, None),
        ((FAST,), None, FAST, None),
    ],
)
def test_a_lead_is_of_the_kernel_that_ships_or_else_of_the_fastest(choices, baseline, kernel, lead):
    row = Row(Problem(16, 64, 32), choices, baseline, None, ()).with_lead()
    assert row.kernel == kernel
    assert row.lead == (lead if lead is None else pytest.approx(lead))
