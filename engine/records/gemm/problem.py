"""GEMM problems: what one product computes, on which sizes, types and layouts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, ClassVar, Self, get_type_hints

from gemmtune.engine.records.epilogue.chain import NO_EPILOGUE, Epilogue, steps_of
from gemmtune.engine.records.epilogue.terms import ELEMENT_BYTES, OperandShape
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.gemm.scaling import Scaling, canonical, scaling_of
from gemmtune.engine.records.gemm.stated import STATED, STRIDES, USUAL, stated_texts, strides_of, unusual_strides
from gemmtune.engine.records.gemm.terms import (
    MAX_SIZE,
    MAX_STRIDE,
    Accumulation,
    Bias,
    DType,
    Layout,
    Op,
    implied_types,
)
from gemmtune.engine.records.gemm.text import SHOWN, record_of, text_of, values_of
from gemmtune.engine.records.gemm.type_rules import refuse_types
from gemmtune.engine.records.workload import Workload


@dataclass(frozen=True, slots=True)
class Problem(Workload):
    """GEMM problem: out[batch, m, n] = A[batch, m, k] @ B[batch, k, n], plus the bias of an addmm or a baddbmm.

    Two problems are equal if a kernel cannot tell them apart, so their weight is not compared.

    Example:
        >>> import gemmtune as gt
        >>> problem = gt.Problem.parse("16x4096x4096:bf16:nt")
        >>> problem.m, problem.name, problem == gt.Problem(m=16, n=4096, k=4096)
        (16, '16x4096x4096:bf16:nt', True)
    """

    kind: ClassVar[str] = "gemm"
    """Kind of workload, as names and files have it."""
    baseline_space: ClassVar[str] = "aten"
    """Space of the vendor library's kernel."""
    baseline_words: ClassVar[str] = "the vendor library"
    """Name of the baseline in messages."""
    searched_space: ClassVar[str] = "triton_mm"
    """Space of Inductor's Triton template."""

    m: int
    """Rows of A and of the output; at least 1."""
    n: int
    """Columns of B and of the output; at least 1."""
    k: int
    """Columns of A, rows of B; at least 1."""
    op: Op = Op.MM
    """Operation that the problem computes."""
    batch: int = 1
    """Number of independent products; above 1 only for bmm."""
    a_dtype: DType = DType.BF16
    """Element type of A."""
    b_dtype: DType = DType.BF16
    """Element type of B."""
    out_dtype: DType = DType.BF16
    """Element type of the output."""
    acc_dtype: DType = DType.FP32
    """Element type of the accumulator."""
    a_layout: Layout = Layout.N
    """Memory layout of A."""
    b_layout: Layout = Layout.T
    """Memory layout of B."""
    allow_tf32: bool = False
    """Whether fp32 products may round their operands to tf32 (torch.backends.cuda.matmul.allow_tf32)."""
    epilogue: Epilogue = NO_EPILOGUE
    """Operations that the kernel computes on its product before it stores the result; `none` without one."""
    bias: Bias = Bias.NONE
    """Bias of an addmm or a baddbmm; by default a vector for an addmm, and matrices for a baddbmm."""
    dynamic_m: bool = False
    """Whether the kernel takes m at launch, as in Inductor's graphs of dynamic shapes."""
    alpha: float = 1.0
    """Factor of the product in an addmm or a baddbmm."""
    beta: float = 1.0
    """Factor of the bias in an addmm or a baddbmm; with 0 nothing of the bias counts, not even NaN."""
    lda: int | None = None
    """Leading dimension of A: elements from a row to the next, or from a column of layout t; None if A is dense."""
    ldb: int | None = None
    """Leading dimension of B; None if B is dense."""
    batch_stride_a: int | None = None
    """Elements from an A of the batch to the next, 0 for one A of all products; None for lda times A's rows or
    columns."""
    batch_stride_b: int | None = None
    """Elements from a B of the batch to the next, 0 for one B of all products; None for the dense ones."""
    accumulation: Accumulation = Accumulation.FAST
    """Way to sum 8-bit floats; exact products get no kernel that sums them fast."""
    weight: float = field(default=1.0, compare=False)
    """Call frequency in the user's workload, relative to the other problems."""

    def __hash__(self) -> int:
        """Hash the sizes alone: problems of equal sizes are few, and an enum's hash takes a call of its own."""
        return hash((self.m, self.n, self.k, self.batch))

    def __post_init__(self) -> None:
        """Refuse sizes and combinations that no kernel supports."""
        for name in ("m", "n", "k", "batch"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value <= MAX_SIZE:
                raise ProblemError(f"{name}={value} is not an integer from 1 to {MAX_SIZE}")
        if self.batch > 1 and not self.op.is_batched:
            raise ProblemError(
                f"batch={self.batch} needs op bmm, not {self.op}: write {self.batch}xMxNxK:DTYPE:LAYOUT:bmm"
            )
        if self.allow_tf32 and self.a_dtype is not DType.FP32:
            raise ProblemError(f"tf32 applies to fp32 operands, not to {self.a_dtype}")
        self._fit_bias()
        self._fit_strides()
        refuse_types(self.a_dtype, self.b_dtype, self.acc_dtype, self.out_dtype, self.accumulation, self.op)
        self._fit_epilogue()
        if not 0 < self.weight < math.inf:
            raise ProblemError(f"weight={self.weight} is not a number above 0")

    def _fit_bias(self) -> None:
        """Give an operation that adds a bias its usual one; refuse other biases and scalars."""
        if self.op.adds_bias and self.bias is Bias.NONE:
            object.__setattr__(self, "bias", self.op.usual_bias)  # it adds something
        if self.bias is not Bias.NONE and not self.op.adds_bias:
            raise ProblemError(f"bias={self.bias} needs op addmm, not {self.op}: write MxNxK:DTYPE:LAYOUT:addmm")
        if self.bias.has_batch and not self.op.is_batched:
            raise ProblemError(f"bias={self.bias} needs op baddbmm, not {self.op}: write bias=vector or bias=matrix")
        for name in ("alpha", "beta"):
            value = float(getattr(self, name))
            if not math.isfinite(value) or (name == "alpha" and value == 0):
                raise ProblemError(f"{name}={value} is not a finite number{' other than 0' * (name == 'alpha')}")
            if value != 1 and not self.op.adds_bias:
                raise ProblemError(f"{name}={value} needs op addmm or baddbmm, not {self.op}")
            object.__setattr__(self, name, value)

    def _fit_strides(self) -> None:
        """Leave out dense strides, so that equal operands have one name; refuse rows or columns that overlap."""
        for name, rows, columns in (("a", self.m, self.k), ("b", self.k, self.n)) if self.is_strided else ():
            layout, lead, step = self._placed(name)
            inner = columns if layout is Layout.N else rows
            if lead is not None and not inner <= lead <= MAX_STRIDE:
                raise ProblemError(f"ld{name}={lead} is not an integer from {inner}, the dense one, to {MAX_STRIDE}")
            if step is not None and not (self.op.is_batched and 0 <= step <= MAX_STRIDE):
                kind = "an integer from 0 on" if self.op.is_batched else f"a stride of {self.op}, which has no batch"
                raise ProblemError(f"batch_stride_{name}={step} is not {kind}")
            found = unusual_strides(layout, rows, columns, lead, self.batch, step)
            for field_name, value in zip((f"ld{name}", f"batch_stride_{name}"), found, strict=True):
                object.__setattr__(self, field_name, value)

    def _placed(self, operand: str) -> tuple[Layout, int | None, int | None]:
        """Return layout, leading dimension and batch stride of the operand `a` or `b`."""
        if operand == "a":
            return self.a_layout, self.lda, self.batch_stride_a
        return self.b_layout, self.ldb, self.batch_stride_b

    def _fit_epilogue(self) -> None:
        """Write the epilogue relative to the output's type; refuse one behind integers."""
        if not self.epilogue:
            return
        found, wrong = f"epilogue={self.epilogue}", OperandShape.GATE if self.op.is_batched else OperandShape.ROWS
        if any(each.shape is wrong for each in self.epilogue.operands):
            whose = "rows of one product" if self.op.is_batched else "each product of a batch"
            raise ProblemError(f"{found}: a vector of {wrong} is for {whose}, not for {self.op}")
        if self.out_dtype.is_integer:
            raise ProblemError(f"{found} behind an output of {self.out_dtype}: it needs a float: add out_dtype=bf16")
        try:
            behind = canonical(self.epilogue, self.out_dtype.value, is_float8=self.a_dtype.is_float8)
        except ValueError as error:
            raise ProblemError(str(error)) from None
        object.__setattr__(self, "epilogue", behind)

    @property
    def name(self) -> str:
        """Canonical text, `2048x4096x4096:bf16:nt`, which `Problem.parse` reads."""
        batch = f"{self.batch}x" if self.op.is_batched else ""
        dtype = "tf32" if self.allow_tf32 else self.a_dtype.value
        out_dtype, acc_dtype = implied_types(self.a_dtype)
        parts = [f"{batch}{self.m}x{self.n}x{self.k}", dtype, f"{self.a_layout.value}{self.b_layout.value}"]
        if self.op is not Op.MM:
            parts.append(self.op.value)
        if self.b_dtype is not self.a_dtype:
            parts.append(f"b_dtype={self.b_dtype.value}")
        if self.out_dtype is not out_dtype:
            parts.append(f"out_dtype={self.out_dtype.value}")
        if self.acc_dtype is not acc_dtype:
            parts.append(f"acc_dtype={self.acc_dtype.value}")
        if self.epilogue:
            parts.append(f"epilogue={self.epilogue}")
        if self.bias is not self.op.usual_bias:
            parts.append(f"bias={self.bias.value}")
        if self.dynamic_m:
            parts.append("dynamic_m=true")
        if self.accumulation is not Accumulation.FAST:
            parts.append(f"accumulation={self.accumulation.value}")
        return ":".join([*parts, *self.stated])

    @property
    def stated(self) -> list[str]:
        """Scalars and strides that are unusual, as the name has them: `alpha=0.5`, `lda=1536`."""
        values = _stated_of(self)
        return [] if values == USUAL else stated_texts(dict(zip(STATED, values, strict=True)))

    @property
    def is_strided(self) -> bool:
        """Whether A or B is a view with a leading dimension or a batch stride of its own."""
        return any(getattr(self, name) is not None for name in STRIDES)

    @property
    def scaling(self) -> Scaling | None:
        """Scales that lead the epilogue of a product of 8-bit floats; None without both."""
        return scaling_of(self.epilogue, self.out_dtype) if self.a_dtype.is_float8 else None

    @property
    def unscaled_epilogue(self) -> Epilogue:
        """Epilogue behind the scales of 8-bit floats; the whole one without them."""
        return self.epilogue if self.scaling is None else self.scaling.rest

    @property
    def flops(self) -> int:
        """Number of floating-point operations: 2·batch·m·n·k, and per element one per bias and operation behind it."""
        added = len(self.epilogue.operations) + (self.bias is not Bias.NONE)
        return self.batch * self.m * self.n * (2 * self.k + added)

    @property
    def min_bytes(self) -> int:
        """Bytes that must move through device memory: each operand read once, and each output written once."""
        a = self.m * self.k * self.a_dtype.itemsize * (1 if self.batch_stride_a == 0 else self.batch)
        b = self.k * self.n * self.b_dtype.itemsize * (1 if self.batch_stride_b == 0 else self.batch)
        out = self.batch * self.m * self.n * sum(dtype.itemsize for dtype in self.stored_dtypes)
        bias = math.prod(self.bias_shape) * self.out_dtype.itemsize if self.bias is not Bias.NONE and self.beta else 0
        read = sum(
            math.prod(self.shape_of(operand.shape, operand.block))
            * ELEMENT_BYTES.get(operand.dtype, self.out_dtype.itemsize)
            for operand in self.epilogue.operands
        )
        return a + b + out + bias + read

    @property
    def compute_type(self) -> str:
        """Type of the wider operand, `fp8` for both floats of 8 bits, and ` in fp16` behind it for sums in fp16."""
        wider = max(self.a_dtype, self.b_dtype, key=lambda dtype: dtype.itemsize)
        name = "tf32" if self.allow_tf32 else "fp8" if wider in (DType.E4M3, DType.E5M2) else wider.value
        return f"{name} in fp16" if self.acc_dtype is DType.FP16 else name

    @property
    def stored_dtypes(self) -> tuple[DType, ...]:
        """Element types of the tensors that the kernel stores: of the output, or of the epilogue's outputs."""
        outputs = self.epilogue.outputs
        return tuple(DType(each.dtype) if each.dtype else self.out_dtype for each in outputs) or (self.out_dtype,)

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Names of a kernel's arguments in the order of its call: a, b, outputs, bias, operands of the epilogue.

        The outputs are `out`, `out2` and so on; the operands have their names in the epilogue's text.
        """
        outputs = (f"out{number if number > 1 else ''}" for number in range(1, len(self.stored_dtypes) + 1))
        bias = () if self.bias is Bias.NONE else ("bias",)
        return ("a", "b", *outputs, *bias, *(operand.name for operand in self.epilogue.operands))

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """Sizes of the bias: n alone for one vector, else as many as the output has, with 1 where it is broadcast."""
        rows = self.m if self.bias.has_rows else 1
        if self.bias is Bias.VECTOR:
            return (self.n,)
        return (self.batch, rows, self.n) if self.bias.has_batch else (rows, self.n)

    def strides_of(self, operand: str, m: Any) -> tuple[Any, ...]:  # noqa: ANN401 (a number, or an expression of one)
        """Return the strides of the operand `a` or `b` in elements, along the batch if there is one, rows and columns.

        Args:
            operand: name of the operand.
            m: rows of A, which may be an expression that a library computes with.
        """
        rows, columns = (m, self.k) if operand == "a" else (self.k, self.n)
        layout, lead, batch_stride = self._placed(operand)
        found = strides_of(layout, (rows, columns), lead, batch_stride)
        return found if self.op.is_batched else found[1:]

    def reach(self, operand: str) -> int:
        """Return the elements from the first to the last of the operand `a` or `b`, with those between its rows."""
        rows, columns = (self.m, self.k) if operand == "a" else (self.k, self.n)
        sizes = (self.batch, rows, columns) if self.op.is_batched else (rows, columns)
        return 1 + int(sum((s - 1) * step for s, step in zip(sizes, self.strides_of(operand, self.m), strict=True)))

    def shape_of(self, shape: OperandShape, block: int = 0) -> tuple[int, ...]:
        """Return the sizes of an epilogue's operand: as many as the output has, with 1 where it is broadcast.

        A gate has a row per `block` rows of the output.
        """
        batch, ones = ((self.batch,), (1,)) if self.op.is_batched else ((), ())
        return {
            OperandShape.MATRIX: (*batch, self.m, self.n),
            OperandShape.ROW: (*ones, 1, self.n),
            OperandShape.ROWS: (*batch, 1, self.n),
            OperandShape.COLUMN: (*batch, self.m, 1),
            OperandShape.SCALAR: (*ones, 1, 1),
            OperandShape.GATE: (-(-self.m // (block or 1)), self.n),
        }[shape]

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes m, n, k and batch, and 1 plus the epilogue's steps: searches learn from epilogues that are alike."""
        steps = 1 + steps_of(self.epilogue)
        return {"m": self.m, "n": self.n, "k": self.k, "batch": self.batch, "steps": steps}

    @property
    def traits(self) -> Mapping[str, float]:
        """Element sizes in bytes, and layouts as 0 or 1."""
        return {
            "bytes of A": float(self.a_dtype.itemsize),
            "bytes of out": float(self.out_dtype.itemsize),
            "A transposed": float(self.a_layout is Layout.T),
            "B transposed": float(self.b_layout is Layout.T),
        }

    @property
    def range_size(self) -> str:
        """Rows of A, of which one row of the table may serve a range."""
        return "m"

    @property
    def takes_size_at_launch(self) -> bool:
        """Whether the kernel takes m at launch."""
        return self.dynamic_m

    @property
    def series_name(self) -> str:
        """Name with `m` in place of the value of m."""
        batch = f"{self.batch}x" if self.op.is_batched else ""
        return f"{batch}mx{self.n}x{self.k}:{self.name.partition(':')[2]}"

    @property
    def bits_series(self) -> Self:
        """Dense series of static m: a kernel that takes m at launch adds as others do, and one row has no stride."""
        return replace(self.series, dynamic_m=False, lda=None, batch_stride_a=None)

    def resized(self, size: int, weight: float | None = None) -> Self:
        """Return the problem with another m, and another weight unless it is None."""
        return replace(self, m=size, weight=self.weight if weight is None else weight)

    @property
    def family(self) -> Self:
        """Problem of types and layouts alone: every size and the weight are 1."""
        dense: Any = dict.fromkeys(STRIDES)
        return replace(self, m=1, n=1, k=1, batch=1, weight=1.0, **dense)

    @classmethod
    def parse(cls, text: str) -> Problem:
        """Parse `[BATCHx]MxNxK[:DTYPE[:LAYOUT[:OP]]][:FIELD=VALUE...]`; the defaults are bf16, nt and mm.

        Upper case and torch's names of types are understood.

        DTYPE is the type of both operands and of the output; `tf32` is fp32 with tf32 products allowed. For a DTYPE of
        8 bits the output is bf16, or int32 for int8. A FIELD overrides the default (`out_dtype=fp32`, `bias=matrix`,
        `epilogue=add(matrix).relu`).

        Raises:
            ProblemError: the text is malformed or a size is out of bounds.
        """
        record = record_of(text)
        try:
            return cls.from_fields(record)
        except ProblemError as error:
            raise ProblemError(f"problem {text[:SHOWN]!r}: {error}") from None

    def to_fields(self) -> dict[str, str]:
        """Return the fields as text, which `from_fields` reads; scalars, strides, accumulation only if unusual."""
        stated = dict(text.split("=") for text in self.stated)
        left_out = (*STATED, *(["accumulation"] if self.accumulation is Accumulation.FAST else []))
        usual = {f.name: text_of(getattr(self, f.name)) for f in fields(self) if f.compare and f.name not in left_out}
        return usual | stated

    @classmethod
    def from_fields(cls, record: Mapping[str, str]) -> Problem:
        """Create a problem from text fields; a missing field takes its default.

        The shorthands `dtype` (as in `parse`, `tf32` included) and `layout` (`nn`, `nt`, `tn`, `tt`) set the fields
        that they cover.

        Raises:
            ProblemError: a field is unknown, missing (m, n, k) or malformed.
        """
        return cls(**values_of(record, _TYPES))


def gemm(workload: Workload) -> Problem:
    """Return the workload as a GEMM; raises ProblemError for one of another kind."""
    if not isinstance(workload, Problem):
        raise ProblemError(f"{workload.name} is a workload of kind {workload.kind}, and this needs a GEMM")
    return workload


_stated_of = attrgetter(*STATED)
_TYPES: dict[str, Any] = {each.name: get_type_hints(Problem)[each.name] for each in fields(Problem)}
