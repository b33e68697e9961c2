"""Operations, element types, layouts and biases of a GEMM, by their short names."""

from __future__ import annotations

from enum import StrEnum

MAX_SIZE = 2**31 - 1
"""Largest size of a GEMM."""
MAX_STRIDE = 2**40
"""Largest stride of an operand, in elements."""
_ITEM_BYTES = {"fp32": 4, "int32": 4, "bf16": 2, "fp16": 2}
_TORCH_NAMES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}


class Bias(StrEnum):
    """Shape of the bias that an addmm or a baddbmm adds; its type is the output's."""

    NONE = "none"
    """No bias, for every other operation."""
    VECTOR = "vector"
    """Vector of n values, broadcast over the rows, as in a linear layer, and over a batch."""
    MATRIX = "matrix"
    """Matrix of m×n values, row-major, broadcast over a batch."""
    VECTORS = "vectors"
    """Vector of n values per product of a batch."""
    MATRICES = "matrices"
    """Matrix of m×n values per product of a batch, row-major."""

    @property
    def has_rows(self) -> bool:
        """Whether each row of the output has values of its own."""
        return self in (Bias.MATRIX, Bias.MATRICES)

    @property
    def has_batch(self) -> bool:
        """Whether each product of a batch has values of its own."""
        return self in (Bias.VECTORS, Bias.MATRICES)


class Op(StrEnum):
    """Operation, by its name in PyTorch."""

    MM = "mm"
    ADDMM = "addmm"
    BMM = "bmm"
    BADDBMM = "baddbmm"

    @property
    def is_batched(self) -> bool:
        """Whether it computes a batch of products."""
        return self in (Op.BMM, Op.BADDBMM)

    @property
    def adds_bias(self) -> bool:
        """Whether it adds a bias, and scales product and bias by alpha and beta."""
        return self in (Op.ADDMM, Op.BADDBMM)

    @property
    def usual_bias(self) -> Bias:
        """Bias that a name leaves out."""
        return {Op.ADDMM: Bias.VECTOR, Op.BADDBMM: Bias.MATRICES}.get(self, Bias.NONE)


_DTYPE_NAMES: dict[object, str] = {
    **dict.fromkeys(("bfloat16", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("float16", "half", "f16", "torch.float16"), "fp16"),
    **dict.fromkeys(("float32", "float", "f32", "torch.float32"), "fp32"),
    **dict.fromkeys(("float8_e4m3fn", "torch.float8_e4m3fn", "fp8e4m3", "e4m3fn"), "e4m3"),
    **dict.fromkeys(("float8_e5m2", "torch.float8_e5m2", "fp8e5m2"), "e5m2"),
    **dict.fromkeys(("i8", "torch.int8"), "int8"),
}
"""Other common names of types, torch's among them."""


class DType(StrEnum):
    """Element type, by its short name."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"
    E4M3 = "e4m3"
    E5M2 = "e5m2"
    INT8 = "int8"
    INT32 = "int32"

    @classmethod
    def _missing_(cls, value: object) -> DType | None:
        """Return the type of another common name, such as torch's; None for an unknown one."""
        return cls(_DTYPE_NAMES[value]) if value in _DTYPE_NAMES else None

    @property
    def itemsize(self) -> int:
        """Size of an element in bytes."""
        return _ITEM_BYTES.get(self.value, 1)

    @property
    def is_integer(self) -> bool:
        """Whether the type holds whole numbers."""
        return self in (DType.INT8, DType.INT32)

    @property
    def is_float8(self) -> bool:
        """Whether the type is a float of 8 bits."""
        return self in (DType.E4M3, DType.E5M2)

    @property
    def torch_name(self) -> str:
        """Name of the type in torch, without the `torch.` prefix."""
        return _TORCH_NAMES.get(self.value, self.value)


class Accumulation(StrEnum):
    """Way to sum a product of 8-bit floats."""

    FAST = "fast"
    """In the tensor cores' registers, on Hopper with 14 bits: torch's `use_fast_accum`."""
    EXACT = "exact"
    """In fp32, into which a kernel adds partial sums as it goes."""


class Layout(StrEnum):
    """Memory layout of an operand, in BLAS terms."""

    N = "n"
    """Row-major: A is m×k with stride (k, 1), B is k×n with stride (n, 1)."""
    T = "t"
    """Transposed: A has stride (1, m), B has stride (1, k), as the weight of a linear layer."""


def implied_types(operands: DType) -> tuple[DType, DType]:
    """Return the default types of output and accumulator for operands of a type."""
    if operands.is_integer:
        return DType.INT32, DType.INT32
    return (DType.BF16 if operands.itemsize == 1 else operands), DType.FP32
