"""Descriptions of a model's inputs."""

from __future__ import annotations

import pytest

from gemmtune.engine.capture.inputs import OpenSize, open_sizes, parse_inputs
from gemmtune.engine.records.errors import UsageError


def test_a_text_gives_name_type_sizes_and_bound():
    (tokens, states), sizes = parse_inputs(["tokens=int64[1, 512]%32000", "bf16[m:1..4096,2048]"])
    assert (tokens.name, tokens.dtype, tokens.sizes, tokens.below) == ("tokens", "int64", (1, 512), 32000)
    assert (states.name, states.dtype, states.sizes, states.below) == ("", "bfloat16", ("m", 2048), None)
    assert sizes == (OpenSize("m", 1, 4096),)


def test_inputs_share_an_open_size_by_its_name():
    specs, sizes = parse_inputs(["fp32[m:2..64,8]", "fp32[m,16]"])
    assert [spec.sizes for spec in specs] == [("m", 8), ("m", 16)]
    assert sizes == (OpenSize("m", 2, 64),)


def test_a_model_is_called_between_the_ends_of_a_range_and_at_both():
    assert open_sizes(()) == ({},)
    assert open_sizes((OpenSize("m", 1, 4096),)) == ({"m": 64}, {"m": 4096}, {"m": 1})
    first, *_ = open_sizes((OpenSize("m", 1, 4096), OpenSize("n", 1, 4096)))
    assert len(set(first.values())) == 2


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("bf16", "malformed input 'bf16'"),
        ("bf17[2]", "dtype 'bf17' is not one of bf16"),
        ("bf16[0]", "size 0 is not from 1"),
        ("bf16[m]", "size 'm' has no range"),
        ("bf16[m:4..4]", "is no range"),
        ("bf16[2-3]", "no number and no NAME:FIRST..LAST"),
        ("bf16[2]%7", "%7 bounds integers"),
        ("int8[2]%1000", "%1000 bounds integers, from 1 to 128"),
        ("bf16[16,,32]", "a size is missing"),
        ("bf16[16,32,]", "a size is missing"),
    ],
)
def test_a_wrong_text_is_refused_with_what_was_meant(text, part):
    with pytest.raises(UsageError, match=part.replace("[", r"\[")):
        parse_inputs([text])


def test_two_inputs_of_one_name_are_refused():
    with pytest.raises(UsageError, match=r"x=bf16\[16,16\], x=bf16\[32,32\] have one name"):
        parse_inputs(["x=bf16[16,16]", "bf16[8,8]", "x=bf16[32,32]"])


def test_a_text_without_sizes_is_a_number():
    (spec,), _ = parse_inputs(["bf16[]"])
    assert spec.sizes == ()


def test_a_tensor_that_torch_cannot_hold_is_refused_with_its_text():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    (spec,), _ = parse_inputs(["bf16[2147483647,2147483647,2147483647]"])
    with pytest.raises(UsageError, match=r"bf16\[2147483647,.* more than a tensor can: give smaller sizes"):
        spec.make({}, torch.device("cpu"))


def test_a_tensor_that_does_not_fit_on_the_device_is_refused_with_its_text():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    (spec,), _ = parse_inputs(["bool[m:1..2147483647,2147483647]"])
    with pytest.raises(UsageError, match=r"bool\[m,2147483647\] cannot be made on cpu: .*memory.*; give smaller sizes"):
        spec.make({"m": 2**31 - 1}, torch.device("cpu"))
