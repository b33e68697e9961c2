"""Products of small models for an H200 that is not here, against Inductor's own counters."""

from __future__ import annotations

import gc
import logging
import sys
import tomllib
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

import gemmtune as gt
from gemmtune.engine.consumers.inductor.floor.shares import Kind
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.toolchain.releases import release_of

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from torch._dynamo.utils import counters  # noqa: E402 (torch is there)
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

pytestmark = [pytest.mark.slow(30), pytest.mark.filterwarnings("ignore:::torch")]  # torch warns of itself


@pytest.fixture(autouse=True)
def models(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    yield
    sys.modules.pop("models", None)


@pytest.fixture(autouse=True, scope="module")
def _collector_as_before():
    """Check once that captures leave Python's search for cycles alone: counting a million objects takes 0.1 s."""
    before = gc.get_threshold()
    yield
    assert (gc.isenabled(), gc.get_threshold()) == (True, before)
    assert gc.get_freeze_count(), "a capture has thawed what conftest.py froze"


def captured(call, *inputs, **options):
    counters.clear()
    return gt.capture(call, *inputs, device="H200", **options)


def names(found):
    return {product.problem.name: product.count for product in found.products}


def lowered():
    """Products that Inductor counted: sizes without the layouts."""
    return Counter({key.split(".")[1]: number for key, number in counters["aten_mm_info"].items()})


def sizes(found):
    """Keys of Inductor's counters for captured products."""
    keys = Counter()
    for product in found.products:
        p = product.problem
        batch = f"{p.batch}_" if p.op == "bmm" else ""
        keys[f"{p.op}_{batch}{p.m}_{p.n}_{p.k}"] += int(product.count)
    return keys


def test_forward_of_an_mlp_is_what_inductor_lowers():
    found = captured("models:mlp", "bf16[16,256]")
    assert names(found) == {"16x1024x256:bf16:nt": 1, "16x256x1024:bf16:nt:addmm": 1}
    assert sizes(found) == lowered()
    assert [dict(product.epilogues) for product in found.products] == [{"gelu_tanh": 1}, {"add(matrix)": 1}]


def test_backward_of_a_block_is_what_inductor_lowers():
    found = captured("models:block", "bf16[2,8,256]", grad=True)
    assert sizes(found) == lowered()
    assert sum(sizes(found).values()) == 3 * 6  # each of six layers has a product forward and two backward
    assert "16x256x256:bf16:nt" in names(found)
    assert "256x256x16:bf16:tn" in names(found)
    assert any("flash_attention" in work.operation for work in found.unseen)


def test_a_whole_step_with_its_optimizer_has_the_products_of_both_passes():
    found = captured("models:WholeStep", "bf16[16,64]", grad=True)
    assert names(found) == {"16x32x64:bf16:nt:addmm": 1, "16x64x32:bf16:nn": 1, "32x64x16:bf16:tn": 1}


def test_a_large_product_whose_rows_are_not_aligned_is_padded():
    assert names(captured("models:head", "bf16[4096,512]")) == {"4096x1008x512:bf16:nt:addmm": 1}
    assert names(captured("models:head", "bf16[16,512]")) == {"16x1001x512:bf16:nt:addmm": 1}


def test_a_shared_weight_stays_shared_when_its_type_changes():
    found = captured("models:tied", "int64[32]%128", grad=True)
    assert "128x64x32:bf16:tn:addmm:bias=matrix" in names(found)  # the sum of both gradients


def test_code_that_runs_often_is_compiled_once():
    found = captured("models:apart", "bf16[16,64]")
    assert names(found) == {"16x128x64:bf16:nt": 2, "16x64x128:bf16:nt:addmm": 2}
    assert [*found.compiled.values()] == [1, 1]


def test_a_capture_leaves_nothing_to_the_next():
    found = [names(captured(torch.matmul, f"bf16[{m},256]", "bf16[256,128]")) for m in (16, 32)]
    assert found == [{"16x128x256:bf16:nn": 1}, {"32x128x256:bf16:nn": 1}]  # torch remembers m, and would open it


MANY_CALLS = """
import gc
import torch
import gemmtune as gt

def layer():
    return torch.nn.Linear(64, 64)

gc.set_threshold(700)  # Python's own
rows = range(8, 72, 8)
found = gt.capture("__main__:layer", calls=[f"fp32[{m},64]" for m in rows], device="H200")
print(len(found.products))
"""


@pytest.mark.slow(5, together="probes")
def test_a_model_of_many_calls_is_freed_while_python_searches_for_no_cycles(probe, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(MANY_CALLS)
    done = probe(program, tmp_path)
    assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr  # Python 3.11 would crash: -11


def test_attention_with_an_expanded_mask_is_products_as_on_a_gpu():
    found = captured("models:expanded_mask", "bf16[1,2,16,64]")
    assert names(found) == {"2x16x16x64:fp32:nn:bmm": 1, "2x16x64x16:fp32:nn:bmm": 1}
    found = captured("models:copied_mask", "bf16[1,2,16,64]")
    assert names(found) == {}
    attention = f"aten._scaled_dot_product_efficient_attention.default{'×'.join(['[1, 2, 16, 64]'] * 3)}"
    assert [work.operation for work in found.unseen] == [attention]


def test_a_sum_of_two_gradients_is_two_products_as_without_a_table():
    found = captured("models:gated", "bf16[16,64]", grad=True)
    sums = {"16x64x128:bf16:nn": 1, "16x64x128:bf16:nn:addmm:bias=matrix": 1}
    assert names(found) == {"16x128x64:bf16:nt": 2, "128x64x16:bf16:tn": 2, **sums}
    assert not found.unseen


def ends(x, rows=16):
    return torch.arange(1, 5, device=x.device, dtype=torch.int32) * rows


GROUPS = ("bf16[64,256]", "bf16[4,256,96]")


def experts(x, gate, weights):
    return torch._grouped_mm(torch.relu(x @ gate), weights.transpose(1, 2), offs=ends(x), out_dtype=torch.bfloat16)


def scaled_weights(x, weights, one, other):
    x, weights = x.to(torch.float8_e4m3fn), weights.to(torch.float8_e4m3fn).t()
    return torch._scaled_grouped_mm(x, weights, one, other, offs=ends(x), out_dtype=torch.bfloat16)


def looped_experts(x, weights):
    chosen = (x @ weights[0]).argmax(-1)
    return sum(x.index_select(0, torch.where(chosen == each)[0]) @ weights[each] for each in range(4))


def test_grouped_products_are_problems_in_forward_and_backward_with_a_share_of_the_floor():
    forward, of_input = "grouped:rows:m64:g4:n96:k256:bf16:nt", "grouped:rows:m64:g4:n256:k96:bf16:nn"
    of_weight = "grouped:inner:m96:g4:n256:k64:bf16:tn"
    for grad, grouped in ((False, {forward}), (True, {forward, of_input, of_weight})):
        found = captured(experts, "bf16[64,256]", "bf16[256,256]", "bf16[4,96,256]", grad=grad)
        assert {name for name in names(found) if name.startswith("grouped")} == grouped
        assert {found.compiled[name] for name in grouped} == {1}
        assert not found.unseen
        assert found.floor.by_kind[Kind.PRODUCT] > 0.5
    text = found.to_toml()
    assert "No capture knows how rows spread over groups" in text
    for table in tomllib.loads(text)["problem"]:
        if table.pop("kind", "") == "grouped":
            assert table.pop("weight") == 1
            assert Grouped.from_fields({name: str(value) for name, value in table.items()}).name in grouped


def attended(x, ids):
    q, k, v = x.unflatten(-1, (8, 64)).transpose(1, 2).split((4, 2, 2), 1)

    def mask(b, h, i, j):
        return (i >= j) & (ids[i] == ids[j])

    blocks = create_block_mask(mask, None, None, 256, 256, device=x.device)
    return flex_attention(q.contiguous(), k, v, block_mask=blocks, enable_gqa=True)


def test_attention_is_a_problem_by_its_mask_in_forward_and_backward():
    sizes = "b2:h4:kvh2:q256:kv256:d64:bf16:mask=causal_document:documents=8"
    forward, backward = f"flex:forward:{sizes}", f"flex:backward:{sizes}"
    for grad, expected in ((False, {forward}), (True, {forward, backward})):
        found = captured(attended, "bf16[2,256,512]", "int64[256]", grad=grad)
        assert set(names(found)) == expected
        assert not found.unseen
        assert found.floor.by_kind[Kind.ATTENTION] > 0.1
    for table in tomllib.loads(found.to_toml())["problem"]:
        assert (table.pop("kind"), table.pop("weight")) == ("flex", 1)
        assert Flex.from_fields({name: str(value) for name, value in table.items()}).name in (forward, backward)


@pytest.mark.parametrize(("rows", "fast"), [("64", False), ("tokens:16..512", True)])
def test_grouped_products_with_scales_are_problems_with_fixed_and_open_rows(rows, fast):
    def call(x, weights, one, other):
        x, weights = x.to(torch.float8_e4m3fn), weights.to(torch.float8_e4m3fn).transpose(1, 2)
        return torch._scaled_grouped_mm(x, weights, one, other, offs=ends(x), use_fast_accum=fast)

    found = captured(call, f"bf16[{rows},256]", "bf16[4,96,256]", f"fp32[{rows}]", "fp32[4,96]")
    scales = "epilogue=mul(column[fp32]).mul(row[fp32])" + ":accumulation=exact" * (not fast)
    sizes = (16, 64, 256, 512) if fast else (64,)
    assert {problem.name for problem in found.problems} == {
        f"grouped:rows:m{m}:g4:n96:k256:e4m3:nt:{scales}" for m in sizes
    }
    assert not found.unseen
    for table in tomllib.loads(found.to_toml())["problem"]:
        assert table["epilogue"] == "mul(column[fp32]).mul(row[fp32])"


@pytest.mark.skipif(release_of(torch.__version__) < "2.13", reason="Dynamo breaks the graph at the operator")
@pytest.mark.parametrize(("recipes", "is_problem"), [((1, 1), True), ((1, 0), False), ((3, 3), False)])
def test_products_of_the_second_operator_are_problems_if_their_scales_are_per_row(recipes, is_problem):
    def call(x, weights, one, other):
        x, weights = x.to(torch.float8_e4m3fn), weights.to(torch.float8_e4m3fn).transpose(1, 2)
        of_x, of_weights = ([each] for each in recipes)
        return torch._scaled_grouped_mm_v2(x, weights, [one], of_x, [], [other], of_weights, [], ends(x), None, None)

    found = captured(call, "bf16[64,256]", "bf16[4,96,256]", "fp32[64]", "fp32[4,96]")
    scaled = {"grouped:rows:m64:g4:n96:k256:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32]):accumulation=exact"}
    assert {problem.name for problem in found.problems} == (scaled if is_problem else set())
    reasons = [] if is_problem else ["with other scales than one in fp32 per row of A, and per group and column of B"]
    assert [work.reason.partition("[4, 256, 96] ")[2] for work in found.unseen] == reasons
    assert is_problem or found.unseen[0].operation.startswith("aten._scaled_grouped_mm_v2.default")


def test_open_rows_of_grouped_products_have_their_range():
    def call(x, weights):
        return torch._grouped_mm(x.repeat_interleave(2, 0), weights, offs=ends(x))

    (product,) = captured(call, "bf16[tokens:16..512,256]", "bf16[4,256,96]").products
    assert (product.first, product.last, product.step) == (32, 1024, 2)
    assert {problem.name for problem in product.problems} == {
        f"grouped:rows:m{m}:g4:n96:k256:bf16:nn" for m in (32, 64, 256, 1024)
    }


@pytest.mark.parametrize(
    ("call", "inputs", "reason"),
    [
        (scaled_weights, ("bf16[64,256]", "bf16[96,256]", "fp32[256]", "fp32[384]"), "other scales than one in fp32"),
        (torch._grouped_mm, ("bf16[4,64,256]", "bf16[4,256,96]"), "×[4, 256, 96] of 3 by 3 dimensions; torch.bmm"),
        (lambda x, w: torch._grouped_mm(x[:, :64], w, offs=ends(x)), ("bf16[64,256]", "bf16[4,64,96]"), "not dense"),
        (
            lambda x, w: torch._grouped_mm(x.t(), w, offs=ends(x)),
            ("bf16[256,64]", "bf16[4,256,96]"),
            "[64, 256]×[4, 256, 96] of rows in tn, but in nn or nt",
        ),
        (
            lambda a, b: torch._grouped_mm(a, b, offs=ends(a)),
            ("bf16[96,64]", "bf16[64,256]"),
            "of inner in nn, but in tn",
        ),
    ],
    ids=["scales", "batch", "view", "columns", "rows"],
)
def test_a_grouped_product_that_no_row_serves_has_its_reason(call, inputs, reason):
    found = captured(call, *inputs)
    assert not found.products
    (work,) = found.unseen
    assert "grouped_mm" in work.operation
    assert reason in work.reason


@pytest.mark.parametrize("device", ["A100-80GB", "RTX-5090"])
def test_grouped_products_are_none_of_a_gpu_on_which_torch_loops_over_groups(device):
    found = gt.capture(lambda x, w: torch._grouped_mm(x, w, offs=ends(x)), *GROUPS, device=device)
    assert [work.reason.partition("no row serves ")[2] for work in found.unseen] == [
        f"grouped products [64, 256]×[4, 256, 96] on {catalogue.device(device).name}"
    ]
    assert not found.products


def test_rows_that_depend_on_values_are_within_the_bounds_of_the_model():
    def call(x, w, counts):
        few = x.narrow(0, 0, counts.sum().item())
        return torch._grouped_mm(few, w, offs=counts.cumsum(0, dtype=torch.int32))

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        found = captured(call, *GROUPS, "int64[4]%16")
    (product,) = found.products
    assert (product.problem.m, product.first, product.last) == (64, 2, 64)
    assert found.floor.total_ns < 200  # of 64 rows


def test_an_expanded_gradient_is_refused_with_the_way_to_a_dense_one():
    def call(x, w):
        return torch._grouped_mm(x, w, offs=ends(x))

    with pytest.raises(UsageError, match=r"gradient of \.sum\(\): return the product, or"):
        captured(lambda x, w: call(x, w).sum(), *GROUPS, grad=True)
    assert len(captured(call, *GROUPS, grad=True).products) == 3


def test_a_loop_over_experts_is_refused_with_the_way_to_grouped_products():
    with pytest.raises(UsageError, match="grouped_mm on all rows, in transformers by experts_implementation="):
        captured(looped_experts, "bf16[64,256]", "bf16[4,256,256]")


def test_a_layer_on_its_fast_path_is_named_with_the_way_to_its_products(monkeypatch):
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).bfloat16()
    (work,) = captured(layer, "bf16[2,16,64]").unseen
    assert work.operation == "aten._transformer_encoder_layer_fwd.default"
    assert "torch.backends.mha.set_fastpath_enabled(False)" in work.reason
    monkeypatch.setattr(torch.backends.mha, "_is_fastpath_enabled", False)
    assert len(names(captured(layer, "bf16[2,16,64]"))) == 4


def in_another_float8(a, b):
    one = torch.ones((), device=a.device)
    return torch._scaled_mm(a.to(torch.float8_e4m3fnuz), b.to(torch.float8_e4m3fnuz).t(), one, one)


SQUARE = "[16, 16]"


@pytest.mark.parametrize(
    ("call", "inputs", "operation"),
    [
        (lambda a, b: torch.addbmm(a, b, b), ("bf16[16,16]", "bf16[2,16,16]"), f"addbmm.default{SQUARE}×[2, 16, 16]"),
        (torch.nn.functional.bilinear, ("bf16[8,16]", "bf16[8,16]", "bf16[32,16,16]"), "_trilinear.default"),
        (
            lambda a, b: torch.complex(a, a) @ torch.complex(b, b),
            ("fp32[8,16]", "fp32[16,4]"),
            "mm.default[8, 16]×[16, 4]",
        ),
        pytest.param(
            *(in_another_float8, ("bf16[16,16]", "bf16[16,16]"), f"_scaled_mm.default{SQUARE}×{SQUARE}"),
            marks=pytest.mark.skipif(release_of(torch.__version__) < "2.13", reason="this torch lowers it"),
        ),
    ],
)
def test_a_product_that_inductor_leaves_to_a_library_is_named(call, inputs, operation):
    found = captured(call, *inputs)
    assert (names(found), [work.operation for work in found.unseen]) == ({}, [f"aten.{operation}"])


@pytest.mark.parametrize(
    ("call", "inputs", "reason"),
    [
        (partial(torch.baddbmm, alpha=0), ("bf16[2,8,32]", "bf16[2,8,16]", "bf16[2,16,32]"), "alpha is 0"),
        (torch.baddbmm, ("bf16[2,8,1]", "bf16[2,8,16]", "bf16[2,16,32]"), "sizes 2x8x1 and strides 8x1x1, is neither"),
        (lambda a, b: a.unfold(1, 16, 8) @ b, ("bf16[2,72]", "bf16[2,16,32]"), "strides 72x8x1 is neither row-major"),
        (lambda a, b: a[:, :, 1:17] @ b, ("bf16[2,8,32]", "bf16[2,16,32]"), "begins at no multiple of 16 bytes"),
    ],
)
def test_a_product_without_a_row_has_its_sizes_in_the_reason(call, inputs, reason):
    (work,) = captured(call, *inputs).unseen
    assert reason in work.reason
    assert work.reason.endswith(", in a product of 2x8x32x16")


@pytest.mark.parametrize(
    ("call", "inputs", "name"),
    [
        (lambda h, w: h[:, -1] @ w, ("bf16[8,128,512]", "bf16[512,320]"), "8x320x512:bf16:nn:lda=65536"),
        (lambda x, w: x[:, :48] @ w, ("bf16[64,80]", "bf16[48,96]"), "64x96x48:bf16:nn:lda=80"),
        (lambda x, w: x @ w[:, 16:].t(), ("bf16[64,32]", "bf16[96,48]"), "64x96x32:bf16:nt:ldb=48"),
        (
            lambda x, w: x.split(48, -1)[0] @ w,
            ("bf16[8,64,80]", "bf16[48,96]"),
            "8x64x96x48:bf16:nn:bmm:lda=80:batch_stride_b=0",
        ),
        (
            lambda q, k: q[0].transpose(0, 1) @ k,
            ("bf16[1,64,4,32]", "bf16[4,32,16]"),
            "4x64x16x32:bf16:nn:bmm:lda=128:batch_stride_a=32",
        ),
        (lambda x, y: x[:, :16] @ y, ("bf16[4,40,32]", "bf16[4,32,48]"), "4x16x48x32:bf16:nn:bmm:batch_stride_a=1280"),
        (
            lambda a, b: torch.bmm(a.expand(4, 16, 32), b),
            ("bf16[16,32]", "bf16[4,32,48]"),
            "4x16x48x32:bf16:nn:bmm:batch_stride_a=0",
        ),
        (
            lambda c, a, b: c.addmm(a, b, alpha=2),
            ("bf16[8,32]", "bf16[8,16]", "bf16[16,32]"),
            "8x32x16:bf16:nn:addmm:bias=matrix:alpha=2",
        ),
        (partial(torch.addmm, beta=0.1), ("bf16[32]", "bf16[8,16]", "bf16[16,32]"), "8x32x16:bf16:nn:addmm:beta=0.1"),
        (torch.baddbmm, ("bf16[2,8,32]", "bf16[2,8,16]", "bf16[2,16,32]"), "2x8x32x16:bf16:nn:baddbmm"),
        (
            partial(torch.baddbmm, alpha=0.125),
            ("bf16[8,32]", "bf16[2,8,16]", "bf16[2,16,32]"),
            "2x8x32x16:bf16:nn:baddbmm:bias=matrix:alpha=0.125",
        ),
        (
            lambda q, k: torch.baddbmm(q.new_empty(2, 8, 32), q, k, beta=0, alpha=0.25),
            ("bf16[2,8,16]", "bf16[2,16,32]"),
            "2x8x32x16:bf16:nn:baddbmm:alpha=0.25:beta=0",
        ),
        (torch.baddbmm, ("bf16[2,1,32]", "bf16[2,8,16]", "bf16[2,16,32]"), "2x8x32x16:bf16:nn:baddbmm:bias=vectors"),
        (partial(torch.mm, out_dtype=torch.float32), ("fp16[8,16]", "fp16[16,32]"), "8x32x16:fp16:nn:out_dtype=fp32"),
        (
            partial(torch.bmm, out_dtype=torch.float32),
            ("bf16[2,8,16]", "bf16[2,16,32]"),
            "2x8x32x16:bf16:nn:bmm:out_dtype=fp32",
        ),
    ],
)
def test_views_scalars_and_biases_of_a_batch_are_parts_of_the_problem(call, inputs, name):
    found = captured(call, *inputs)
    assert (names(found), found.unseen) == ({name: 1}, [])
    assert found.problems[0].name == name


def test_the_gate_of_a_sample_is_an_operand_of_the_epilogue():
    def call(x, o, w, shifts):
        return x + shifts.chunk(6, -1)[2][:, None] * (o @ w)

    found = captured(call, "bf16[2,64,32]", "bf16[2,64,48]", "bf16[48,32]", "bf16[2,192]")
    (problem,) = found.problems
    if torch.__version__.startswith("2.11."):
        assert problem.name == "128x32x48:bf16:nn"  # it fuses no gate
        return
    assert problem.name == "128x32x48:bf16:nn:epilogue=mul(gate[64]).add(matrix)"
    assert gt.Problem.parse(problem.name) == problem


def test_a_convolution_in_a_branch_is_named():
    filters = torch.nn.functional.conv2d
    found = captured(
        lambda x, w: torch.cond(x.sum() > 3, lambda y, v: filters(y, v, padding=1), lambda y, _: y.sin(), (x, w)),
        *("bf16[1,16,8,8]", "bf16[16,16,3,3]"),
    )
    assert [work.operation for work in found.unseen] == ["aten.convolution.default"]


def test_an_empty_product_is_no_problem_beside_others():
    found = captured(lambda a, b: (a[:0] @ b, a @ b, a[:, :0] @ b[:0]), "bf16[8,16]", "bf16[16,32]")
    assert names(found) == {"8x32x16:bf16:nn": 1}
    assert [(work.operation, work.reason) for work in found.unseen] == [
        ("mm", "it is empty, in a product of 0x32x16"),
        ("mm", "it is empty, in a product of 8x32x0"),
    ]


def test_a_product_of_one_row_is_no_sum_where_the_process_tunes_by_coordinate_descent():
    with torch._inductor.config.patch(coordinate_descent_tuning=True):  # as torchao leaves it
        assert names(captured(torch.mm, "bf16[1,256]", "bf16[256,64]")) == {"1x64x256:bf16:nn": 1}


def test_an_open_m_has_its_range_and_products_of_its_own_at_one():
    found = captured("models:mlp", "bf16[m:1..512,256]")
    up = found.products[0]
    assert up.problem.dynamic_m
    assert (up.first, up.last, up.count) == (2, 512, 1)
    assert "1x1024x256:bf16:nt" in names(found)


def test_an_open_batch_is_listed_at_sizes_of_its_range_that_share_its_run():
    found = captured(torch.bmm, "bf16[b:2..64,16,64]", "bf16[b:2..64,64,32]")
    assert names(found) == {f"{batch}x16x32x64:bf16:nn:bmm": 0.25 for batch in (2, 4, 16, 64)}
    assert not found.unseen


def test_an_open_m_of_a_batch_has_its_range():
    (product,) = captured(torch.bmm, "bf16[4,m:2..64,64]", "bf16[4,64,32]").products
    assert product.problem.name.endswith("x32x64:bf16:nn:bmm:dynamic_m=true")
    assert (product.first, product.last) == (2, 64)


def test_the_last_tokens_of_open_prompts_are_a_product_with_the_strides_seen_first():
    found = captured(lambda h, w: h[:, -1] @ w, "bf16[8,t:16..512,512]", "bf16[512,320]")
    assert names(found) == {"8x320x512:bf16:nn:lda=40960": 1}  # of 80 tokens


def test_a_convolution_of_1x1_is_a_product_and_no_other_work():
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(16, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 8, 1), torch.nn.ReLU()
    )
    found = captured(layers, "fp32[2,16,10,10]")
    assert names(found) == {"128x8x32:fp32:nt:addmm": 1}
    assert [(work.operation, work.count) for work in found.unseen] == [("aten.convolution.default", 1)]


