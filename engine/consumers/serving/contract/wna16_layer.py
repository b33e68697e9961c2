"""Fused mixture-of-experts layers whose integer weights have a scale per group of elements along k."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from gemmtune.engine.consumers.serving.contract.moe_layer import INTEGERS, MoeLayer, MoeType, SglangMoe, VllmMoe
from gemmtune.engine.records.errors import ProblemError

_ZEROS = "zeros"
_CUDA_GROUPS, _CUDA_ROWS_PER_EXPERT = (32, 64, 128), 6
"""Groups, and most rows per expert, of int4 weights that vLLM's kernel in CUDA runs (`should_moe_wna16_use_cuda`)."""
_LEAST_GROUP = 32
"""Smallest group that the engines load."""


@dataclass(frozen=True, slots=True)
class Wna16Layer(MoeLayer):
    """Layer with bf16 activations and int4 or int8 weights, packed as GPTQ and AWQ models are in both engines."""

    letters: ClassVar[Mapping[str, str]] = {**MoeLayer.letters, "g": "group"}
    form: ClassVar[str] = (
        "write KIND:m16:e128:k8:h2048:n768:g128:int4_w4a16 or int8_w8a16, with zeros behind it for zero points, and "
        "zipf=1.2 or counts=3.5.0… for uneven routing"
    )

    dtype: MoeType = MoeType.INT4_W4A16
    """Types of activations and weights: `int4_w4a16` or `int8_w8a16`."""
    group: int = 128
    """Elements of a weight's row that share a scale; a power of two from 32."""
    zeros: str = ""
    """`zeros` for a zero point per group, as AWQ models have; empty for the middle of the range, as in GPTQ."""

    def _refuse_type(self) -> None:
        """Refuse other types, groups that are no power of two, and sizes that are cut within a group."""
        if self.dtype not in INTEGERS:
            way_out = f"{self.kind.removesuffix('_wna16')} takes {self.dtype}"
            raise ProblemError(f"{self.dtype} has no scale per group: write {' or '.join(INTEGERS)}; {way_out}")
        if self.block or self.zeros not in ("", _ZEROS):
            raise ProblemError(f"{self.block or self.zeros!r} is no mark of such a layer: {self.form}")
        if self.group < _LEAST_GROUP or self.group & (self.group - 1):
            raise ProblemError(f"group={self.group} is no power of two from {_LEAST_GROUP}")
        self._refuse_cuts(self.group, "group")

    @property
    def marks(self) -> Sequence[str]:
        """Parts of the name behind the type, of which empty ones are left out."""
        return self.zeros, *MoeLayer.marks.__get__(self)

    @property
    def traits(self) -> Mapping[str, float]:
        """Element size in bytes, scales per block, and the expected share of experts that work."""
        return {**MoeLayer.traits.__get__(self), "scales per block": 1.0}

    @classmethod
    def traits_of(cls, record: Mapping[str, str]) -> Mapping[str, Any]:
        """Return type, zero points and routing; each may be missing."""
        found = MoeLayer.traits_of.__func__(cls, {"dtype": MoeType.INT4_W4A16.value, **record})  # type: ignore[attr-defined]
        return {**found, "zeros": record.get("zeros", "")}

    @classmethod
    def field_of(cls, part: str) -> str:
        """Return `zeros`, `routing`, `block` or `dtype`."""
        return "zeros" if part == _ZEROS else str(MoeLayer.field_of(part))

    @property
    def family(self) -> Self:
        """Layer of types alone, with every other size and the weight 1."""
        least = self.group
        return replace(self, tokens=1, experts=1, top_k=1, hidden=least, inter=least, routing="uniform", weight=1.0)


class VllmWna16(Wna16Layer, VllmMoe):
    """Layer that vLLM runs with its Triton kernel for GPTQ and AWQ models."""

    __slots__ = ()
    kind = searched_space = "vllm_moe_wna16"
    constants: ClassVar[Mapping[str, int]] = {"SPLIT_K": 1}
    baseline_space = "vllm_moe_wna16_shipped"

    @property
    def most_in_cuda(self) -> int:
        """Most tokens that vLLM runs by its kernel in CUDA instead of the one in Triton; 0 for none."""
        in_cuda = self.dtype is MoeType.INT4_W4A16 and self.group in _CUDA_GROUPS
        return _CUDA_ROWS_PER_EXPERT * self.experts // self.top_k if in_cuda else 0

    @property
    def takes_rows_unsorted(self) -> bool:
        """Whether rows are not sorted; vLLM sorts them for this kernel always."""
        return False


class SglangWna16(Wna16Layer, SglangMoe):
    """Layer that SGLang runs with its Triton kernel for GPTQ and AWQ models."""

    __slots__ = ()
    kind = searched_space = "sglang_moe_wna16"
    baseline_space = "sglang_moe_wna16_shipped"
