"""Training steps: blocks that are computed again for the gradients, and the order in which gradients are added."""

from __future__ import annotations

import pytest

import gemmtune as gt

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from torch.nn.functional import dropout, scaled_dot_product_attention  # noqa: E402 (torch is there)
from torch.utils.checkpoint import checkpoint  # noqa: E402 (torch is there)

pytestmark = [pytest.mark.slow(30), pytest.mark.filterwarnings("ignore:::torch")]  # torch warns of itself


class Checkpointed(torch.nn.Module):
    """Attention between two layers, in a block that is computed again."""

    def __init__(self, *, is_reentrant=False, of_attention=0.0, of_output=0.0):
        super().__init__()
        self.is_reentrant, self.of_attention, self.of_output = is_reentrant, of_attention, of_output
        self.qkv, self.out = (torch.nn.Linear(64, width, dtype=torch.bfloat16) for width in (192, 64))

    def block(self, x):
        q, k, v = self.qkv(x).view(2, 16, 3, 4, 16).permute(2, 0, 3, 1, 4)
        y = scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.of_attention)
        return x + dropout(self.out(y.transpose(1, 2).reshape(2, 16, 64)), self.of_output)

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=self.is_reentrant)


@pytest.mark.parametrize(
    "options", [{}, {"of_attention": 0.1}, {"of_output": 0.1}, {"is_reentrant": True, "of_attention": 0.1}]
)
def test_a_checkpointed_block_with_attention_runs_its_first_product_and_attention_twice(options):
    found = gt.capture(Checkpointed(**options), "bf16[2,16,64]", grad=True, device="H200")
    assert {product.problem.name: product.count for product in found.products} == {
        "32x192x64:bf16:nt:addmm": 2,
        "32x64x64:bf16:nt:addmm": 1,
        "32x64x64:bf16:nn": 1,
        "64x64x32:bf16:tn": 1,
        "32x64x192:bf16:nn": 1,
        "192x64x32:bf16:tn": 1,
    }
    assert {work.operation: work.count for work in found.unseen} == {
        "aten._scaled_dot_product_flash_attention.default": 2,
        "aten._scaled_dot_product_flash_attention_backward.default": 1,
    }
