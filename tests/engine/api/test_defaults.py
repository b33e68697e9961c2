"""Defaults of the public functions, which callers rely on."""

from __future__ import annotations

import inspect

import pytest

from gemmtune.engine.api import (
    benching,
    capturing,
    recording,
    replaying,
    reporting,
    table,
    tune_result,
    tuning,
    verifying,
)

STUDY = {
    "sampler": "transfer",
    "budget": 64,
    "seeds": 10,
    "batch": 8,
    "workers": 1,
    "cold": False,
    "apart": False,
    "noise": False,
}
TUNE = {
    "portfolio": False,
    "ranges": False,
    "batch_invariant": False,
    "one_block_k": False,
    "backend": "auto",
    "fleet": "local",
    "replace_table": False,
}


@pytest.mark.parametrize(
    ("function", "defaults"),
    [
        (benching.bench, {"binaries": True, "grad": False, "seconds": 10.0, "tune_kernels": False}),
        (capturing.capture, {"grad": False}),
        (recording.record, {"objective": "latency", "fleet": "local", "out": "recorded"}),
        (replaying.replay, STUDY),
        (reporting.table_of_database, {"objective": "latency", "margin": 0.02}),
        (table.Table.export, {"estimated": False}),
        (tune_result.TuneResult.save, {"report": True}),
        (tune_result.TuneResult.save_with, {"report": True}),
        (tuning.tune, TUNE | {"report": True, "command": "", "name": ""}),
        (verifying.verify, {"backend": "auto", "fleet": "local", "refresh": False}),
    ],
)
def test_a_public_function_does_what_it_did_without_its_options(function, defaults):
    parameters = inspect.signature(function).parameters.values()
    found = {each.name: each.default for each in parameters if isinstance(each.default, bool | int | float | str)}
    assert found == defaults
