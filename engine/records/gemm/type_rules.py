"""Types that the operands, sums and output of a GEMM may have. Needs the standard library alone."""

from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.gemm.terms import Accumulation, DType, Op


def refuse_types(a: DType, b: DType, acc: DType, out: DType, accumulation: Accumulation, op: Op) -> None:
    """Raise a ProblemError for mixed integers and floats, int32 operands, 8-bit sums or outputs, other exact sums."""
    whole = {dtype.is_integer for dtype in (a, b, acc)}
    if len(whole) > 1 or (out.is_integer and not acc.is_integer):
        raise ProblemError(
            f"{a} by {b} accumulated in {acc} to {out} mixes integers "
            "and floats: int8 operands take acc_dtype=int32, and only then the output may be int32"
        )
    for name, dtype in (("a_dtype", a), ("b_dtype", b)):
        if dtype is DType.INT32:
            raise ProblemError(f"{name}=int32 is no type of an operand; the integer one is int8")
    for name, dtype in (("acc_dtype", acc), ("out_dtype", out)):
        if dtype.itemsize == 1:
            raise ProblemError(f"{name}={dtype} has 8 bits, which hold no unscaled sum: take 16 or 32")
    if accumulation is Accumulation.EXACT and not (a.is_float8 and b.is_float8 and op is Op.MM):
        raise ProblemError(f"accumulation=exact is for an mm of 8-bit floats, not for {op} of {a} by {b}: leave it out")
