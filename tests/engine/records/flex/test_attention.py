"""Texts of attention: canonical names, equal functions, and what is refused."""

from __future__ import annotations

import re
import tracemalloc

import pytest

from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.flex.attention_text import with_length
from gemmtune.engine.records.flex.functions import parse_function, text_of
from gemmtune.engine.records.flex.masks import function_of, lengths_of, short
from gemmtune.engine.records.flex.tensors import Holds, coverage, tensors_of
from gemmtune.engine.seams.kinds import expand_workloads, workload_of

HEAD = "flex:forward:b2:h32:kvh8:s4096:d128"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (HEAD, "flex:forward:b2:h32:kvh8:q4096:kv4096:d128:bf16"),
        (f"{HEAD}:fp16:mask=ge(q,kv)", "flex:forward:b2:h32:kvh8:q4096:kv4096:d128:fp16:mask=causal"),
        (
            "flex:decode:b1:h8:kvh8:q1:kv512:d64:dv32:score=softcap(50.0)",
            "flex:decode:b1:h8:q1:kv512:d64:dv32:bf16:score=softcap(50)",
        ),
        (
            f"{HEAD}:mask=document:block=64",
            "flex:forward:b2:h32:kvh8:q4096:kv4096:d128:bf16:mask=document:documents=8:block=64x64",
        ),
    ],
)
def test_a_text_has_one_canonical_name(written, name):
    found = Flex.parse(written)
    assert found.name == name
    assert Flex.parse(name) == found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("and(ge(q,kv),gt(kv,sub(q,1024)))", "window(1024)"),
        ("and(1,and(le(sub(q,kv),1023),le(kv,q)))", "window(1024)"),
        ("or(lt(kv,64),ge(q,kv))", "prefix(64)"),
        ("and(ge(q,kv),eq(at(t0,q),at(t0,kv)))", "causal_document"),
        ("mul(50,tanh(div(s,50)))", "softcap(50)"),
        ("ne(kv,7)", "ne(7,kv)"),
        ("not(gt(kv,q))", "causal"),
        ("not(eq(kv,7))", "ne(7,kv)"),
        ("where(le(0,abs(-1)),le(kv,q),0)", "causal"),
        ("or(lt(kv,2),not(le(0,mul(2,exp(1)))))", "le(kv,1)"),
        ("mul(s,sqrt(4))", "mul(2,s)"),
        ("maximum(s,-1)", "maximum(-1,s)"),
    ],
)
def test_functions_that_differ_in_their_spelling_alone_have_one_text(text, expected):
    assert short(text) == expected
    assert text_of(function_of(expected)) == text_of(parse_function(text))


PADDED = "mask=lt(kv,at(t0,b))"


@pytest.mark.parametrize(
    "fault", ["le(kv,x)", "frob(kv,q)", "le(kv,q", "le(kv,q)q", "le(s,0)", f"window({10**20})", "window(0)"]
)
def test_a_mask_that_is_none_is_refused(fault):
    with pytest.raises(ProblemError, match=r"mask|function"):
        Flex.parse(f"{HEAD}:mask={fault}")


@pytest.mark.parametrize(
    "fault",
    [
        *("h30", "h32:h32", "fp8", "mask=causal:block=96", "mask=causal:block=64x64x64"),
        *("mask=document:documents=3.4", "mask=lt(kv,at(t0,b)):lengths=9.999"),
        *("mask=at(t0,at(t1,q))", "mask=at(t0,add(b,q))", "bf16:score=softcap(0)", "bf16:score=softcap(0.0)"),
    ],
)
def test_other_parts_that_are_none_are_refused(fault):
    with pytest.raises(ProblemError):
        Flex.parse(f"flex:forward:b2:kvh8:s4096:d128:{fault}")


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        ("le(kv)", "le takes 2 operands, and has 1"),
        ("not(q,kv)", "not takes 1 operand, and has 2"),
        ("where(q,kv)", "where takes 3 operands, and has 2"),
        ("at(t0)", "at takes 2 or more operands, and has 1"),
        ("at(kv,q)", "at reads a tensor"),
        pytest.param(f"{'not(' * 3000}q{')' * 3000}", "more than 100 operations within each other", id="nested"),
        ("eq(mod(kv,0),1)", "mod divides by 0"),
        ("eq(floordiv(kv,0.0),1)", "floordiv divides by 0"),
        ("eq(mod(kv,sub(1,1)),1)", "mod divides by 0"),
        ("and(0,le(kv,q))", "mask=0 is one number for all pairs"),
        ("s", "mask=s reads a score"),
        ("causal:score=sub(2,1)", "score=1 is one number for all pairs"),
    ],
)
def test_an_operation_is_refused_by_its_operands(mask, says):
    with pytest.raises(ProblemError, match=says):
        Flex.parse(f"{HEAD}:mask={mask}")


