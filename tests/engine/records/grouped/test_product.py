from __future__ import annotations

import pickle

import pytest

from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.grouped.product import Form, Grouped
from gemmtune.engine.records.workload import summed

SCALES = "epilogue=mul(column[fp32]).mul(row[fp32])"
NAMES = (
    "grouped:rows:m1024:g8:n4096:k2048:bf16:nt",
    "grouped:rows:m64:g4:n256:k128:fp16:nn:routing=counts(10.0.50.4)",
    "grouped:inner:m4096:g8:n2048:k1024:bf16:tn:routing=zipf",
    "grouped:inner:m4096:g8:n2048:k1024:bf16:tt:routing=zipf(1.2)",
    "grouped:rows:m64:g4:n256:k128:bf16:nt:routing=zipf(0.0001)",
    "grouped:batched:m32:g8:n128:k64:bf16:nt",
    f"grouped:rows:m64:g4:n256:k128:e4m3:nt:{SCALES}",
    f"grouped:rows:m64:g4:n256:k128:e4m3:nt:{SCALES}:accumulation=exact:routing=zipf",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_reads_back_and_so_do_fields_and_pickles(name):
    product = Grouped.parse(name)
    assert product.name == name
    assert Grouped.from_fields(product.to_fields()) == product
    assert pickle.loads(pickle.dumps(product)) == product
    assert product.series_name == name.replace(f":{product.range_size}{product.size}:", f":{product.range_size}:")


@pytest.mark.parametrize(
    ("short", "name"),
    [
        ("grouped:rows:m16:g8:n64:k32", "grouped:rows:m16:g8:n64:k32:bf16:nt"),
        ("grouped:inner:k16:g8:n64:m32:torch.float16", "grouped:inner:m32:g8:n64:k16:fp16:tn"),
        ("GROUPED:rows:m16:g2:n64:k32:bf16:NT:routing=zipf(1.0)", "grouped:rows:m16:g2:n64:k32:bf16:nt:routing=zipf"),
        ("grouped:rows:m16:g2:n64:k32:half:routing=zipf(.5)", "grouped:rows:m16:g2:n64:k32:fp16:nt:routing=zipf(0.5)"),
        ("grouped:rows:m16:g2:n8:k8:routing=counts(01.2)", "grouped:rows:m16:g2:n8:k8:bf16:nt:routing=counts(1.2)"),
        (
            "grouped:rows:m64:g4:n256:k128:epilogue=mul(row[fp32]).mul(column[fp32]):torch.float8_e4m3fn",
            f"grouped:rows:m64:g4:n256:k128:e4m3:nt:{SCALES}",
        ),
    ],
)
def test_other_texts_have_the_canonical_name(short, name):
    assert Grouped.parse(short).name == name


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("grouped:rows:m16:g8:n64", "k is missing"),
        ("grouped:columns:m16:g8:n64:k8", "'columns' is not one of rows, inner, batched"),
        ("grouped:rows:m0:g8:n64:k8", "m=0 is not an integer from 1"),
        ("grouped:rows:m16:g70000:n64:k8", "groups=70000 is not an integer from 1 to 65536"),
        ("grouped:rows:m16:m8:g8:n64:k8", "gives m twice"),
        ("grouped:rows:m16:g8:n64:k8:fp32", "dtype fp32 is not one of bf16, fp16"),
        ("grouped:rows:m16:g8:n64:k8:bf17", "bf17"),
        ("grouped:rows:m16:g8:n64:k8:bf16:nt:epilogue=relu", "no kernel .* computes epilogue="),
        (f"grouped:rows:m16:g8:n64:k8:fp16:nt:{SCALES}", "no kernel of groups of fp16 computes epilogue="),
        ("grouped:rows:m16:g8:n64:k8:bf16:accumulation=exact", "no kernel .* computes accumulation=exact"),
        ("grouped:rows:m16:g8:n64:k8:e4m3", "have a scale per row and column: write epilogue="),
        (f"grouped:rows:m16:g8:n64:k8:e4m3:{SCALES}.relu", "write epilogue="),
        (f"grouped:rows:m16:g8:n64:k8:e4m3:nn:{SCALES}", "not rows in nn"),
        (f"grouped:inner:m16:g8:n64:k8:e4m3:{SCALES}", "not inner in tn"),
        (f"grouped:rows:m16:g8:n64:k8:e5m2:{SCALES}", "dtype e5m2 is not one of"),
        (f"grouped:rows:m16:g8:n64:k8:e4m3:{SCALES}:accumulation=slow", "slow"),
        ("grouped:rows:m16:g8:n64:k8:bf16:nt:rooting=zipf", "rooting.*routing"),
        ("grouped:rows:m16:g8:n64:k8:bf16:nt:routing=even", "none of uniform"),
        ("grouped:rows:m16:g8:n64:k8:bf16:nt:routing=zipf(11)", "exponent"),
        ("grouped:rows:m16:g8:n64:k8:bf16:nt:routing=zipf(0.00001)", "of zipf is not a number from 0.0001"),
        ("grouped:rows:m16:g8:n64:k8:bf16:nt:routing=counts(1.2)", "2 counts for 8 groups"),
        (
            "grouped:rows:m16:g8:n64:k8:bf16:nt:routing=zipf(0.00001)",
            "'0.00001' of zipf is not a number from 0.0001 to 10",
        ),
        ("grouped:rows:m16:g8:n64:k8:routing=", "none of uniform"),
        ("grouped:rows:m16:g8:n64:k8:routing=counts()", "counts.*has 0 counts for 8 groups"),
        ("grouped:rows:m16:g2:n64:k8:routing=counts(1.-2)", "count '-2' is not an integer from 0"),
        ("grouped:rows:m16:g2:n64:k8:routing=counts(1,2)", "count '1,2' is not an integer from 0"),
        ("grouped:rows:m16:g2:n64:k8:routing=counts(1.)", "count '' is not an integer from 0"),
        (f"grouped:rows:m16:g1:n64:k8:routing=counts({10**18})", "is not an integer from 0 to 9{18},"),
        ("grouped:rows:m-16:g8:n64:k8", "'m-16' is neither a size such as m1024, nor a layout, nor a dtype"),
        ("grouped:rows:m1.5:g8:n64:k8", "'m1.5' is neither"),
        ("grouped:rows:m16:e8:n64:k8:bf16", "'e8' is neither"),
        ("grouped:rows:m16:g8:n64:k8:weight=much", "weight='much' is not a number above 0"),
        ("grouped:rows:m16:g8:n64:k8:out_dtype=fp32", "computes out_dtype=fp32: leave it out"),
        ("grouped:rows:m16:g2:n64:k8:bf16:nt:routing=counts(0.0)", "no row"),
        ("grouped:batched:m16:g2:n64:k8:bf16:nt:routing=zipf", "batched are alike"),
        ("grouped:rows:m16:g2:n64:k8:weight=0", "weight=0.0"),
    ],
)
def test_a_text_that_no_kernel_serves_is_refused_by_its_part(text, reason):
    with pytest.raises(ProblemError, match=reason):
        Grouped.parse(text)