def test_an_open_size_keeps_the_epilogues_behind_views():
    found = captured("models:mlp", "bf16[2,t:2..512,256]")
    assert [product.epilogues for product in found.products] == [(("gelu_tanh", 1),), (("add(matrix)", 1),)]


@pytest.mark.parametrize("product", [torch.bmm, lambda a, b: torch.einsum("ecd,edf->ecf", a, b)])
def test_a_batched_product_has_the_epilogue_behind_it(product):
    found = captured(lambda a, b, c: (product(a, b) + c).relu(), "bf16[4,64,128]", "bf16[4,128,96]", "bf16[96]")
    assert names(found) == {"4x64x96x128:bf16:nn:bmm": 1}
    assert found.products[0].epilogues == (("add(row).relu", 1),)


def test_products_outside_of_graphs_are_counted_and_named():
    found = captured("models:broken", "bf16[64,64]")
    assert names(found) == {"64x64x64:bf16:nn": 2}
    assert [(work.operation, work.count) for work in found.unseen] == [("aten.mm[64, 64]×[64, 64]", 1)]


def test_a_function_of_a_model_on_the_cpu_gets_tensors_without_data_and_its_own_back():
    found = captured("models:by_function", "fp32[8,64]")
    assert names(found) == {"8x128x64:fp32:nt": 1, "8x64x128:fp32:nt": 1}
    weights = sys.modules["models"].WEIGHTS
    assert {parameter.device.type for parameter in weights.parameters()} == {"cpu"}
    assert torch.isfinite(weights(torch.randn(8, 64))).all()


