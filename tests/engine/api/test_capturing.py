"""Calls of `gt.capture` that are refused."""

from __future__ import annotations

import re

import pytest

import gemmtune as gt
from gemmtune.engine.records.errors import UsageError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

pytestmark = pytest.mark.filterwarnings("ignore:::torch")  # torch warns of itself


@pytest.mark.parametrize("span", [(4096, 1), (0, 16), (16,), (1, 2.5), 5, "ab"])
def test_an_open_size_needs_a_first_and_a_greater_last_value(span):
    with pytest.raises(UsageError, match=rf"the range {re.escape(str(span))}; write \(1, 4096\)"):
        gt.capture(torch.nn.Linear(8, 8), torch.empty(4, 8), dynamic={(0, 0): span}, device="H200")


@pytest.mark.parametrize("dynamic", [{0: (1, 20)}, {(0, 0, 0): (1, 20)}, {(0, "m"): (1, 20)}, [(0, 0)], 5])
def test_open_sizes_are_named_by_two_positions(dynamic):
    with pytest.raises(UsageError, match=r"write (the positions of an input and of its size, \(0, 1\)|\{\(0, 1\): )"):
        gt.capture(torch.nn.Linear(8, 8), torch.empty(4, 8), dynamic=dynamic, device="H200")


def test_a_tensor_that_is_too_large_is_refused_by_its_text():
    with pytest.raises(UsageError, match="give smaller sizes"):
        gt.capture(torch.nn.Linear(8, 8), "bf16[2147483647,2147483647,2147483647]", device="H200")


def test_what_cannot_be_called_is_refused_by_its_text():
    with pytest.raises(UsageError, match="call='3' is no model"):
        gt.capture(3, "bf16[2,2]", device="H200")


def test_a_file_is_no_module():
    with pytest.raises(UsageError, match=r"name the module, model:build"):
        gt.capture("model.py:build", "bf16[2,2]", device="H200")
