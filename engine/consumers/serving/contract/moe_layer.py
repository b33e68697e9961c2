"""Fused mixture-of-experts layers, as a serving engine runs them: sizes, types and the routing of tokens."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Self

from gemmtune.engine.consumers.serving.contract.layer import SCALE_BLOCK, Layer
from gemmtune.engine.records.errors import ProblemError

_UNIFORM = "uniform"
_BLOCK = re.compile(r"block=(16|32|64|128|256|512)x(16|32|64|128|256|512)")
_SCALE_BLOCKS = (SCALE_BLOCK, SCALE_BLOCK)
_EXPERTS_PER_UNSORTED_ROW = 4
"""Experts per row of the products from which vLLM does not sort rows (`_prepare_expert_assignment`)."""


class MoeType(StrEnum):
    """Types of activations and weights, with their scales."""

    BF16 = "bf16"
    """Both in bf16, without scales."""
    FP16 = "fp16"
    """Both in fp16, without scales; outputs in fp16, too."""
    FP8_TENSOR = "fp8_tensor"
    """Both in e4m3, with a scale per tensor of activations and per expert."""
    FP8_BLOCK = "fp8_block"
    """Both in e4m3, with a scale per block of a weight and per part of an activation's row."""
    INT8_W8A16 = "int8_w8a16"
    """Activations in bf16, and weights in int8 with a scale per expert and output channel, or per group."""
    INT4_W4A16 = "int4_w4a16"
    """Activations in bf16, and weights in int4, two per byte, with a scale per group."""

    @property
    def is_fp8(self) -> bool:
        """Whether both are 8-bit floats, with scales of both."""
        return self in (MoeType.FP8_TENSOR, MoeType.FP8_BLOCK)

    @property
    def itemsizes(self) -> tuple[int, int]:
        """Bytes per element of activations and of weights, as a tile holds them: int4 in a byte of its own."""
        return 1 if self.is_fp8 else 2, 2 if self in (MoeType.BF16, MoeType.FP16) else 1

    @property
    def packed(self) -> int:
        """Elements of a weight per element of its tensor."""
        return 2 if self is MoeType.INT4_W4A16 else 1

    @property
    def short(self) -> str:
        """Abbreviation in an engine's file names and defaults; empty without scales."""
        return "fp8_w8a8" if self.is_fp8 else self.value if self in INTEGERS else ""


INTEGERS = (MoeType.INT4_W4A16, MoeType.INT8_W8A16)
"""Types whose weights alone are integers."""


