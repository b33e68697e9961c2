"""With a table a model never fares worse than without: small modules of every product, lowered by the installed torch.

corpus_modules.py has the modules, and corpus_probe.py lowers them for an H200 that is not here.
"""

from __future__ import annotations

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row
from gemmtune.engine.toolchain.releases import installed_torch, release_of

pytestmark = [pytest.mark.slow(15, together="probes"), pytest.mark.timeout(900)]

PINNED = release_of("2.13.0")
TILES = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}


def choice(space, config):
    return Choice(space, Config(config), 100.0, 99.0, 101.0, 32, Evidence.MEASURED, "torch 2.13.0", "events-cold-l2")


def row(problem, space="triton_mm", config=TILES):
    return Row(Problem.parse(problem), (choice(space, config),), None, 0.0, ())


ROWS = (
    row("64x96x256:bf16:nn"),
    row("64x96x256:bf16:nt"),
    row("64x96x256:bf16:nt:addmm"),
    row("64x96x256:bf16:nt:addmm:bias=matrix"),
    row("64x96x256:fp32:nn"),
    row("64x96x256:bf16:nn:addmm", "aten", {}),
    row("4x16x32x64:bf16:nn:bmm"),
    row("256x32x16:bf16:nt"),
    row("64x256x96:bf16:nt:addmm", "aten", {}),
    row("64x96x256:bf16:nt:lda=512"),
    row("64x96x256:bf16:nn:lda=300"),
    row("4x16x32x64:bf16:nn:bmm:batch_stride_a=0"),
    row("8x96x256:bf16:nt:lda=4096"),  # 16 tokens, where the corpus sees 32 first
    row("8x1x96x256:bf16:nt:bmm:batch_stride_a=4096:batch_stride_b=0"),
    row("64x96x256:bf16:nn:out_dtype=fp32"),
    row("4x16x32x64:bf16:nn:bmm:out_dtype=fp32"),
    row("16x16x8192:bf16:nn", "decompose_k", {"k_split": 16}),
    row("64x96x256:bf16:nt:addmm:alpha=2"),
    row("64x96x256:bf16:nt:addmm:bias=matrix:beta=0.5"),
    row("64x96x256:bf16:nt:addmm:beta=0"),  # an mm for torch 2.15
    row("64x96x256:bf16:nt:addmm:bias=matrix:beta=0"),
    row("4x16x32x64:bf16:nn:baddbmm"),
    row("4x16x32x64:bf16:nn:baddbmm:beta=0"),
    row("4x16x32x64:bf16:nn:baddbmm:bias=vectors:alpha=0.125"),
)
UNUSUAL = {
    **dict.fromkeys(
        ("slices", "expanded batch", "baddbmm", "open batch", "open rows of a batch", "mm to fp32", "bmm to fp32"), 1
    ),
    **dict.fromkeys(
        ("strides", "baddbmm alpha and beta", "last tokens"), 2
    ),  # of steps between elements Inductor makes a dense copy
    "alpha and beta": 4,
}
"""Cases of views, scalars and batches with a bias, and how many rows serve them; no row of a dense product does."""
RANGES = tuple(
    RangeRow(Problem.parse(f"{problem}:dynamic_m=true"), 2, 256, choice("triton_mm", TILES), ((256, 0.0),))
    for problem in ("256x96x256:bf16:nt", "256x96x256:bf16:nt:addmm", "64x256x32x64:bf16:nn:bmm")
)

REFUSED = {"addmm to fp32", "sparse rows"}
"""Cases that the pinned torch itself does not lower for a GPU that is not here."""
UNTAKEN = ("mm nt", "addmm nt", "bmm", "conv 1x1 with a row", "open rows")
AUTOTUNED = ("mm nt", "primes", "addmm")
OWN = ("mm nt", "primes", "addmm", "addmm nt", "addmm matrix", "bmm", "open rows", "bias row")
GROUPED = {"grouped others": 4, "scaled grouped": 2, "grouped with gradients": 3}
OLD = ("grouped 2 3", "bias number", "sum of two")


@pytest.fixture(scope="module")
def report(probed, exported):
    some = (
        f"bare={','.join(UNTAKEN)}",
        f"max={','.join((*OWN, 'sum of two'))}",
        f"autotune={','.join(AUTOTUNED)}",
        f"old={','.join(OLD)}",
    )
    return probed("corpus_probe.py", exported(ROWS, RANGES), "stock", "table", *some)


@pytest.fixture(scope="module")
def lowered(report):
    """The cases that torch lowers without a table: what it did without, and with one."""
    stock, table = report["stock"], report["table"]
    return {name: (stock[name], table[name]) for name in stock if not stock[name]["failure"]}


def served(found, outcome):
    return sum(use["count"] for use in found["uses"] if use["outcome"] == outcome)


def test_the_corpus_is_whole(report, lowered):
    refused = {name: found["failure"] for name, found in report["stock"].items() if found["failure"]}
    assert len(lowered) >= 70
    assert len(report["lacks"]) <= 3, report["lacks"]
    assert len(refused) <= 6, refused
    if release_of(installed_torch()) == PINNED:
        assert set(refused) == REFUSED
    products = [len(stock["selections"]) for stock, _ in lowered.values()]
    assert sum(map(bool, products)) >= 60
    assert sum(products) >= 150


def test_whatever_compiles_without_a_table_compiles_with_it(lowered):
    assert {name: table["failure"] for name, (_, table) in lowered.items() if table["failure"]} == {}


def test_nothing_is_benchmarked_and_no_selection_has_more_choices(lowered):
    assert {name: table["selections"] for name, (_, table) in lowered.items() if table["benchmarks"]} == {}
    more = {name: (widest(stock), widest(table)) for name, (stock, table) in lowered.items()}
    assert {name: counts for name, counts in more.items() if counts[1] > max(1, counts[0])} == {}


