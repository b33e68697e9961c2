"""Names and fields of layers: what is refused, with the value and the way to write it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from gemmtune.engine.consumers.serving.contract.block_linear import VllmBlockFp8
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.seams.kinds import parse_workload

LAYER: Any = parse_workload("vllm_block_fp8:m16:n512:k256")
FIELDS = {"tokens": "16", "n": "512", "k": "256"}


@pytest.mark.parametrize("value", [0, -1, 2**20 + 1, 1.0, "16"])
@pytest.mark.parametrize("name", ["tokens", "n", "k"])
def test_a_size_is_an_integer_from_1_to_a_million(name, value):
    with pytest.raises(ProblemError, match=f"^{name}={value} is not an integer from 1 to 1048576$"):
        replace(LAYER, **{name: value})


@pytest.mark.parametrize("weight", [0, -1.0, math.inf, math.nan])
def test_a_weight_is_a_number_above_0(weight):
    with pytest.raises(ProblemError, match=f"weight={weight} is not a number above 0"):
        replace(LAYER, weight=weight)


def test_sizes_at_the_bounds_and_weights_are_kept():
    assert replace(LAYER, tokens=1).tokens == 1
    assert replace(LAYER, tokens=2**20).tokens == 2**20
    assert replace(LAYER, weight=1e-300) == LAYER
    assert LAYER.resized(8) == replace(LAYER, tokens=8)
    assert (LAYER.resized(8).weight, LAYER.resized(8, 3.0).weight) == (1.0, 3.0)
    assert (LAYER.series_name, LAYER.range_size) == ("vllm_block_fp8:m:n512:k256", "tokens")
    assert dict(LAYER.to_fields()) == FIELDS
    assert VllmBlockFp8.from_fields(FIELDS | {"weight": "2"}).weight == 2.0
    assert VllmBlockFp8.parse(" M16:N512:k256 ") == LAYER


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (FIELDS | {"rows": "1"}, "unknown field 'rows'; .*known: k, n, tokens, weight"),
        ({"tokens": "1", "n": "128"}, "^k is missing: write "),
        (FIELDS | {"n": "wide"}, "n='wide' is not an integer from 1 "),
        (FIELDS | {"weight": "much"}, "weight='much' is not a number above 0"),
    ],
)
def test_fields_that_are_no_layer_are_refused(fields, said):
    with pytest.raises(ProblemError, match=said):
        VllmBlockFp8.from_fields(fields)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("m1:n128:k128:x3", "'m1:n128:k128:x3': 'x3' is no size: write "),
        ("m1:n128:k", "'k' is no size"),
        ("m1:n128:k128:k128", "gives k twice: write "),
        ("m0:n128:k128", "'m0:n128:k128': tokens=0 is not an integer"),
        ("m1:n128", "'m1:n128': k is missing"),
    ],
)
def test_a_name_that_is_no_layer_is_quoted(text, said):
    with pytest.raises(ProblemError, match=said):
        VllmBlockFp8.parse(text)