@pytest.mark.parametrize(
    "part", ["score=where(le(kv,q),s,-1e30)", "mask=le(kv,add(9999999999,q))", "mask=and(le(kv,q),lt(sub(q,kv),1.5))"]
)
def test_a_function_of_any_number_is_read_again(part):
    attention = Flex.parse(f"{HEAD}:{part}")
    assert Flex.parse(attention.name) == attention


def test_the_deepest_function_is_read():
    assert Flex.parse(f"{HEAD}:mask=" + "not(" * 99 + "at(t0,q,kv)" + ")" * 99).flops > 0


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("mask=causal:documents=16", "mask=causal reads no documents: leave out documents=16"),
        ("lengths=50.100", "mask=none reads no lengths"),
        ("mask=document:seen=5.5", "mask=document reads no seen"),
        ("block=64x64", "block=64x64 has no mask"),
        ("mask=document:documents=999999999", "documents=999999999 is above 65536"),
        ("b-1", "'b-1' is neither a size such as b2 nor a dtype"),
        (f"{PADDED}:lengths=100.50", "lengths='100.50' is not least and greatest of 1 to 100 %"),
        (f"{PADDED}:lengths=0.0", "lengths='0.0' is not least and greatest"),
        ("mask=at(t0,q,kv):seen=60.60", "seen='60.60' is not two percentages of 100 together"),
        ("mask=window(1.5)", "'1.5' is not an integer above 0"),
        ("mask=prefix(-3)", "'-3' is not an integer above 0"),
        ("score=softcap(1e3)", "'1e3' is not a number above 0"),
        ("score=add(s,1e400)", "1e400 is above the largest number"),
        ("dv٣", "value_dim='٣' has characters outside of ASCII"),
        ("mask=window(٣)", "has characters outside of ASCII"),
    ],
)
def test_a_part_that_means_nothing_is_refused_by_its_name(part, says):
    with pytest.raises(ProblemError, match=re.escape(says)):
        Flex.parse(f"{HEAD}:{part}")


@pytest.mark.parametrize(
    "text", ["１６x64x64", "16x64x64:bf16:nt:lda=６４", "grouped:rows:m٣:g2:n64:k64", "vllm_moe:m٣"]
)
def test_no_kind_reads_digits_of_other_scripts(text):
    with pytest.raises(ProblemError, match="write digits 0 to 9"):
        expand_workloads(text)


def test_a_mask_of_pairs_is_counted_in_parts_at_any_length():
    tracemalloc.start()
    share, keys = coverage("at(t0,q,kv)", 131_072, 131_072, seen="25.0", block=128)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (share, keys) == (pytest.approx(0.25, abs=0.01), 1.0)
    assert most < 2**30


@pytest.mark.filterwarnings("error")
def test_a_divisor_of_some_indices_may_be_0():
    assert Flex.parse(f"{HEAD}:mask=and(ne(q,0),eq(mod(kv,q),0))").flops > 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bound", ["exp(q)", "pow(2,sub(q,kv))", "maximum(0,sub(q,64))", "log1p(q)", "mul(9,tanh(q))"])
def test_a_mask_of_any_operation_has_work(bound):
    assert 0 < Flex.parse(f"{HEAD}:mask=le({bound},kv)").flops < Flex.parse(HEAD).flops


def test_a_masks_work_is_that_of_the_pairs_it_leaves():
    whole, causal, window = (Flex.parse(f"{HEAD}:mask={mask}") for mask in ("none", "causal", "window(128)"))
    assert whole.flops == 4 * 2 * 32 * 4096 * 4096 * 128
    assert causal.flops == pytest.approx(whole.flops / 2, rel=0.01)
    assert window.flops == pytest.approx(whole.flops * 128 / 4096, rel=0.05)
    assert coverage("prefix(1024)", 4096, 4096)[0] == pytest.approx(0.5 + 1 / 32, abs=0.01)


