"""Cases of own kernels as text: read back without the user's file, and refused where a field is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.records.errors import ProblemError, UnknownDefinition
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.spaces.triton.kind import KernelCase, TritonKernelKind, definition_of

KIND = TritonKernelKind()
CASE = KernelCase(
    kernel="Softmax",
    source="0123456789ab",
    case=(("M", 4096), ("N", 1024)),
    nearest="M",
    scalars=(
        ("n", "1024"),
        ("stride", "1"),
        ("CAUSAL", "True"),
        ("eps", "1e-06"),
        ("act", "'relu%2C'"),
        ("T", "tl.fp32"),
    ),
    keys=("n", "CAUSAL"),
    dtypes=("torch.bfloat16", "torch.float32"),
    default='{"BLOCK":64}',
    kernel_sha256="cd" * 32,
    operations=0,
    least_bytes=12,
    operand_bytes=34,
)
NAME = "triton:Softmax@0123456789ab:M=4096,N=1024~6c0adba9"


def test_a_case_is_read_back_from_its_fields_and_from_its_name_with_fields():
    assert CASE.name == NAME
    assert KIND.from_fields(CASE.to_fields()) == CASE
    assert KIND.from_fields(CASE.to_fields()).weight == 1
    bare = KIND.from_fields({"kernel": "Softmax", "source": "0123456789ab", "case": "M=1"})
    assert (bare.operations, bare.least_bytes, bare.operand_bytes, bare.nearest, bare.dtypes) == (0, 1, 1, "", ())
    assert (bare.scalars, bare.keys) == ((), None)
    assert KIND.from_fields(CASE.to_fields() | {"keys": "[]"}).keys == ()
    assert KIND.from_fields(CASE.to_fields() | {"scalars": "n=1024"}).scalars == (("n", "1024"),)  # as older files
    found = KIND.parse(f"{NAME}:nearest=N;operations=7")
    assert (found.kernel, found.source, found.case) == (CASE.kernel, CASE.source, CASE.case)
    assert (found.nearest, found.operations) == ("N", 7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nearst": "M"}, "unknown field 'nearst' of a kernel's case; .*nearest"),
        ({"kernel": ""}, "field 'kernel' of a kernel's case is missing"),
        ({"source": ""}, "field 'source' of a kernel's case is missing"),
        ({"case": ""}, "field 'case' of a kernel's case is missing"),
        ({"kernel": "a b"}, "is no class with the digits of its source"),
        ({"source": "../x"}, "is no class with the digits of its source"),
        ({"operations": "-1"}, "operations='-1' is not an integer from 0 on, of at most 18 digits"),
        ({"least_bytes": "1.5"}, "least_bytes='1.5' is not an integer"),
        ({"operand_bytes": "1" * 19}, "operand_bytes='1+' is not an integer"),
    ],
)
def test_a_field_that_no_case_has_is_refused(changes, message):
    with pytest.raises(ProblemError, match=message):
        KIND.from_fields(CASE.to_fields() | changes)
    assert KIND.from_fields(CASE.to_fields() | {"operand_bytes": "9" * 18}).operand_bytes == 10**18 - 1


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *(("case", text) for text in ("M", "M=x", "M=1.5", "=1=", "M=1=2")),
        *(("scalars", text) for text in ("M", "M=x", "=1=", "M=1=2", "M='a,b'", "M='a", "M=os.system", "M=1,")),
        *(("keys", text) for text in ("n", "[n", "[n,]", "[a b]")),
    ],
)
def test_fields_that_no_case_writes_are_refused(field, text):
    with pytest.raises(ProblemError):
        KIND.from_fields(CASE.to_fields() | {field: text})


def test_the_name_tells_arguments_and_types_apart():
    others = [
        replace(CASE, scalars=(("n", "1024"), ("CAUSAL", "False"))),
        replace(CASE, scalars=(("n", "1024"), ("CAUSAL", "0"))),
        replace(CASE, dtypes=("torch.float16", "torch.float32")),
    ]
    assert len({each.name for each in (CASE, *others)}) == 4
    assert len({CASE, *others}) == 4


def test_a_case_belongs_to_its_series_and_family():
    assert CASE.range_size == "M"
    assert dict(CASE.series.case) == {"M": 1, "N": 1024}
    assert dict(CASE.family.case) == {"M": 1, "N": 1}
    for one in (CASE.series, CASE.family):
        assert (one.scalars, one.operations, one.least_bytes, one.operand_bytes) == ((), 0, 1, 1)
    fixed = replace(CASE, nearest="")
    assert fixed.series is fixed
    with pytest.raises(ProblemError, match="has no range size: give the class an attribute `nearest`"):
        fixed.resized(5)
    assert CASE.learns_from == "triton:Softmax@0123456789ab"
    assert CASE.described_by == (f"triton:Softmax@{'cd' * 32}", "0123456789ab")
    assert (CASE.flops, CASE.min_bytes) == (0, 12)


def test_a_case_without_a_file_needs_one_to_be_read():
    with pytest.raises(UnknownDefinition, match=r"no file of this kernel was read here; name triton:FILE.py:Softmax"):
        definition_of(CASE)
    with pytest.raises(ProblemError, match="is a workload of kind gemm, and this needs an own kernel"):
        definition_of(Problem(16, 32, 64))


def test_a_kernel_is_timed_beside_a_gemm_of_its_bytes():
    beside = KIND.timed_beside(replace(CASE, operand_bytes=64 << 20, weight=3.0))
    assert 0.5 < beside.min_bytes / (64 << 20) < 2
    assert beside.weight == 3