def test_tensors_describe_inputs_and_dynamic_opens_their_sizes():
    layer = torch.nn.Linear(64, 96)
    found = captured(layer, torch.randn(8, 64), dynamic={(0, 0): (2, 128)})
    (product,) = found.products
    assert (product.problem.dynamic_m, product.first, product.last) == (True, 2, 128)


def test_a_model_may_read_values_of_small_tensors_on_the_cpu():
    found = captured("models:reads_the_cpu", "bf16[16,64]")
    assert names(found) == {"16x128x64:bf16:nt:addmm": 1, "16x64x128:bf16:nt:addmm": 1}


def test_a_builder_may_read_values_of_small_tensors_that_it_makes():
    found = captured("models:reads_what_it_makes", "bf16[16,64]")
    assert names(found) == {"16x64x64:bf16:nt:addmm": 1}
    assert found.products[0].epilogues == (("mul(0.5)", 1),)


def test_a_builder_may_draw_large_weights_until_they_are_in_bounds():
    found = captured("models:draws_until_it_fits", "bf16[16,2048]")
    assert names(found) == {"16x1024x2048:bf16:nt": 1}


def test_a_builder_that_reads_a_large_tensor_or_fails_is_refused_with_its_line_and_the_way_out():
    with pytest.raises(UsageError, match=r"models.py, line \d+\); .* build it as its module is imported"):
        captured("models:reads_what_is_large", "bf16[16,64]")
    with pytest.raises(UsageError, match=r"builds no model: ValueError: no such model \(.*models.py, line \d+\)$"):
        captured("models:fails_as_built", "bf16[16,64]")


