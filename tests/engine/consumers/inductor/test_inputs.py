"""Descriptions of a model's inputs."""

from __future__ import annotations

import pytest

from gemmtune.engine.consumers.inductor.inputs import OpenSize, open_sizes, parse_inputs
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
        ("bf17[2]", "dtype 'bf17' is unknown; did you mean bf16"),
        ("bf16[0]", "size 0 is not from 1"),
        ("bf16[m]", "size 'm' has no range"),
        ("bf16[m:4..4]", "is no range"),
        ("bf16[2-3]", "no number and no NAME:FIRST..LAST"),
        ("bf16[٣]", "no number and no NAME:FIRST..LAST"),
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


@pytest.mark.parametrize("name", ["e4m3", "float8_e4m3fn", "e5m2"])
def test_8_bit_floats_are_normal_numbers(name):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    (spec,), _ = parse_inputs([f"{name}[64,64]"])
    made = spec.make({}, torch.device("cpu"))
    assert str(made.dtype).removeprefix("torch.") == spec.dtype
    assert 0.9 < made.float().std() < 1.1


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


@pytest.mark.parametrize(
    "text",
    [
        *("int8[1]%128", "uint8[1]%256", "int16[1]%32768", "int32[1]%2147483647", "int64[1]%1"),
        *("bf16[2147483647]", "bf16[m:1..2]", "bf16[m:1..2147483647]"),
    ],
)
def test_the_greatest_values_are_taken(text):
    [spec], _ = parse_inputs([text])
    assert str(spec) == text.partition(":")[0] + ("]" if ":" in text else "")


@pytest.mark.parametrize(
    "text",
    [
        *("int8[1]%129", "uint8[1]%257", "int16[1]%32769", "int32[1]%2147483648", "int64[1]%0", "bool[1]%2"),
        *("bf16[2147483648]", "bf16[0]", "bf16[m:0..2]", "bf16[m:1..2147483648]", "bf16[m:2..1]"),
    ],
)
def test_the_first_values_beyond_are_refused(text):
    with pytest.raises(UsageError, match=r"is not from|is no range|bounds integers"):
        parse_inputs([text])


@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        ([("m", 1, 3)], [{"m": 2}, {"m": 3}, {"m": 1}]),
        ([("m", 1, 2)], [{"m": 2}, {"m": 1}]),
        ([("m", 20, 30)], [{"m": 20}, {"m": 30}]),  # 24 is no multiple of 16
        ([("m", 16, 64)], [{"m": 32}, {"m": 64}, {"m": 16}]),
        ([("m", 1, 256), ("n", 1, 256)], [{"m": 16, "n": 32}, {"m": 256, "n": 256}, {"m": 1, "n": 1}]),
    ],
)
def test_sizes_between_the_ends_are_multiples_of_16(sizes, calls):
    assert [*open_sizes([OpenSize(*each) for each in sizes])] == calls


@pytest.mark.parametrize(
    ("text", "dtype", "values"),
    [
        ("int32[4]", "int32", {0}),
        ("bool[4]", "bool", {True}),
        ("int64[200]%2", "int64", {0, 1}),
        ("int64[9]%1", "int64", {0}),
    ],
)
def test_a_tensor_has_the_values_of_its_text(text, dtype, values):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    [spec], _ = parse_inputs([text])
    made = spec.make({}, torch.device("cpu"))
    assert made.dtype is getattr(torch, dtype)
    assert set(made.tolist()) == values


def test_an_open_size_and_normal_numbers_fill_a_tensor():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    [spec], _ = parse_inputs(["fp32[m:1..4096,8]"])
    made = spec.make({"m": 1000}, torch.device("cpu"))
    assert made.shape == (1000, 8)
    assert 0.9 < float(made.std()) < 1.1