@dataclass(frozen=True, slots=True)
class MoeLayer(Layer):
    """Both grouped GEMMs of one layer on one device, with one config: tokens to 2·inter, and inter to hidden."""

    letters: ClassVar[Mapping[str, str]] = {"m": "tokens", "e": "experts", "k": "top_k", "h": "hidden", "n": "inter"}
    form: ClassVar[str] = (
        "write KIND:m16:e128:k8:h2048:n768:bf16, with zipf=1.2 or counts=3.5.0… behind it for uneven routing, and "
        "block=64x128 behind fp8_block for other blocks than 128x128"
    )

    experts: int
    """Experts on this device, fused shared ones included; at least `top_k`."""
    top_k: int
    """Experts per token; at least 1."""
    hidden: int
    """Size of a token's vector; at least 1."""
    inter: int
    """Intermediate size on this device: half the rows of an expert's first weight; at least 1."""
    dtype: MoeType = MoeType.BF16
    """Types of activations and weights."""
    block: str = ""
    """Rows and columns of a weight that share a scale, `block=64x128`; empty for 128×128, and without such blocks."""
    routing: str = _UNIFORM
    """Popularity of experts: `uniform`, `zipf=S` with exponent S, or `counts=A.B.C…` with a count per expert."""

    def refuse(self) -> None:
        """Refuse sizes and types that do not go together, and routings that no layer has."""
        self._refuse_type()
        if self.top_k > self.experts:
            raise ProblemError(f"top_k={self.top_k} > experts={self.experts}: a token takes each expert once at most")
        kind, _, value = self.routing.partition("=")
        if kind == "zipf":
            if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) or not 1e-4 <= float(value) <= 10:
                raise ProblemError(f"routing={self.routing!r}: the exponent of zipf is a number from 0.0001 to 10")
            if value != f"{float(value):g}":
                object.__setattr__(self, "routing", f"zipf={float(value):g}")
        elif kind == "counts":
            counts = value.split(".")
            if len(counts) != self.experts or not all(re.fullmatch(r"[0-9]{1,18}", c) for c in counts):
                raise ProblemError(f"routing has {len(counts)} counts for {self.experts} experts: give one per expert")
            chosen = sum(int(c) > 0 for c in counts)
            if chosen < self.top_k:
                raise ProblemError(f"routing has {chosen} experts with a count above 0 < top_k={self.top_k}")
        elif self.routing != _UNIFORM:
            raise ProblemError(f"routing={self.routing!r} is none of {_UNIFORM}, zipf=S, counts=A.B.C…")

    def _refuse_type(self) -> None:
        """Refuse blocks of scales of other types, and sizes that are cut within a block; take vLLM's text of blocks."""
        if self.dtype is MoeType.INT4_W4A16:
            raise ProblemError(f"int4_w4a16 has a scale per group: write {self.kind}_wna16:…:g128:int4_w4a16")
        object.__setattr__(self, "block", re.sub(r"block_shape=\[(\d+), ?(\d+)\]", r"block=\1x\2", self.block))
        if self.block and (self.dtype is not MoeType.FP8_BLOCK or not _BLOCK.fullmatch(self.block)):
            raise ProblemError(f"{self.block!r} is no block of scales: write fp8_block:block=64x128")
        if self.block == f"block={SCALE_BLOCK}x{SCALE_BLOCK}":
            object.__setattr__(self, "block", "")
        if self.scale_block:
            self._refuse_cuts(self.scale_block[1], "block of scales: take fp8_tensor or bf16")

    def _refuse_cuts(self, depth: int, of: str) -> None:
        """Refuse sizes that are no multiple of `depth`."""
        for name in ("hidden", "inter"):
            if getattr(self, name) % depth:
                raise ProblemError(f"{name}={getattr(self, name)} is no multiple of {depth}, the {of}")

    @property
    def popularity(self) -> tuple[float, ...]:
        """Probability of each expert to be drawn first; they sum to 1."""
        kind, _, value = self.routing.partition("=")
        if kind == "zipf":
            shares = [rank ** -float(value) for rank in range(1, self.experts + 1)]
        elif kind == "counts":
            shares = [float(count) for count in value.split(".")]
        else:
            shares = [1.0] * self.experts
        total = sum(shares)
        return tuple(share / total for share in shares)

    @property
    def scale_block(self) -> tuple[int, int] | None:
        """Rows and columns of a weight that share a scale; None without such blocks."""
        if self.dtype is not MoeType.FP8_BLOCK:
            return None
        rows, columns = map(int, self.block.removeprefix("block=").split("x")) if self.block else _SCALE_BLOCKS
        return rows, columns

    @property
    def deepest_tile(self) -> int:
        """Most columns of a weight that a tile may have for its scales; 0 for any."""
        return self.scale_block[1] if self.scale_block else 0

    @property
    def rows(self) -> int:
        """Rows of both products: one per token and expert that it takes."""
        return self.tokens * self.top_k

    @property
    def products(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Columns and depth of both products: n and k."""
        return (2 * self.inter, self.hidden), (self.hidden, self.inter)

    @property
    def takes_rows_unsorted(self) -> bool:
        """Whether the engine gives each row a tile of its own, and sorts none."""
        return False

    def sorted_rows(self, block_m: int) -> int:
        """Return the length of the engine's sorted row numbers, with room to pad each expert's rows to whole blocks."""
        raise NotImplementedError

    @property
    def active_experts(self) -> float:
        """Expected number of experts that some token takes."""
        return sum(1 - (1 - min(1.0, self.top_k * share)) ** self.tokens for share in self.popularity)

    @property
    def name(self) -> str:
        """Canonical text, `vllm_moe:m16:e128:k8:h2048:n768:bf16`, which `parse` reads."""
        return ":".join([Layer.name.__get__(self), self.dtype.value, *filter(None, self.marks)])

    @property
    def marks(self) -> Sequence[str]:
        """Parts of the name behind the type, of which empty ones are left out."""
        return self.block, "" if self.routing == _UNIFORM else self.routing

    def to_fields(self) -> Mapping[str, str]:
        """Return every compared field as text that is not empty, as the block is where it is 128×128."""
        return {name: text for name, text in Layer.to_fields(self).items() if text}

    @property
    def flops(self) -> int:
        """Number of arithmetic operations of both products, without padding."""
        return 2 * self.rows * sum(n * k for n, k in self.products)

    @property
    def compute_type(self) -> str:
        """Type of both products."""
        return "fp8" if self.dtype.is_fp8 else self.dtype.value if self.dtype is MoeType.FP16 else "bf16"

    @property
    def min_bytes(self) -> int:
        """Bytes of activations and outputs, and of the weights of `top_k` experts, which one token takes already."""
        return self.bytes_with(self.top_k)

    def bytes_with(self, experts: float) -> int:
        """Return the bytes that move if the tokens take so many experts."""
        of_activation, of_weight = self.dtype.itemsizes
        weights = experts * sum(n * k for n, k in self.products) * of_weight
        activations = (self.tokens * self.hidden + self.rows * self.inter) * of_activation
        return int(weights / self.dtype.packed) + activations + 2 * self.rows * sum(n for n, _ in self.products)

    @property
    def traits(self) -> Mapping[str, float]:
        """Element size in bytes, whether scales are per block, and the expected share of experts that work."""
        return {
            "bytes per element": self.dtype.itemsizes[1] / self.dtype.packed,
            "scales per block": float(self.dtype is MoeType.FP8_BLOCK),
            "active experts": self.active_experts / self.experts,
        }

    @classmethod
    def traits_of(cls, record: Mapping[str, str]) -> Mapping[str, Any]:
        """Return type, block and routing; each may be missing."""
        dtype = record.get("dtype", MoeType.BF16.value)
        if dtype not in set(MoeType):
            raise ProblemError(f"no dtype {dtype!r}; known: {', '.join(MoeType)}")
        routing = record.get("routing", _UNIFORM)
        return {"dtype": MoeType(dtype), "block": record.get("block", ""), "routing": routing}

    @classmethod
    def field_of(cls, part: str) -> str:
        """Return `routing`, `block` or `dtype`."""
        if part.startswith("block"):
            return "block"
        return "routing" if part == _UNIFORM or part.startswith(("zipf", "counts")) else "dtype"

    @property
    def family(self) -> Self:
        """Layer of types alone, with every size and the weight 1."""
        least = self.scale_block[1] if self.scale_block else 1
        return replace(self, tokens=1, experts=1, top_k=1, hidden=least, inter=least, routing=_UNIFORM, weight=1.0)


class VllmMoe(MoeLayer):
    """Layer that vLLM runs with its Triton kernel."""

    __slots__ = ()
    kind = searched_space = "vllm_moe"
    baseline_space = "vllm_moe_shipped"
    baseline_words = "vLLM's present config"

    @property
    def deepest_tile(self) -> int:
        """Most columns of a weight that a tile may have, as vLLM clamps it; 0 for any."""
        return min(self.scale_block) if self.scale_block else 0

    @property
    def takes_rows_unsorted(self) -> bool:
        """Whether few experts work, so that vLLM gives each row a tile of its own."""
        return self.rows * _EXPERTS_PER_UNSORTED_ROW <= self.experts

    def sorted_rows(self, block_m: int) -> int:
        """Return the length of vLLM's sorted row numbers (`moe_align_block_size`)."""
        padded = self.rows + self.experts * (block_m - 1)
        return min(self.rows * block_m, padded) if self.rows < self.experts else padded


class SglangMoe(MoeLayer):
    """Layer that SGLang runs with its Triton kernel."""

    __slots__ = ()
    kind = searched_space = "sglang_moe"
    baseline_space = "sglang_moe_shipped"
    baseline_words = "SGLang's present config"

    def sorted_rows(self, block_m: int) -> int:
        """Return the length of SGLang's sorted row numbers (`moe_align_block_size`), a multiple of 4."""
        buckets = self.experts + 1  # one more for rows of other devices' experts
        few = self.rows < buckets
        padded = self.rows * block_m if few else self.rows + buckets * (block_m - 1)
        return -(-padded // 4) * 4
