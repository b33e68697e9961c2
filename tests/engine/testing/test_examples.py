"""The examples in the docstrings of samplers and conformance checks run as written."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = (
    "seams.exporter",
    "seams.objective",
    "seams.pruner",
    "seams.sampler",
    "seams.space",
    "search.samplers.auto",
    "search.samplers.evolution",
    "search.samplers.transfer",
    "testing.exporter_conformance",
    "testing.objective_conformance",
    "testing.pruner_conformance",
    "testing.sampler_conformance",
    "testing.space_conformance",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_the_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(f"gemmtune.engine.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
