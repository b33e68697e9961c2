"""Attention by flex_attention: one pass, its sizes and types, its mask with its blocks, and its score function."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Self, get_type_hints

from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.flex.attention_text import DTYPES, SIZES, USUAL_BLOCK, VALUES, attention_text, with_length
from gemmtune.engine.records.flex.functions import TENSORS, is_condition, reads
from gemmtune.engine.records.flex.masks import MOST_DOCUMENTS, NONE, function_of, lengths_of, short
from gemmtune.engine.records.flex.tensors import coverage, pair_of, tensors_of
from gemmtune.engine.records.gemm.terms import MAX_SIZE, DType
from gemmtune.engine.records.gemm.text import SHOWN, parsed_field
from gemmtune.engine.records.workload import Workload, refuse_sizes, refuse_unknown

_HELP = "write flex:forward:b2:h32:kvh8:s4096:d128:bf16:mask=causal, or backward or decode, or fp16 at their place"
_PRODUCTS = {"forward": 2, "decode": 2, "backward": 5}  # of matrices per pair of query and key


class Phase(StrEnum):
    """Kernel that Inductor makes of a call."""

    FORWARD = "forward"
    """Output of many queries per head."""
    BACKWARD = "backward"
    """Gradients of queries, keys and values."""
    DECODE = "decode"
    """Output of fewer than 128 queries, whose keys are split over blocks."""


@dataclass(frozen=True, slots=True)
class Flex(Workload):
    """One kernel of `torch.nn.attention.flex_attention`.

    Example:
        >>> attention = Flex.parse("flex:forward:b1:h16:kvh4:s1024:d64:bf16:mask=window(256)")
        >>> attention.name
        'flex:forward:b1:h16:kvh4:q1024:kv1024:d64:bf16:mask=window(256)'
    """

    kind: ClassVar[str] = "flex"
    baseline_space: ClassVar[str] = "flex_default"
    baseline_words: ClassVar[str] = "Inductor's default config"
    searched_space: ClassVar[str] = "flex_attention"
    compared_spaces: ClassVar[tuple[str, ...]] = ("sdpa",)

    phase: Phase
    """Kernel of the call."""
    batch: int
    """Sequences; at least 1."""
    heads: int
    """Heads of the queries; at least 1."""
    kv_heads: int
    """Heads of keys and values, which divides `heads`."""
    queries: int
    """Queries per head; at least 1."""
    keys: int
    """Keys per head; at least 1."""
    head_dim: int
    """Elements of a query and a key; at least 1."""
    value_dim: int
    """Elements of a value; at least 1."""
    dtype: DType = DType.BF16
    """Element type of queries, keys, values and output."""
    mask: str = NONE
    """Function of what a query sees, as `masks.short` writes it."""
    score: str = NONE
    """Function of what a score becomes, as `masks.short` writes it."""
    documents: str = ""
    """Lengths of documents `1000.24`, or their number, for a mask that reads them; else empty."""
    lengths: str = ""
    """Least and greatest length in percent of the keys, for a mask that reads a number per sequence; else empty."""
    seen: str = ""
    """Percentages of the mask's blocks that are seen in full and in part, for one that reads bools; else empty."""
    block_q: int = USUAL_BLOCK
    """Queries per block of the mask; 0 without a mask."""
    block_kv: int = USUAL_BLOCK
    """Keys per block of the mask; 0 without a mask."""
    dynamic: str = ""
    """Lengths that the kernel takes at launch: `s` for queries and keys, which are equal, `kv` for keys; else empty."""
    weight: float = field(default=1.0, compare=False)
    """Call frequency in the user's program, relative to the other workloads."""

    def __post_init__(self) -> None:
        """Refuse what no kernel supports; write functions canonically."""
        refuse_sizes(self, MAX_SIZE)
        if self.heads % self.kv_heads:
            raise ProblemError(f"kvh{self.kv_heads} does not divide h{self.heads}")
        if self.dtype not in DTYPES:
            raise ProblemError(f"dtype {self.dtype} is not one of {', '.join(DTYPES)}, which rows of attention have")
        self._check_functions()
        self._check_dynamic()

    def _check_functions(self) -> None:
        try:
            for name, nothing in (("mask", "1"), ("score", "s")):
                object.__setattr__(self, name, text := short(getattr(self, name), nothing))
                if text != NONE and isinstance(function_of(text), int | float):
                    raise ValueError(f"{name}={text} is one number for all pairs, and no function of q and kv")
            held = {tensor.holds for tensor in tensors_of(self.mask)}
        except ValueError as error:
            raise ProblemError(str(error)) from None
        if self.mask != NONE and reads(function_of(self.mask), "s"):
            raise ProblemError(f"mask={self.mask} reads a score, and a mask knows b, h, q, kv and t0 to t3 alone")
        if self.mask != NONE and not is_condition(function_of(self.mask)):
            raise ProblemError(f"mask={self.mask} is a number, and a mask a condition: write ne(0,{self.mask})")
        if self.score != NONE and any(reads(function_of(self.score), each) for each in TENSORS):
            raise ProblemError(f"score={self.score} reads a tensor: no operands are known for it")
        if self.mask == NONE:
            if not {self.block_q, self.block_kv} <= {0, USUAL_BLOCK}:
                raise ProblemError(f"block={self.block_q}x{self.block_kv} has no mask: write mask=causal, or no block")
            for name in ("block_q", "block_kv"):
                object.__setattr__(self, name, 0)
        elif not all(block > 0 and block & (block - 1) == 0 for block in (self.block_q, self.block_kv)):
            raise ProblemError(f"block={self.block_q}x{self.block_kv} is not two powers of two")
        usual = {"documents": "8", "lengths": "50.100", "seen": "25.25"}
        for name, text in usual.items():
            if getattr(self, name) and name not in held:
                raise ProblemError(f"mask={self.mask} reads no {name}: leave out {name}={getattr(self, name)[:SHOWN]}")
            object.__setattr__(self, name, (getattr(self, name) or text) if name in held else "")
        self._check_values()

    def _check_values(self) -> None:
        """Refuse texts of values that no tensor has."""
        for text in filter(None, (self.lengths, self.seen)):
            one, other = pair_of(text) if re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", text) else (101, 101)
            if text == self.lengths and not (one <= other and 0 < other <= 100):
                raise ProblemError(f"lengths={text[:SHOWN]!r} is not least and greatest of 1 to 100 %, as in 50.100")
            if text == self.seen and one + other > 100:
                raise ProblemError(f"seen={text[:SHOWN]!r} is not two percentages of 100 together, as in 25.50")
        if not self.documents:
            return
        if not re.fullmatch(r"[1-9][0-9]{0,8}(\.[1-9][0-9]{0,8})*", self.documents):
            raise ProblemError(f"documents={self.documents[:SHOWN]!r} is neither a number nor lengths such as 1000.24")
        if "." not in self.documents and int(self.documents) > MOST_DOCUMENTS:
            raise ProblemError(f"documents={self.documents} is above {MOST_DOCUMENTS}: give fewer, or their lengths")
        if sum(lengths_of(self.documents, self.longest)) != self.longest:
            raise ProblemError(f"documents={self.documents[:SHOWN]} do not fill {self.longest} positions")

    def _check_dynamic(self) -> None:
        if self.dynamic not in ("", "s", "kv"):
            raise ProblemError(f"dynamic={self.dynamic[:SHOWN]} is neither s, for queries and keys, nor kv")
        if self.dynamic == "s" and self.phase is Phase.DECODE:
            raise ProblemError("dynamic=s opens the queries, of which decoding has few: write dynamic=kv")
        if self.dynamic == "s" and self.queries != self.keys:
            raise ProblemError(f"dynamic=s needs q{self.queries} to equal kv{self.keys}: write dynamic=kv")
        if self.dynamic and "." in self.documents:
            raise ProblemError(f"documents={self.documents[:SHOWN]} fill one length: write their number, documents=8")

    @property
    def axis_sizes(self) -> Mapping[str, int]:
        """Size of each axis of tensors that the mask reads, see `tensors.MaskTensor.axes`."""
        lengths = {"q": self.queries, "kv": self.keys, "s": self.longest}
        return {"b": self.batch, "h": self.heads, **lengths}

    @property
    def _coverage(self) -> tuple[float, float]:
        values = (getattr(self, name) for name in VALUES)
        return coverage(self.mask, self.queries, self.keys, *values, block=self.block_kv)

    @property
    def mask_axes(self) -> tuple[int, int]:
        """Sequences and heads whose blocks of the mask differ; 1 where all have equal ones."""
        function = function_of(self.mask) if self.mask != NONE else 1
        return self.batch if reads(function, "b") else 1, self.heads if reads(function, "h") else 1

    @property
    def longest(self) -> int:
        """Number of positions: that of the queries or of the keys."""
        return max(self.queries, self.keys)

    @property
    def most_elements(self) -> int:
        """Number of elements of the largest operand."""
        of_queries, of_keys = self.heads * self.queries, self.kv_heads * self.keys
        return self.batch * max(of_queries, of_keys) * max(self.head_dim, self.value_dim)

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Names of a kernel's arguments: tensors, blocks of the mask by query and key, what it reads, and outputs."""
        of_keys = ("kv_num", "kv_idx", "full_kv_num", "full_kv_idx")
        read = tuple(tensor.name for tensor in tensors_of(self.mask))
        if self.phase is Phase.BACKWARD:
            of_queries = ("q_num", "q_idx", "full_q_num", "full_q_idx")
            return ("q", "k", "v", "lse", "delta", "do", *of_keys, *of_queries, *read, "dq", "dk", "dv")
        kept = ("lse", "max") if self.phase is Phase.FORWARD else ()
        return ("q", "k", "v", *of_keys, *read, *kept, "out")

    @property
    def kernel_name(self) -> str:
        """Name of all that makes another kernel: without the mask's values, and with 1 for lengths taken at launch."""
        return self.series._name({})

    @property
    def name(self) -> str:
        """Canonical text, `flex:forward:b2:h32:kvh8:q4096:kv4096:d128:bf16:mask=causal`, which `parse` reads."""
        return self._name({name: getattr(self, name) for name in VALUES})

    def _name(self, values: Mapping[str, str]) -> str:
        block = self.block_q, self.block_kv
        sizes, functions = self.sizes, (self.mask, self.score)
        return attention_text(self.phase, sizes, self.dtype, *functions, values, block, self.dynamic)

    @property
    def flops(self) -> int:
        """Number of arithmetic operations for the pairs of query and key that the mask leaves, about."""
        share, _ = self._coverage
        pairs = int(share * self.queries * self.keys) or 1
        return _PRODUCTS[self.phase] * self.batch * self.heads * pairs * (self.head_dim + self.value_dim)

    @property
    def min_bytes(self) -> int:
        """Bytes that must move: queries, outputs, and keys and values that any query sees, each once."""
        _, seen = self._coverage
        both = self.head_dim + self.value_dim
        of_queries = self.batch * self.heads * self.queries * both
        of_keys = int(self.batch * self.kv_heads * self.keys * both * seen)
        return (of_queries + of_keys) * self.dtype.itemsize * (2 if self.phase is Phase.BACKWARD else 1)

    @property
    def compute_type(self) -> str:
        """Type of the operands."""
        return self.dtype.value

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of batch, heads, sequences and elements."""
        return {name: getattr(self, name) for name in SIZES.values()}

    @property
    def traits(self) -> Mapping[str, float]:
        """Share of pairs that the mask leaves, the blocks of the mask, and whether it and the score are functions."""
        share, _ = self._coverage
        flags = {"mask": float(self.mask != NONE), "score": float(self.score != NONE)}
        return {"share of pairs": share, **flags, "block_kv": float(self.block_kv), "bytes": float(self.dtype.itemsize)}

    @property
    def learns_from(self) -> str:
        """Kind and phase: configs of one kernel have other parameters than those of another."""
        return f"{self.kind}:{self.phase}"

    @property
    def range_size(self) -> str:
        """Number of keys, where kernels take it at launch; with `dynamic=s` that of queries, too."""
        return "keys" if self.dynamic else ""

    @property
    def takes_size_at_launch(self) -> bool:
        """Whether the kernel takes its lengths at launch."""
        return bool(self.dynamic)

    @property
    def series_name(self) -> str:
        """Name without the values of lengths that are taken at launch, for people."""
        return with_length(self.name, "")

    def resized(self, size: int, weight: float | None = None) -> Self:
        """Return the attention with another dynamic length, and another weight unless it is None.

        Raises:
            ProblemError: the size is not 1, and the lengths are fixed: they decide the kernel.
        """
        weight = self.weight if weight is None else weight
        if not self.dynamic and size != 1:
            raise ProblemError(f"{self.name} has no range of sizes: write dynamic=s or dynamic=kv")
        keys = size if self.dynamic else self.keys
        return replace(self, queries=size if self.dynamic == "s" else self.queries, keys=keys, weight=weight)

    @property
    def family(self) -> Self:
        """Attention of phase and type alone, with every size 1."""
        record = {**self.to_fields(), **dict.fromkeys(SIZES.values(), "1"), "mask": NONE, "score": NONE}
        return self.from_fields({**record, **dict.fromkeys(VALUES, ""), "block_q": "0", "block_kv": "0", "dynamic": ""})

    @classmethod
    def from_fields(cls, record: Mapping[str, str]) -> Self:
        """Create an attention from text fields; kv_heads, value_dim, functions, type and weight may be missing.

        With `dynamic` of `s`, so may the queries.

        Raises:
            ProblemError: a field is unknown, missing or malformed.
        """
        refuse_unknown(cls, record)
        usual = {"kv_heads": record.get("heads", ""), "value_dim": record.get("head_dim", "")}
        usual |= {"queries": record.get("keys", "")} if record.get("dynamic") == "s" else {}
        record = {**usual, **record}
        if missing := [name for name in ("phase", *SIZES.values()) if not record.get(name)]:
            raise ProblemError(f"{missing[0]} is missing: {_HELP}")
        return cls(**{name: parsed_field(name, text, _TYPES) for name, text in record.items()})

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `flex:PHASE:bB:hH[:kvhH]:sS:dD[:dvD][:DTYPE]` with `:NAME=VALUE` for other fields.

        `sS` stands for `qS:kvS`.

        Raises:
            ProblemError: the text is malformed or a size is out of bounds.
        """
        phase, *parts = text.strip().removeprefix(f"{cls.kind}:").split(":")
        record: dict[str, str] = {"phase": phase}
        for part in parts:
            name, said, value = part.partition("=")
            if size := re.fullmatch(r"(b|h|kvh|q|kv|s|d|dv)(\d+)", part):
                found = {SIZES[each]: size[2] for each in (("q", "kv") if size[1] == "s" else (size[1],))}
            elif name == "block" and said:
                if (blocks := re.fullmatch(r"(\d+)(?:x(\d+))?", value)) is None:
                    raise ProblemError(f"{text[:SHOWN]!r}: block={value[:SHOWN]} is neither 64 nor 64x128")
                found = {"block_q": blocks[1], "block_kv": blocks[2] or blocks[1]}
            elif not said and part not in set(DType):
                raise ProblemError(
                    f"{text[:SHOWN]!r}: {part[:SHOWN]!r} is neither a size such as b2 nor a dtype: {_HELP}"
                )
            else:
                found = {name: value} if said else {"dtype": part}
            if twice := sorted(set(found) & set(record)):
                raise ProblemError(f"{text[:SHOWN]!r} gives {twice[0]} twice: {_HELP}")
            record |= found
        try:
            return cls.from_fields(record)
        except ProblemError as error:
            raise ProblemError(f"{text[:SHOWN]!r}: {error}") from None


_TYPES: dict[str, Any] = get_type_hints(Flex)


def flex(workload: Workload) -> Flex:
    """Return the workload as an attention; raises ProblemError for one of another kind."""
    if not isinstance(workload, Flex):
        raise ProblemError(f"{workload.name} is a workload of kind {workload.kind}, and this needs flex_attention")
    return workload
