"""Linear layers in fp8 with scales per block, as a serving engine runs them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from gemmtune.engine.consumers.serving.contract.layer import SCALE_BLOCK, Layer
from gemmtune.engine.records.errors import ProblemError


@dataclass(frozen=True, slots=True)
class BlockLinear(Layer):
    """Product of e4m3 activations and weights in bf16; 128×128 of a weight share a scale, as do 128 of a row."""

    letters: ClassVar[Mapping[str, str]] = {"m": "tokens", "n": "n", "k": "k"}
    form: ClassVar[str] = "write KIND:m16:n4096:k7168"

    n: int
    """Output features; at least 1."""
    k: int
    """Input features; a multiple of 128."""

    def refuse(self) -> None:
        """Refuse a k that is cut within a block of scales."""
        if self.k % SCALE_BLOCK:
            raise ProblemError(f"k={self.k} is no multiple of {SCALE_BLOCK}, the block of scales")

    @property
    def flops(self) -> int:
        """Number of arithmetic operations of the product."""
        return 2 * self.tokens * self.n * self.k

    @property
    def compute_type(self) -> str:
        """Type of the product."""
        return "fp8"

    @property
    def min_bytes(self) -> int:
        """Bytes of both operands and of the output in bf16, without the scales."""
        return self.tokens * self.k + self.n * self.k + 2 * self.tokens * self.n

    @property
    def family(self) -> Self:
        """Layer of the smallest sizes with weight 1."""
        return replace(self, tokens=1, n=1, k=SCALE_BLOCK, weight=1.0)


class VllmBlockFp8(BlockLinear):
    """Layer that vLLM runs with its Triton kernel."""

    __slots__ = ()
    kind = searched_space = "vllm_block_fp8"
    baseline_space = "vllm_block_fp8_shipped"
    baseline_words = "vLLM's present config"


class SglangBlockFp8(BlockLinear):
    """Layer that SGLang runs with its Triton kernels."""

    __slots__ = ()
    kind = searched_space = "sglang_block_fp8"
    baseline_space = "sglang_block_fp8_shipped"
    baseline_words = "SGLang's present config"