@pytest.mark.parametrize("given", ["bf16[16,31]", "int64[16,33]"])
def test_torch_logs_no_error_that_the_refusal_has(given, capfd):
    with pytest.raises(UsageError, match="the callable fails: "):
        captured(torch.nn.Linear(32, 32).bfloat16(), given)
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(
    not hasattr(sys.modules[create_block_mask.__module__], "AuxRequest"), reason="this torch has no AuxRequest"
)
def test_attention_that_returns_max_scores_says_so():
    found = captured("models:asks_for_max_scores", "bf16[1,1,256,64]")
    (work,) = found.unseen
    assert work.reason == "its AuxRequest asks for max_scores, which no row's kernel stores"


@pytest.mark.skipif(release_of(torch.__version__) >= "2.14", reason="this torch lowers both")
@pytest.mark.parametrize("name", ["scaled_by_an_element", "blocks_that_no_tile_divides"])
def test_a_node_that_torch_cannot_lower_is_said_to_be_torchs(name):
    with pytest.raises(UsageError, match=r"models.py, line \d+\); torch's own compile fails there, and plain"):
        captured(f"models:{name}", "bf16[1,1,256,64]")


def test_inputs_that_do_not_fit_are_refused_in_the_models_own_words():
    with pytest.raises(UsageError, match=r"RuntimeError: Given normalized_shape=\[256\], expected input"):
        captured("models:mlp", "bf16[16,255]")
    way = "did you mean hidden[?] it takes hidden, w; inputs given: hiden=bf16"
    with pytest.raises(UsageError, match=way):
        gt.capture(lambda hidden, w: hidden @ w, "hiden=bf16[2,4]", "w=bf16[4,8]", device="H200")
    with pytest.raises(UsageError, match="no input is named: add --input"):
        captured("models:mlp")