def test_rows_are_drawn_once_for_all_products_of_a_layer():
    up, down = (Grouped.parse(f"grouped:rows:m4096:g64:{sizes}:bf16:nt") for sizes in ("n1536:k2048", "n2048:k768"))
    gradient = Grouped.parse("grouped:inner:m1536:g64:n2048:k4096:bf16:tn")
    assert up.counts == down.counts == gradient.counts
    assert sum(up.counts) == 4096
    assert 32 <= min(up.counts) <= max(up.counts) <= 100  # five standard deviations around 64
    assert up.counts != up.resized(4095).counts


def test_a_skewed_routing_sends_most_rows_to_the_first_groups():
    counts = Grouped.parse("grouped:rows:m4096:g64:n8:k8:bf16:nt:routing=zipf(1.2)").counts
    assert counts[0] > 10 * counts[20]
    assert sum(counts) == 4096


def test_counts_are_kept_where_they_add_up_and_shared_out_elsewhere():
    product = Grouped.parse("grouped:rows:m64:g4:n8:k8:bf16:nt:routing=counts(10.0.50.4)")
    assert product.counts == (10, 0, 50, 4)
    assert product.resized(128).counts == (20, 0, 100, 8)
    assert product.resized(1).counts == (0, 0, 1, 0)


def test_operations_and_bytes_are_those_of_the_rows_that_are_there():
    rows = Grouped.parse("grouped:rows:m64:g4:n256:k128:bf16:nt:routing=counts(10.0.50.4)")
    assert rows.flops == 2 * 64 * 256 * 128
    assert rows.min_bytes == 2 * (64 * 128 + 3 * 256 * 128 + 64 * 256)
    inner = Grouped.parse("grouped:inner:m64:g4:n256:k128:bf16:tn:routing=counts(10.0.50.4)")
    assert inner.flops == rows.flops
    assert inner.min_bytes == 2 * (64 * 128 + 128 * 256 + 4 * 64 * 256)
    batched = Grouped(Form.BATCHED, 8, 4, 16, 32)
    assert (batched.flops, batched.min_bytes) == (4 * 2 * 8 * 16 * 32, 4 * 2 * (8 * 32 + 32 * 16 + 8 * 16))
    assert batched.counts == (8, 8, 8, 8)
    scaled = Grouped.parse(f"grouped:rows:m64:g4:n256:k128:e4m3:nt:{SCALES}:routing=counts(10.0.50.4)")
    assert scaled.flops == rows.flops + 2 * 64 * 256
    assert scaled.min_bytes == 64 * 128 + 3 * 256 * 128 + 2 * 64 * 256 + 4 * (64 + 3 * 256)
    assert (scaled.compute_type, rows.compute_type) == ("fp8", "bf16")


def test_equal_products_are_one_and_their_weights_add_up():
    product = Grouped.parse(NAMES[0])
    (both,) = summed([product, Grouped.from_fields({**product.to_fields(), "weight": "3"})])
    assert both.weight == 4
