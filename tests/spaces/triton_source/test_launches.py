from __future__ import annotations

from gemmtune.spaces.triton_source.launches import KernelLaunch, Pointer, Workspace


def launch(unaligned=(), **arguments):
    return KernelLaunch("f", arguments, {"BLOCK": 64}, (1, 1, 1), 4, 3, frozenset(unaligned))


def test_ones_and_absent_pointers_are_compiled_in_and_multiples_of_16_are_aligned():
    a = Pointer("bf16", (0,))
    found = launch(a=a, bias=None, one=1, n=4096, m=17, big=2**31).specialised()
    assert dict(found.types) == {
        "a": "*bf16", "bias": "constexpr", "one": "constexpr", "n": "i32", "m": "i32", "big": "i64",
        "BLOCK": "constexpr",
    }  # fmt: skip
    assert dict(found.constants) == {"bias": None, "one": 1, "BLOCK": 64}
    assert found.aligned == ("a", "n", "big")
    assert found.passed == ("a", "n", "m", "big")


def test_a_size_that_changes_from_step_to_step_is_compiled_as_any_integer():
    some = [launch(unaligned=("m",), m=m).specialised() for m in (1, 16, 17)]
    assert some[0] == some[1] == some[2]
    assert some[0].passed == ("m",)


def test_memory_of_the_kernels_is_a_pointer():
    assert launch(partial=Workspace("fp32", 64)).specialised().types[0] == ("partial", "*fp32")