@pytest.mark.skipif(release_of(torch.__version__) < "2.12", reason="this torch runs it outside of graphs")
def test_a_model_that_torch_does_not_compile_is_refused_in_its_words():
    with pytest.raises(UsageError, match=r"does not support compiling torch\.jit\.script"):
        captured(torch.jit.script(torch.nn.Linear(8, 8)), "fp32[8,8]")


def test_a_model_that_reads_values_is_refused_with_the_way_out():
    with pytest.raises(UsageError, match="capture it on a machine with the GPU"):
        captured("models:reads_a_value", "bf16[64,64]")


def mismatched(x):
    return x @ x.new_zeros(33, 4)


def of_two_types(x):
    return x @ torch.zeros(64, 4, device=x.device)


def sparse(x):
    return x.to_sparse() @ x


NUMBERS_ARE_NO_DEVICES = pytest.mark.skipif(
    torch.version.cuda is not None, reason="a torch built for CUDA takes a number for a device"
)


def moved_by_number(x):
    return x.to(0) @ x


@pytest.mark.parametrize(
    ("call", "reason", "way"),
    [
        (mismatched, "RuntimeError", ""),
        (of_two_types, "float32", "one type"),
        (sparse, r"aten\._to_sparse\.default has no rule .* machine with the GPU", ""),
        pytest.param(moved_by_number, "no", "name it 'cuda'", marks=NUMBERS_ARE_NO_DEVICES),
    ],
)
def test_a_refusal_names_the_line_of_the_users_code(call, reason, way):
    line = call.__code__.co_firstlineno + 1
    with pytest.raises(UsageError, match=rf"{reason}.*test_capture.py, line {line}\).*{way}"):
        captured(call, "bf16[64,64]")


