"""Products beside flex_attention, a user's Triton kernel, torch.cond and while_loop, for an H200 that is not here."""

from __future__ import annotations

import pytest

import gemmtune as gt
from gemmtune.engine.campaign.plan_file import read_plan
from gemmtune.engine.consumers.inductor.floor.shares import Kind
from gemmtune.engine.consumers.inductor.report.captures import products_grid
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.toolchain.releases import release_of

torch = pytest.importorskip("torch", reason="torch is not installed")
triton = pytest.importorskip("triton", reason="triton is not installed")

from torch._higher_order_ops.scan import scan  # noqa: E402 (torch is there)
from torch._higher_order_ops.while_loop import while_loop  # noqa: E402 (torch is there)
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402 (as above)
from triton import language as tl  # noqa: E402 (triton is there)

from gemmtune.engine.consumers.inductor.capture.mask_values import stated_values  # noqa: E402 (as above)

pytestmark = [pytest.mark.slow(12), pytest.mark.filterwarnings("ignore:::torch")]  # torch warns of itself

SQUARE = "bf16[64,64]"


class Attention(torch.nn.Module):
    """Projection to queries, keys and values, flex_attention of four heads, and the projection of its output."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(64, 192, bias=False), torch.nn.Linear(64, 64, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.out(flex_attention(q, k, v).transpose(1, 2).flatten(2))


@triton.jit
def double(source, target, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(target + at, tl.load(source + at) * 2)


def doubled(x, weight):
    y = x @ weight
    z = torch.empty_like(y)
    double[(4,)](y, z, block=1024)
    return z @ weight


def either(x, one, other):
    return torch.cond(x.sum() > 3, lambda a, b, _: a @ b, lambda a, _, c: a @ c, (x, one, other))


def repeated(x, weight):
    first = torch.zeros((), dtype=torch.int64, device=x.device)
    return while_loop(lambda i, _: i < 4, lambda i, y: (i + 1, y @ weight), (first, x))[1]


def captured(call, *inputs, **options):
    return gt.capture(call, *inputs, device="H200", **options)


def names(found):
    return {product.problem.name: product.count for product in found.products}


def unseen(found):
    return [(work.operation, work.reason, work.count) for work in found.unseen]


def test_flex_attention_is_a_problem_beside_its_layers():
    found = captured(Attention().bfloat16(), "bf16[2,128,64]")
    attention = "flex:forward:b2:h4:q128:kv128:d16:bf16"
    assert names(found) == {"256x192x64:bf16:nt": 1, "256x64x64:bf16:nt": 1, attention: 1}
    assert not unseen(found)
    assert found.floor.by_kind[Kind.ATTENTION] == next(x.share for x in found.floor.parts if x.name == attention) > 0
    columns = products_grid(found).columns
    assert columns["m"][columns["product"].index(attention)] == "-"


def test_flex_attention_of_an_open_length_spans_its_range(tmp_path):
    found = captured(Attention().bfloat16(), "bf16[2,s:2..2048,64]")
    (attention,) = (each for each in found.products if each.problem.kind == "flex")
    assert attention.problem.series_name == "flex:forward:b2:h4:q:kv:d16:bf16:dynamic=s"
    assert [each.size for each in attention.problems] == [128, 256, 1024, 2048]
    assert [reason.partition(",")[0] for _, reason, _ in unseen(found)] == ["its few queries are open"]
    file = tmp_path / "campaign.toml"
    file.write_text(found.to_toml())
    assert {*attention.problems} <= {*read_plan(file).problems}


def test_no_problem_states_the_values_of_an_input_that_was_made_up():
    def padded(q, lengths):
        blocks = create_block_mask(lambda b, h, i, j: j < lengths[b], 2, None, 512, 512, q.device)
        return flex_attention(q, q, q, block_mask=blocks)

    found = captured(padded, "bf16[2,4,512,16]", "int32[2]")
    assert [*names(found)] == ["flex:forward:b2:h4:q512:kv512:d16:bf16:mask=lt(kv,at(t0,b)):lengths=50.100"]


def test_a_tensor_that_does_not_count_is_none_that_a_mask_reads():
    def masked(q):
        ids = torch.arange(512, device=q.device) // 200

        def mask(b, h, i, j):
            return (i >= j) & ((ids[i] == ids[j]) | (b >= b))

        blocks = create_block_mask(mask, None, None, 512, 512, q.device)
        return flex_attention(q, q, q, block_mask=blocks)

    assert [*names(captured(masked, "bf16[2,4,512,16]"))] == ["flex:forward:b2:h4:q512:kv512:d16:bf16:mask=causal"]


def test_the_values_that_a_mask_reads_are_those_of_the_capture():
    def masked(q):
        ids = torch.arange(512, device=q.device) // 200
        lengths = torch.tensor([256, 512], device=q.device)
        causal = torch.ones(512, 512, device=q.device, dtype=torch.bool).tril()
        masks = {
            "documents": lambda b, h, i, j: ids[i] == ids[j],
            "padded": lambda b, h, i, j: j < lengths[b],
            "matrix": lambda b, h, i, j: causal[i, j],
        }
        batches = {"padded": 2}
        for name, mask in masks.items():
            q = flex_attention(q, q, q, block_mask=create_block_mask(mask, batches.get(name), None, 512, 512, q.device))
        return q

    found = captured(masked, "bf16[2,4,512,16]")
    head = "flex:forward:b2:h4:q512:kv512:d16:bf16"
    assert [*names(found)] == [
        f"{head}:mask=document:documents=200.200.112",
        f"{head}:mask=lt(kv,at(t0,b)):lengths=50.100",
        f"{head}:mask=at(t0,q,kv):seen=38.25",
    ]
    assert found.compiled == names(found)


@pytest.mark.skipif(release_of(torch.__version__) >= "2.14", reason="this torch may lower both")
@pytest.mark.parametrize("name", ["scan", "map"])
def test_a_loop_that_torch_cannot_lower_is_said_to_be_torchs_by_its_name(name):
    def looped(x, w):
        if name == "map":
            return torch._higher_order_ops.map(lambda row: row @ w, x)
        return scan(lambda state, row: (torch.tanh(state @ w + row), state.clone()), x[0].clone(), x, dim=0)[1]

    says = f"torch's own compile fails on {name}, and plain torch.compile fails alike: write the loop of {name}"
    with pytest.raises(UsageError, match=says):
        captured(looped, "fp32[8,16,64]", "fp32[64,64]")


def test_a_packed_sequence_is_refused_with_its_line_and_the_way_out():
    lstm = torch.nn.LSTM(64, 64)

    def packed(x, lengths):
        return lstm(torch.nn.utils.rnn.pack_padded_sequence(x, lengths))[0].data

    with pytest.raises(UsageError, match=r"_pack_padded_sequence.*line \d+\); it reads values .* with the GPU$"):
        captured(packed, "fp32[16,2,64]", "int64[2]%16")


def test_lengths_that_are_not_filled_in_yet_are_no_values_of_a_problem():
    attention = Flex.parse("flex:forward:b2:h4:s512:d16:mask=lt(kv,at(t0,b))")
    stated = [stated_values(attention, [torch.tensor(each)], ()) for each in ([0, 0], [0, 1], [512, 0], [9, 10**6])]
    assert [each.get("lengths") for each in stated] == [None, "0.1", "0.100", "2.100"]


def test_few_queries_whose_heads_see_other_keys_have_the_kernel_that_inductor_makes():
    def parts(q, k):
        def mask(b, h, i, j):
            return (j & 1) == h % 2

        blocks = create_block_mask(mask, None, 4, 1, 512, q.device)
        return flex_attention(q, k, k, block_mask=blocks, enable_gqa=True) + flex_attention(q, k, k, enable_gqa=True)

    found = captured(parts, "bf16[1,4,1,16]", "bf16[1,2,512,16]")
    sizes = "b1:h4:kvh2:q1:kv512:d16:bf16"
    assert {*names(found)} == {f"flex:forward:{sizes}:mask=eq(and(1,kv),mod(h,2))", f"flex:decode:{sizes}"}


def test_a_users_triton_kernel_is_named_beside_the_products():
    found = captured(doubled, SQUARE, SQUARE)
    assert names(found) == {"64x64x64:bf16:nn": 2}
    assert unseen(found) == [("triton_kernel_wrapper_mutation", "a library's kernel", 1)]


def test_both_branches_of_a_condition_count_as_run():
    found = captured(either, SQUARE, SQUARE, SQUARE)
    assert (names(found), unseen(found)) == ({"64x64x64:bf16:nn": 2}, [])


def test_the_body_of_a_loop_counts_as_run_once():
    found = captured(repeated, SQUARE, SQUARE)
    assert (names(found), unseen(found)) == ({"64x64x64:bf16:nn": 1}, [])


def test_a_region_of_several_calls_counts_each_of_them():
    @torch.compiler.nested_compile_region
    def block(x, weight):
        return torch.nn.functional.gelu(x @ weight)

    def layers(x, one, *others):
        for weight in (one, *others):
            x = block(x, weight)
        return x

    assert names(captured(layers, *[SQUARE] * 5)) == {"64x64x64:bf16:nn": 4}
    found = names(captured(layers, *[SQUARE] * 5, grad=True))
    assert (found["64x64x64:bf16:tn"], found["64x64x64:bf16:nt"]) == (4, 4)
