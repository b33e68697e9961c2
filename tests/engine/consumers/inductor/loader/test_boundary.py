"""Boundary to torch: who is named where something fails."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.consumers.inductor.loader.boundary import or_else


def test_a_failure_of_stock_torch_asks_for_no_report():
    def lower():
        raise AssertionError

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(AssertionError):
            or_else(lower)(lower)()


def test_a_failure_of_the_loader_asks_for_a_report_and_torch_answers():
    def look_up():
        raise LookupError("of this test")

    with pytest.warns(UserWarning, match=r"failed in look_up under torch .*: of this test.*please report this"):
        assert or_else(lambda: "torch's")(look_up)() == "torch's"