def widest(found):
    return max((len(kinds) for _, kinds in found["selections"]), default=0)


def test_outputs_have_the_layouts_that_they_have_without(lowered):
    differ = {
        name: (stock["outputs"], table["outputs"])
        for name, (stock, table) in lowered.items()
        if stock["outputs"] != table["outputs"]
    }
    assert differ == {}


def test_what_no_row_serves_runs_what_torch_runs_without(lowered):
    for name, (stock, table) in lowered.items():
        rows = served(table, "row")
        if not rows:
            assert table["selections"] == stock["selections"], name
        elif "conv" not in name and name != "deep k":  # such a row makes products of its own
            pairs = zip(stock["selections"], table["selections"], strict=True)
            assert sum(one != two for one, two in pairs) == rows, name


def test_rows_are_taken_and_nothing_is_said_of_them(report):
    taken = {name: served(found, "row") for name, found in report["table"].items() if served(found, "row")}
    assert len(taken) >= 20
    assert {*UNTAKEN, "addmm matrix", "jagged", "checkpoint", "autocast", "condition"} <= {*taken}
    assert sum(served(found, "aten row") > 0 for found in report["table"].values()) >= 5
    assert {word for name in taken for word in report["table"][name]["said"]} == set()


def test_rows_of_views_scalars_and_batches_with_a_bias_are_taken(report):
    assert {name: served(report["table"][name], "row") for name in UNUSUAL} == UNUSUAL


def test_a_row_of_parts_of_k_is_taken_and_its_inner_product_is_not_counted(report):
    found = report["table"]["deep k"]
    assert found["selections"][0] == ["mm", ["decompose_k_mm_16_split_0"]]
    (use,) = found["uses"]
    assert (use["problem"], use["outcome"]) == ("16x16x8192:bf16:nn", "row")


def test_grouped_products_are_named(report):
    cases = {name: found for name, found in report["table"].items() if "grouped" in name and "conv" not in name}
    assert len(cases) >= 6
    for name, found in cases.items():
        named = [use for use in found["uses"] if "grouped" in use["problem"]]
        assert sum(use["count"] for use in named) == GROUPED.get(name, 1), name
        assert {use["outcome"] for use in named} <= {"miss", "no problem"}
        assert "grouped" not in "".join(found["said"])
    (use,) = report["table"]["grouped 2 3"]["uses"]
    assert (use["problem"], use["outcome"]) == ("grouped:rows:m64:g4:n96:k256:bf16:nn", "miss")
    scaled, batch = report["table"]["scaled grouped"]["uses"]
    text = "grouped:rows:m64:g4:n96:k256:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32]):accumulation=exact"
    assert (scaled["problem"], scaled["outcome"]) == (text, "miss")
    assert batch["detail"].endswith("grouped products [4, 64, 256]×[4, 256, 96] of 3 by 3 dimensions")


def test_a_bias_of_one_number_is_named(report):
    (use,) = report["table"]["bias number"]["uses"]
    assert use["detail"] == "the bias, one number, is neither a row nor a matrix of rows, in a product of 64x96x256"


def test_a_product_of_8_bits_is_sent_to_capture_by_a_loader_without_such_rows(report):
    for name, operation, sizes in ("int_mm", "int_mm", "64x96x256"), ("scaled_mm by rows", "scaled_mm", "64x96x256"):
        (use,) = report["table"][name]["uses"]
        assert (use["outcome"], use["problem"]) == ("no problem", operation)
        assert use["detail"].endswith(f"not {sizes}; gemmtune capture lists what to tune")


def test_without_the_options_of_the_table_all_is_as_without_the_table(report):
    for name in UNTAKEN:
        found, stock = report["bare"][name], report["stock"][name]
        assert (found["failure"], found["benchmarks"]) == ("", 0)
        assert (found["selections"], found["outputs"]) == (stock["selections"], stock["outputs"]), name


def test_rows_are_alone_and_the_rest_is_tuned_with_autotune(report):
    found = report["autotune"]
    assert [kinds for _, kinds in found["mm nt"]["selections"]] == [["row"]]
    (kinds,) = [kinds for _, kinds in found["addmm"]["selections"]]  # a row of ATen
    assert kinds == ["bias_addmm" if installed_torch().startswith("2.11.") else "addmm"]
    assert found["primes"]["benchmarks"] > 5


def test_rows_are_alone_and_the_rest_is_atens_where_the_program_itself_sets_max_autotune(report):
    for name in OWN:
        found = report["max"][name]
        assert (found["failure"], found["benchmarks"]) == ("", 0), name
        assert served(found, "row") == served(report["table"][name], "row"), name
        assert [len(kinds) for _, kinds in found["selections"]] == [1], name


def test_a_sum_of_products_in_one_call_names_both_and_benchmarks_nothing(report):
    found = report["max"]["sum of two"]
    (use,) = found["uses"]
    assert (found["failure"], found["benchmarks"], use["problem"]) == ("", 0, "mm_plus_mm")
    name = "64x96x256:bf16:nn"
    assert use["detail"] == f"the sum of {name} and {name} in one call; rows are for one product"


def test_the_corpus_sees_what_max_autotune_gemm_does(report):
    """With it, which options() once had, torch itself breaks the rule in each of these ways."""
    old = report["old"]
    assert old["grouped 2 3"]["benchmarks"] > 5
    assert [name for name, _ in old["sum of two"]["selections"]] == ["mm_plus_mm"]
    if installed_torch().startswith(("2.12.", "2.13.")):  # others compile it
        assert "IndexError" in old["bias number"]["failure"]