@pytest.mark.parametrize(
    ("mask", "held"),
    [
        ("eq(at(t0,q),at(t0,kv))", [(Holds.DOCUMENTS, ("s",))]),
        ("le(kv,add(q,t0))", [(Holds.NUMBER, ())]),
        ("and(at(t0,b,q,kv),lt(kv,at(t1,b)))", [(Holds.SEEN, ("b", "q", "kv")), (Holds.LENGTHS, ("b",))]),
        ("eq(at(t0,q),at(t1,kv))", [(Holds.DOCUMENTS, ("q",)), (Holds.DOCUMENTS, ("kv",))]),
        ("not(at(t0,b,kv))", [(Holds.SEEN, ("b", "kv"))]),
    ],
)
def test_what_a_tensor_holds_follows_from_its_use(mask, held):
    found = Flex.parse(f"{HEAD}:mask={mask}")
    assert [(each.holds, each.axes) for each in tensors_of(found.mask)] == held


def test_the_sparsity_of_a_mask_by_tensors_is_that_of_its_problem():
    mask = "flex:forward:b2:h1:s1024:d16:mask=at(t0,b,q,kv)"
    assert Flex.parse(f"{mask}:seen=50.0").flops == 4 * 2 * 512 * 1024 * 16
    assert Flex.parse(f"{mask}:seen=50.25").flops == 4 * 2 * 640 * 1024 * 16
    padded = Flex.parse("flex:forward:b4:h1:s1024:d16:mask=lt(kv,at(t0,b)):lengths=25.75")
    assert padded.flops == 4 * 4 * 512 * 1024 * 16
    assert padded.kernel_name == padded.name.replace(":lengths=25.75", "")


def test_a_dynamic_length_spans_a_series():
    whole, cache = Flex.parse(f"{HEAD}:mask=causal:dynamic=s"), Flex.parse("flex:decode:b1:h8:q1:kv64:d64:dynamic=kv")
    assert whole.resized(100).name == whole.name.replace("4096", "100")
    assert cache.resized(2, 3.0).name == "flex:decode:b1:h8:q1:kv2:d64:bf16:dynamic=kv"
    assert cache.resized(2).series == cache.series != Flex.parse("flex:decode:b1:h8:q2:kv64:d64:dynamic=kv").series
    for each in (whole, cache):
        assert with_length(each.kernel_name, each.keys) == each.name
    fields = {"kind": "flex", "phase": "forward", "batch": "1", "heads": "4", "head_dim": "64", "dynamic": "s"}
    assert workload_of({**fields, "keys": "300"}).sizes["queries"] == 300


def test_a_range_of_lengths_stands_for_a_few():
    found = expand_workloads("flex:forward:b1:h4:s128..16384:d64:mask=causal")
    assert [each.size for each in found] == [128, 256, 1024, 4096, 16384]
    assert {each.series for each in found} == {Flex.parse("flex:forward:b1:h4:s128:d64:mask=causal:dynamic=s").series}


@pytest.mark.parametrize(
    "fault",
    [
        *("q1:kv9:d64:dynamic=s", "s9:d64:dynamic=q", "s9:d64:mask=document:documents=4.5:dynamic=s"),
        *("s9..2:d64", "s0..9:d64", "s1..1:d64", "s-2..9:d64", "s2.5..9:d64", "s2..:d64", "s2..2147483648:d64"),
        pytest.param(f"s2..{'9' * 5000}:d64", id="huge"),
    ],
)
def test_a_dynamic_length_that_is_none_is_refused(fault):
    with pytest.raises(ProblemError, match=r"dynamic|documents|length"):
        expand_workloads(f"flex:forward:b1:h4:{fault}")
    with pytest.raises(ProblemError, match="of which decoding has few: write dynamic=kv"):
        expand_workloads("flex:decode:b1:h4:s2..64:d64")


def test_documents_fill_all_positions():
    assert sum(lengths_of("7", 1000)) == 1000
    assert lengths_of("600.400", 1000) == (600, 400)


def test_a_family_is_that_of_any_mask_and_block():
    assert Flex.parse(f"{HEAD}:mask=document:block=32").family == Flex.parse(f"{HEAD}:mask=causal").family