def test_a_model_and_an_input_of_two_types_are_refused_as_eager_does():
    layer = torch.nn.Linear(32, 32).bfloat16()
    with pytest.raises(UsageError, match=r"operands bfloat16\[32\] and float32\[16, 32\] and bfloat16.*one type"):
        captured(layer, "fp32[16,32]")


def test_a_model_under_autocast_takes_an_input_of_another_type():
    layer = torch.nn.Linear(32, 32)

    def call(x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return layer(x)

    assert names(captured(call, "fp32[16,32]")) == {"16x32x32:bf16:nt:addmm": 1}


def test_a_capture_does_not_depend_on_what_was_compiled_before():
    def product(x, w):
        return x @ w

    w = torch.zeros(64, 64)
    compiled = torch.compile(product, backend="eager")
    for m in (8, 16):  # the second size makes m dynamic
        compiled(torch.zeros(m, 64), w)
    assert names(captured(product, "bf16[32,64]", "bf16[64,64]")) == {"32x64x64:bf16:nn": 1}


def test_a_capture_leaves_warnings_and_the_logs_of_others_as_they_were(monkeypatch, tmp_path, caplog):
    (tmp_path / "loud.py").write_text(
        "import logging\nimport torch\n\n"
        "def build():\n"
        "    logging.getLogger('mine').error('heard', exc_info=ValueError('x'))\n"
        "    return torch.nn.Linear(64, 64).bfloat16()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    logging.getLogger("mine")
    before = [*warnings.filters]
    captured("loud:build", "bf16[16,64]")
    assert [each for each in caplog.messages if "heard" in each] == ["heard"]
    assert warnings.filters == before
    monkeypatch.setattr(logging.getLogger("torch._dynamo"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("torch"), "propagate", True)
    logging.getLogger("torch._dynamo").error("heard again", exc_info=ValueError("x"))
    assert caplog.messages[-1] == "heard again"
