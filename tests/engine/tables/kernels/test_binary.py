"""Kernels of a table: what is refused by name, and which packages run them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest

from gemmtune.engine.consumers.inductor.written import require_launch
from gemmtune.engine.seams.kernel_call import RUNTIME_PACKAGES
from gemmtune.engine.tables.kernels import binary
from gemmtune.engine.tables.kernels.binary import (
    KernelBinary,
    difference,
    kernel_name,
    packed,
    parse_kernels,
    unpacked,
)

CODE, CALL = b"object file", ["a", "b", "out"]
FIELDS = {
    "object": packed(CODE),
    "call": CALL,
    "layouts": "nt",
    "epilogue": [],
    "packages": {**dict.fromkeys(RUNTIME_PACKAGES, "1.0"), "quack-kernels": "2.0"},
}
NAME = kernel_name("quack_gemm", CODE, CALL, "nt", [])
RESEALED = "is not the name of its object, call, layouts, epilogue: export the table again"


def test_a_kernel_has_what_its_launch_needs():
    assert parse_kernels({NAME: FIELDS}) == {
        NAME: KernelBinary(NAME, "cute::quack_gemm", FIELDS["object"], CALL, "nt", [], FIELDS["packages"])
    }
    assert unpacked(FIELDS["object"]) == CODE
    assert parse_kernels({}) == {}


def test_a_name_tells_whatever_runs_apart():
    names = {
        kernel_name(*each)
        for each in (
            ("quack_gemm", CODE, CALL, "nt", []),
            ("cute_gemm", CODE, CALL, "nt", []),
            ("quack_gemm", b"other", CALL, "nt", []),
            ("quack_gemm", CODE, CALL[:2], "nt", []),
            ("quack_gemm", CODE, CALL, "nn", "none"),
            ("quack_gemm", CODE, CALL, "nt", "relu"),
        )
    }
    assert len(names) == 6
    assert all(len(name.rpartition("_")[2]) == 16 for name in names)


@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        ("quack", {}, ValueError, RESEALED),
        (NAME + "0", {}, ValueError, RESEALED),
        (NAME, {"layouts": "nx"}, ValueError, RESEALED),
        (NAME, {"layouts": 3}, ValueError, RESEALED),
        (NAME, {"object": 3}, TypeError, "its `object` is damaged: "),
        (NAME, {"epilogue": None}, ValueError, RESEALED),
        (NAME, {"epilogue": [[["relu", "x"], ""]]}, ValueError, RESEALED),
        (NAME, {"call": ["a"]}, ValueError, RESEALED),
        (NAME, {"object": packed(b"other")}, ValueError, RESEALED),
        (NAME, {"object": "not base 64!"}, ValueError, "its `object` is damaged: "),
        (NAME, {"object": packed(CODE)[:8]}, ValueError, "is damaged: it ends early, or has more than 67108864 bytes"),
        (NAME, {"object": "AAAA"}, ValueError, "its `object` is damaged: Error -3"),
        (NAME, {"packages": {}}, TypeError, f"packages.'{RUNTIME_PACKAGES[0]}'=None is not text"),
        (NAME, {"packages": []}, TypeError, "packages"),
        (
            NAME,
            {"packages": {**FIELDS["packages"], "quack-kernels": 2}},
            TypeError,
            "packages.'quack-kernels'=2 is not text",
        ),
        (NAME, {"more": 1}, ValueError, "more"),
    ],
)
def test_a_damaged_kernel_is_refused_by_name_and_field(name, change, error, message):
    with pytest.raises(error) as refused:
        parse_kernels({name: {**FIELDS, **change}})
    assert message in str(refused.value)
    assert str(refused.value).startswith("kernels.")


def test_a_name_that_is_no_name_of_code_is_refused():
    name = kernel_name("quack;gemm", CODE, CALL, "nt", [])
    with pytest.raises(ValueError, match=f"{name}.* is not the name"):
        parse_kernels({name: FIELDS})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layouts": "nx"}, "layouts='nx' is not two of n and t"),
        ({"epilogue": [[["silly", "x"], ""]]}, "is none that a launch takes: .*'silly' is no operation"),
        ({"call": ["a.b"]}, "its `epilogue` or `call` is none that a launch takes: 'a.b' has a suffix"),
        ({"call": [1.5]}, "1.5 is no argument of a kernel"),
    ],
)
def test_a_kernel_that_no_launch_takes_is_refused_where_it_is_written(change, message):
    its = {**FIELDS, **change}
    name = kernel_name("quack_gemm", CODE, its["call"], its["layouts"], its["epilogue"])
    (kernel,) = parse_kernels({name: its}).values()
    with pytest.raises(ValueError, match=message):
        require_launch(kernel)


def test_an_object_of_too_many_bytes_is_refused(monkeypatch):
    monkeypatch.setattr(binary, "_LARGEST_BYTES", len(CODE))
    assert unpacked(packed(CODE)) == CODE
    with pytest.raises(ValueError, match=f"has more than {len(CODE)} bytes"):
        unpacked(packed(CODE + b"!"))


@pytest.mark.parametrize(
    ("here", "any_version", "text"),
    [
        ({"a": "1.0", "b": "2.0"}, False, ""),
        ({"a": "1.0", "b": "2.1"}, False, "needs b 2.0, here is 2.1"),
        ({"a": "1.1", "b": "2.1"}, False, "needs a 1.0, here is 1.1"),
        ({"a": "1.1", "b": "2.1"}, True, ""),
        ({"a": "1.0"}, False, "needs b 2.0, here is none"),
        ({"b": "2.0"}, True, "needs a 1.0, here is none"),
    ],
)
def test_packages_that_cannot_run_a_kernel_are_named(monkeypatch, here, any_version, text):
    def version(package):
        if package not in here:
            raise PackageNotFoundError(package)
        return here[package]

    monkeypatch.setattr(binary, "version", version)
    kernel = KernelBinary("k", "cute::k", "", [], "nt", [], {"b": "2.0", "a": "1.0"})
    assert difference(kernel, any_version=any_version) == text
