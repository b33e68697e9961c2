"""Grouped products: what one launch computes for all groups, on which sizes, types, layouts and routing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Self, get_type_hints

from gemmtune.engine.records.epilogue.chain import NO_EPILOGUE, Epilogue
from gemmtune.engine.records.epilogue.text import parse_epilogue
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.scaling import canonical as canonical_epilogue
from gemmtune.engine.records.gemm.terms import MAX_SIZE, Accumulation, DType, Layout, implied_types
from gemmtune.engine.records.gemm.text import SHOWN, parsed_field
from gemmtune.engine.records.grouped.routing import UNIFORM, canonical, counts_of
from gemmtune.engine.records.workload import Workload, refuse_sizes, refuse_unknown

_LETTERS = {"m": "m", "g": "groups", "n": "n", "k": "k"}
_HELP = "write grouped:rows:m1024:g8:n4096:k2048:bf16:nt:routing=zipf"
_DTYPES = (DType.BF16, DType.FP16, DType.E4M3)
_MOST_GROUPS = 2**16
_UNSERVED = ("bias", "out_dtype", "acc_dtype", "alpha", "beta", "lda", "ldb")
"""Fields of a GEMM that no kernel of grouped products here computes yet."""
SCALES = parse_epilogue("mul(column[fp32]).mul(row[fp32])")
"""Scales of e4m3: one per row of A, shape (m,), and one per group and column of B, shape (groups, n)."""


class Form(StrEnum):
    """Dimension that is cut into groups."""

    ROWS = "rows"
    """Rows of A: out[m, n] of A[m, k] and B[groups, k, n], forward or gradient of the input (2d by 3d)."""
    INNER = "inner"
    """Columns of A and rows of B: out[groups, m, n] of A[m, k] and B[k, n], gradient of the weight (2d by 2d)."""
    BATCHED = "batched"
    """Nothing: out[groups, m, n] of A[groups, m, k] and B[groups, k, n] (3d by 3d)."""

    @property
    def usual_layout(self) -> str:
        """Layouts of A and B that a text may leave out: those of a linear layer's product and of its weight's gradient.

        `nt` has each weight as n×k, row-major; `tn` has activations of a token side by side.
        """
        return "tn" if self is Form.INNER else "nt"


@dataclass(frozen=True, slots=True)
class Grouped(Workload):
    """Products of every group in one launch, as `torch.nn.functional.grouped_mm` computes them.

    Two products are equal if a kernel cannot tell them apart, so their weight is not compared.

    Example:
        >>> product = Grouped.parse("grouped:rows:m64:g4:n256:k128:bf16:nt:routing=counts(10.0.50.4)")
        >>> product.counts, product.flops == 2 * 64 * 256 * 128
        ((10, 0, 50, 4), True)
    """

    kind: ClassVar[str] = "grouped"
    baseline_space: ClassVar[str] = "aten_grouped"
    baseline_words: ClassVar[str] = "torch's grouped product"
    searched_space: ClassVar[str] = "quack_grouped"

    form: Form
    """Dimension that is cut into groups."""
    m: int
    """Rows of A; with `rows` the total of all groups, with `batched` those of each; at least 1."""
    groups: int
    """Number of groups, or experts; at least 1."""
    n: int
    """Columns of B and of the output; at least 1."""
    k: int
    """Columns of A; with `inner` the total of all groups; at least 1."""
    dtype: DType = DType.BF16
    """Element type of A, B and the output: bf16 or fp16; or e4m3 with an output of bf16."""
    layout: str = ""
    """Layouts of A and of B as in a GEMM's text, `nt`; for operands of three dimensions those of the last two.

    Left empty it is the form's usual one.
    """
    routing: str = UNIFORM
    """Spread of the rows, or of k with `inner`: `uniform`, `zipf`, `zipf(S)`, `counts(A.B.C…)`; see `routing.py`."""
    epilogue: Epilogue = NO_EPILOGUE
    """Scales of e4m3, `SCALES`; none for other types."""
    accumulation: Accumulation = Accumulation.FAST
    """Way to sum e4m3; exact products get no kernel that sums them fast."""
    weight: float = field(default=1.0, compare=False)
    """Call frequency in the user's program, relative to the other workloads."""

    def __post_init__(self) -> None:
        """Refuse sizes, types and routings that no kernel supports; fill in the usual layout."""
        refuse_sizes(self, MAX_SIZE, groups=_MOST_GROUPS)
        if self.dtype not in _DTYPES:
            raise ProblemError(f"dtype {self.dtype} is not one of {', '.join(_DTYPES)}, which grouped products have")
        object.__setattr__(self, "epilogue", canonical_epilogue(self.epilogue, "bf16", is_float8=True))
        object.__setattr__(self, "layout", self.layout or self.form.usual_layout)
        if not re.fullmatch("[nt]{2}", self.layout):
            raise ProblemError(f"layout {self.layout[:SHOWN]!r} is not one of nn, nt, tn, tt")
        self._refuse_scales()
        object.__setattr__(self, "routing", canonical(self.routing, self.groups))
        if self.form is Form.BATCHED and self.routing != UNIFORM:
            raise ProblemError(
                f"routing={self.routing} is for rows and inner: groups of batched are alike, leave it out"
            )

    def _refuse_scales(self) -> None:
        """Refuse e4m3 without its scales, and what no kernel multiplies in it; refuse scales of other types."""
        if not self.dtype.is_float8:
            if self.epilogue or self.accumulation is not Accumulation.FAST:
                name, text = next(iter(self._stated.items()))
                why = "; Inductor fuses nothing behind grouped products" * (name == "epilogue")
                raise ProblemError(f"no kernel of groups of {self.dtype} computes {name}={text}{why}: leave it out")
            return
        if self.epilogue != SCALES:
            raise ProblemError(f"grouped products of e4m3 have a scale per row and column: write epilogue={SCALES}")
        if (self.form, self.layout) != (Form.ROWS, "nt"):
            served = "kernels multiply groups of rows of e4m3 in layout nt"
            raise ProblemError(f"{served}, for tensor cores read it along k: not {self.form} in {self.layout}")

    @property
    def a_layout(self) -> Layout:
        """Memory layout of A."""
        return Layout(self.layout[0])

    @property
    def b_layout(self) -> Layout:
        """Memory layout of B, or of each matrix of B."""
        return Layout(self.layout[1])

    @property
    def counts(self) -> tuple[int, ...]:
        """Rows of each group, with `inner` its share of k; with `batched` m for every group."""
        if self.form is Form.BATCHED:
            return (self.m,) * self.groups
        return counts_of(self.routing, self.groups, self.size)

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Shapes of A, B and the output."""
        g, m, n, k = self.groups, self.m, self.n, self.k
        return {
            Form.ROWS: ((m, k), (g, k, n), (m, n)),
            Form.INNER: ((m, k), (k, n), (g, m, n)),
            Form.BATCHED: ((g, m, k), (g, k, n), (g, m, n)),
        }[self.form]

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Names of a kernel's arguments: a, b, out, scales, and the end of each group's rows, which `batched` lacks."""
        scales = (operand.name for operand in self.epilogue.operands)
        return ("a", "b", "out", *scales, *(() if self.form is Form.BATCHED else ("offs",)))

    @property
    def out_dtype(self) -> DType:
        """Element type of the output."""
        return implied_types(self.dtype)[0]

    @property
    def of_one_group(self) -> Problem:
        """Product of m rows by one matrix of B, with its types, layouts and scales."""
        return Problem(
            self.m,
            self.n,
            self.k,
            a_dtype=self.dtype,
            b_dtype=self.dtype,
            out_dtype=self.out_dtype,
            a_layout=self.a_layout,
            b_layout=self.b_layout,
            epilogue=self.epilogue,
            accumulation=self.accumulation,
        )

    @property
    def name(self) -> str:
        """Canonical text, `grouped:rows:m1024:g8:n4096:k2048:bf16:nt`, which `parse` reads."""
        sizes = [f"{letter}{getattr(self, name)}" for letter, name in _LETTERS.items()]
        others = [f"{name}={text}" for name, text in self._stated.items()]
        routing = [] if self.routing == UNIFORM else [f"routing={self.routing}"]
        return ":".join([self.kind, self.form, *sizes, self.dtype, self.layout, *others, *routing])

    @property
    def _stated(self) -> dict[str, str]:
        """Texts of epilogue and accumulation, as far as they are not the default."""
        return {name: str(getattr(self, name)) for name, default in _DEFAULTS.items() if getattr(self, name) != default}

    @property
    def flops(self) -> int:
        """Number of arithmetic operations for rows that are there: 2·m·n·k, with `batched` per group, and scales."""
        per_element = 2 * self.k + len(self.epilogue.operations)
        return per_element * self.m * self.n * (self.groups if self.form is Form.BATCHED else 1)

    @property
    def min_bytes(self) -> int:
        """Bytes that must move, each once: A, matrices of B whose group has rows, their scales, and the output."""
        a, b, out = map(math.prod, self.shapes)
        groups = sum(count > 0 for count in self.counts)
        if self.form is Form.ROWS:
            b = b // self.groups * groups
        scales = (self.m + groups * self.n) * DType.FP32.itemsize if self.epilogue else 0
        return (a + b) * self.dtype.itemsize + out * self.out_dtype.itemsize + scales

    @property
    def compute_type(self) -> str:
        """Type of the operands, `fp8` for e4m3."""
        return "fp8" if self.dtype.is_float8 else self.dtype.value

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes m, groups, n and k."""
        return {name: getattr(self, name) for name in _LETTERS.values()}

    @property
    def traits(self) -> Mapping[str, float]:
        """Layouts as 0 or 1, the share of groups with rows, and the largest group's share of them."""
        counts = self.counts
        return {
            "A transposed": float(self.a_layout is Layout.T),
            "B transposed": float(self.b_layout is Layout.T),
            "groups with rows": sum(count > 0 for count in counts) / self.groups,
            "largest group": max(counts) / sum(counts),
        }

    @property
    def learns_from(self) -> str:
        """Kind and form: configs for one form say nothing about another."""
        return f"{self.kind}:{self.form}"

    @property
    def range_size(self) -> str:
        """Size that a program's batch decides: k with `inner`, else m."""
        return "k" if self.form is Form.INNER else "m"

    @property
    def takes_size_at_launch(self) -> bool:
        """Whether kernels take the range size at launch: all do."""
        return True

    @property
    def series_name(self) -> str:
        """Name without the value of the range size, for people."""
        return self.name.replace(f":{self.range_size}{self.size}:", f":{self.range_size}:", 1)

    def resized(self, size: int, weight: float | None = None) -> Self:
        """Return the product with another range size, and another weight unless it is None."""
        weight = self.weight if weight is None else weight
        return replace(self, k=size, weight=weight) if self.form is Form.INNER else replace(self, m=size, weight=weight)

    @property
    def family(self) -> Self:
        """Product of form, type and layouts alone."""
        return replace(self, m=1, groups=1, n=1, k=1, routing=UNIFORM, weight=1.0)

    def to_fields(self) -> Mapping[str, str]:
        """Return every compared field as text, which `from_fields` reads; of epilogue and accumulation other values."""
        return {name: text for name, text in Workload.to_fields(self).items() if name not in _DEFAULTS} | self._stated

    @classmethod
    def from_fields(cls, record: Mapping[str, str]) -> Self:
        """Create a product from text fields; all but form and sizes may be missing.

        Raises:
            ProblemError: a field is unknown, missing or malformed.
        """
        if unserved := [f"{name}={record[name][:SHOWN]}" for name in _UNSERVED if name in record]:
            raise ProblemError(f"no kernel of grouped products here computes {unserved[0]}: leave it out")
        refuse_unknown(cls, record)
        if missing := [name for name in ("form", *_LETTERS.values()) if not record.get(name)]:
            raise ProblemError(f"{missing[0]} is missing: {_HELP}")
        given = {name: text for name, text in record.items() if text or name == "routing"}
        return cls(**{name: parsed_field(name, text, _TYPES) for name, text in given.items()})

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `grouped:FORM:mM:gG:nN:kK[:DTYPE][:LAYOUT][:FIELD=VALUE…]`; the defaults are bf16 and uniform.

        Raises:
            ProblemError: the text is malformed or a size is out of bounds.
        """
        form, *parts = text.strip().lower().removeprefix(f"{cls.kind}:").split(":")
        record: dict[str, str] = {"form": form}
        try:
            for part in parts:
                name, value = part.split("=", 1) if "=" in part else _field_of(part)
                if name in record:
                    raise ProblemError(f"it gives {name} twice: {_HELP}")
                record[name] = value
            return cls.from_fields(record)
        except ProblemError as error:
            raise ProblemError(f"{text[:SHOWN]!r}: {error}") from None


def _field_of(part: str) -> tuple[str, str]:
    """Return the field that a part without a name gives, and its value."""
    if size := re.fullmatch(r"([mgnk])(\d+)", part):
        return _LETTERS[size[1]], size[2]
    if re.fullmatch("[nt]{2}", part):
        return "layout", part
    with suppress(ValueError):
        return "dtype", DType(part)
    raise ProblemError(f"{part[:SHOWN]!r} is neither a size such as m1024, nor a layout, nor a dtype: {_HELP}")


_TYPES: dict[str, Any] = get_type_hints(Grouped)
_DEFAULTS = {"epilogue": NO_EPILOGUE, "accumulation": Accumulation.FAST}
"""Values that name and fields leave out."""


def grouped(workload: Workload) -> Grouped:
    """Return the workload as a grouped product; raises ProblemError for one of another kind."""
    if not isinstance(workload, Grouped):
        raise ProblemError(f"{workload.name} is a workload of kind {workload.kind}, and this needs a grouped product")
    return workload
