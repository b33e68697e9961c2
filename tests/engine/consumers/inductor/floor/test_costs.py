"""Flops and bytes of captured models: counted by hand, and by torch's own counter on the meta device."""

from __future__ import annotations

import pytest

import gemmtune as gt
from gemmtune.engine.consumers.inductor.floor.shares import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from torch.nn.functional import gelu, scaled_dot_product_attention  # noqa: E402 (behind the skips)
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402 (as above)

pytestmark = pytest.mark.filterwarnings("ignore:::torch")  # torch warns of itself

M, N = 256, 512


def parts(call, *inputs, **more):
    return {part.name: part for part in gt.capture(call, *inputs, device="H200", **more).floor.parts}


def test_what_lies_between_products_moves_each_tensor_once():
    def block(x, one, two):
        normed = torch.nn.functional.rms_norm(x, (N,))
        return x * (gelu(normed @ one) @ two)

    found = parts(block, f"bf16[{M},{N}]", f"bf16[{N},{N}]", f"bf16[{N},{N}]")
    matrix = 2 * M * N
    norm, activation, gate = 2 * matrix, 2 * matrix, 3 * matrix
    assert found["everything else"].bytes == norm + activation + gate
    product = found[f"{M}x{N}x{N}:bf16:nn"]
    assert (product.runs, product.flops, product.bytes) == (2, 2 * 2 * M * N * N, 2 * (2 * matrix + 2 * N * N))


def test_a_residual_is_read_again_where_a_product_ran_in_between():
    def two_blocks(x, w):
        x = x * (gelu(x) @ w)
        return x * (gelu(x) @ w)

    found = parts(two_blocks, f"bf16[{M},{M}]", f"bf16[{M},{M}]")
    # x once, gelu(x) written; gate and gelu read two and write two; the last gate reads two and writes one
    assert found["everything else"].bytes == (2 + 4 + 3) * 2 * M * M


def test_an_embedding_reads_its_rows_and_a_cache_is_written_where_it_grows():
    def step(ids, table, cache, at):
        cache[:, at] = table[ids]
        return cache

    found = parts(step, "int64[4,1]%1000", "bf16[1000,64]", "bf16[4,128,64]", "int64[1]%128")
    row = 2 * 4 * 64
    assert 2 * row <= found["everything else"].bytes <= 3 * row + 8 * 5


@pytest.mark.parametrize(("is_causal", "pairs"), [(False, 64 * 64), (True, 64 * 65 // 2)])
def test_attention_counts_the_pairs_of_positions_that_see_each_other(is_causal, pairs):
    def attend(q, k, v):
        return scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    shape = "bf16[2,8,64,32]"
    found = parts(attend, shape, shape, shape)
    [attention] = [part for part in found.values() if part.kind is Kind.ATTENTION]
    assert attention.flops == 2 * 2 * 8 * pairs * (32 + 32)
    tensor = 2 * 2 * 8 * 64 * 32
    assert 4 * tensor <= attention.bytes <= 4 * tensor + 4 * 2 * 8 * 64 + 64  # sums in fp32, and a seed
    assert attention.reason == "a library's kernel"


def test_gradients_of_attention_take_five_products():
    shape = "bf16[2,8,64,32]"
    found = parts(scaled_dot_product_attention, shape, shape, shape, grad=True)
    one = 2 * 2 * 8 * 64 * 64 * 32
    attention = {part.name: part.flops for part in found.values() if part.kind is Kind.ATTENTION}
    assert sorted(attention.values()) == [2 * one, 5 * one]


def test_a_kernel_of_a_user_has_bytes_and_no_flops():
    with torch.library._scoped_library("gemmtune_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CUDA")
        library.impl("twice", torch.empty_like, "Meta")
        floor = gt.capture(torch.ops.gemmtune_test.twice, "bf16[256,256]", device="H200").floor
    [part] = [each for each in floor.parts if each.kind is Kind.LIBRARY]
    assert (part.flops, part.bytes) == (None, 2 * 2 * 256 * 256)
    assert floor.unknown == ["the flops of gemmtune_test.twice.default"]


def test_a_product_without_a_row_and_one_behind_a_graph_break_have_their_costs():
    def broken(x, w):
        y = x @ w
        torch._dynamo.graph_break()
        return y.double() @ w.double()

    found = parts(broken, "fp32[64,32]", "fp32[32,32]")
    double = next(part for part in found.values() if part.reason and part.kind is Kind.PRODUCT)
    assert double.flops == 2 * 64 * 32 * 32
    assert double.bytes == 8 * (64 * 32 * 2 + 32 * 32)


class Net(torch.nn.Module):
    """A convolution, attention by products and a feed-forward layer."""

    def __init__(self):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 64, 4, stride=4, bias=False)
        self.qkv, self.out = torch.nn.Linear(64, 192, bias=False), torch.nn.Linear(64, 64, bias=False)
        self.up, self.down = torch.nn.Linear(64, 256, bias=False), torch.nn.Linear(256, 64, bias=False)

    def forward(self, pictures):
        x = self.patches(pictures).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(x).view(2, 64, 3, 4, 16).permute(2, 0, 3, 1, 4)
        x = x + self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 64, 64))
        return x + self.down(gelu(self.up(x)))


def test_the_flops_of_a_model_are_those_that_torch_counts():
    floor = gt.capture(Net().bfloat16(), "bf16[2,3,32,32]", device="H200").floor
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        Net().bfloat16()(torch.empty(2, 3, 32, 32, dtype=torch.bfloat16))
    assert sum(part.flops for part in floor.parts) == counter.get_total_flops()
    assert not floor.unknown


def test_calls_add_up_by_their_weights():
    one = gt.capture(torch.nn.Linear(64, 64), "fp32[64,64]", device="H200")
    three = gt.capture(torch.nn.Linear(64, 64), calls=["weight=3 fp32[64,64]"], device="H200")
    assert three.floor.total_ns == pytest.approx(3 * one.floor.total_ns)
    [call] = three.calls
    assert (call.floor_ns, call.servable) == (one.floor.total_ns, pytest.approx(one.floor.servable))
