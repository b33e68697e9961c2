"""Rule that pads products, in place and put back."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch._inductor.fx_passes import pad_mm  # noqa: E402 (torch is there)

from gemmtune.engine.tables.inductor import loader  # noqa: E402


def test_the_rule_holds_while_a_recording_or_a_table_is_in_place(tmp_path):
    own = pad_mm.should_pad
    loader.record(tmp_path / "problems.jsonl")
    try:
        assert pad_mm.should_pad is not own
    finally:
        loader.stop_recording()
    assert pad_mm.should_pad is own
