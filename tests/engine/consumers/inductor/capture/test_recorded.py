"""Records of programs: of the loader's `record`, and of PyTorch's TunableOp."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import gemmtune as gt
from gemmtune.engine.api.plans import read_plan
from gemmtune.engine.records.errors import UsageError

PRODUCT = {"epilogue": "", "m": "16", "first": 16, "last": 16, "step": 1}
LINES = [
    {"type": "start", "process": "a", "torch": "2.13.0", "device": "NVIDIA H200"},
    {"type": "product", "process": "a", "graph": 1, "problem": "16x64x32:bf16:nt", **PRODUCT, "epilogue": "relu"},
    {"type": "product", "process": "a", "graph": 1, "problem": "16x64x32:bf16:nt", **PRODUCT},
    {"type": "unseen", "process": "a", "graph": 1, "operation": "conv", "reason": "a library's kernel", "count": 3},
    {"type": "runs", "process": "a", "graph": 1, "runs": 1},
    {"type": "runs", "process": "a", "graph": 1, "runs": 10},
    {"type": "product", "process": "b", "graph": 1, "problem": "16x64x32:bf16:nt", **PRODUCT},
]
OPEN = {"problem": "64x8x8:bf16:nt:dynamic_m=true", "epilogue": "", "m": "8*s0", "first": 8, "last": None, "step": 8}


def written(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_a_product_counts_as_often_as_its_graph_ran_in_each_process(tmp_path):
    found = gt.capture(str(written(tmp_path / "problems.jsonl", LINES)))
    (product,) = found.products
    assert (product.problem.name, product.count, product.epilogues) == ("16x64x32:bf16:nt", 21, (("relu", 10),))
    assert [(work.operation, work.count) for work in found.unseen] == [("conv", 30)]


def test_tune_takes_a_record_as_a_campaign(tmp_path):
    plan = read_plan(written(tmp_path / "problems.jsonl", [*LINES, {**OPEN, "type": "product", "graph": 2}]))
    fused, plain, *spread = plan.problems
    assert (fused.name, fused.weight) == ("16x64x32:bf16:nt:epilogue=relu", 10)
    assert (plain.name, plain.weight) == ("16x64x32:bf16:nt", 11)
    assert plan.ranges is not None
    assert [problem.size % 8 for problem in spread] == [0] * len(spread)
    assert (spread[0].size, spread[-1].size) == (8, 8192)


def test_a_record_and_the_campaign_file_written_from_it_are_one_plan(tmp_path):
    record = written(tmp_path / "problems.jsonl", [*LINES, {**OPEN, "type": "product", "graph": 2}])
    campaign = tmp_path / "problems.toml"
    campaign.write_text(gt.capture(str(record)).to_toml(), encoding="utf-8")
    from_record, from_file = read_plan(record), read_plan(campaign)
    assert [each.name for each in from_record.problems] == [each.name for each in from_file.problems]
    weights = [[each.weight for each in plan.problems] for plan in (from_record, from_file)]
    assert weights[0] == pytest.approx(weights[1], rel=1e-5)
    assert replace(from_record, problems=()) == replace(from_file, problems=())


ENDS_OF_LINES = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"]
UNREADABLE = "unreadable: atan"
HOSTILE_LINES = {
    "operation": {"type": "unseen", "operation": "conv{}", "reason": "a library's kernel", "count": 3},
    "reason": {"type": "unseen", "operation": "conv", "reason": "a library's kernel{}", "count": 3},
    "m": {"type": "product", "graph": 3, **OPEN, "m": "8*s0{}"},
    "epilogue": {
        "type": "product",
        "graph": 3,
        "problem": "16x64x32:bf16:nt",
        **PRODUCT,
        "epilogue": UNREADABLE + "{}",
    },
}


@pytest.mark.parametrize("end", ENDS_OF_LINES, ids=ascii)
@pytest.mark.parametrize("field", HOSTILE_LINES)
def test_a_text_of_a_record_gives_a_campaign_no_key(tmp_path, field, end):
    def lines(text):
        line = {
            name: str(its).replace("{}", text) for name, its in HOSTILE_LINES[field].items() if isinstance(its, str)
        }
        return [*LINES, HOSTILE_LINES[field] | line]

    attack = f'{end}sampler = "./evil.py:Evil"{end}budget = 7\x1b\x7f\u202e'
    plain = read_plan(written(tmp_path / "plain.jsonl", lines("")))
    record = written(tmp_path / "problems.jsonl", lines(attack))
    assert read_plan(record) == plain
    campaign = tmp_path / "problems.toml"
    campaign.write_text(text := gt.capture(str(record)).to_toml(), encoding="utf-8")
    assert all(line.isprintable() for line in text.split("\n"))
    assert read_plan(campaign).sampler == plain.sampler
    assert [each.name for each in read_plan(campaign).problems] == [each.name for each in plain.problems]


def test_the_name_of_a_record_gives_a_campaign_no_key(tmp_path):
    record = written(tmp_path / 'a\nsampler = "x"\n.jsonl', LINES)
    assert 'sampler = "x"' not in gt.capture(str(record)).to_toml().splitlines()


@pytest.mark.parametrize("name", ["0x64x32:bf16:nt", "16x0x32:bf16:nt:addmm", "0x16x64x32:bf16:nt:bmm"])
def test_a_recorded_product_with_a_size_of_0_is_named_and_not_tuned(tmp_path, name):
    empty = {"type": "product", "process": "a", "graph": 1, "problem": name, **PRODUCT}
    found = gt.capture(str(written(tmp_path / "problems.jsonl", [*LINES, empty])))
    assert [product.problem.name for product in found.products] == ["16x64x32:bf16:nt"]
    assert (name, "the product is empty", 10) in [(work.operation, work.reason, work.count) for work in found.unseen]


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    path = written(tmp_path / "problems.jsonl", LINES)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"type": "product", "process": "b"')
    assert len(gt.capture(str(path)).products) == 1


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ({"type": "other"}, "type 'other' is not one of start, product"),
        ({"type": "runs", "graph": 1, "runs": 0}, "runs=0 is not an integer from 1"),
        ({"type": "product", "graph": 1, "problem": "16x64", **PRODUCT}, "malformed problem"),
        ({"type": "product", "graph": 1, **PRODUCT}, "problem=None is no text"),
        ({"type": "product", "problem": "1x2x3", "m": "1"}, "epilogue=None is no text"),
        ({"type": "product", "problem": "1x2x3", **PRODUCT, "epilogue": "nothing"}, "nothing"),
        ({"type": "product", **OPEN, "first": 0}, "first=0 is not an integer from 1 on"),
        ({"type": "product", **OPEN, "first": True}, "first=True is not an integer from 1 on"),
        ({"type": "product", **OPEN, "last": 1.5}, "last=1.5 is not an integer from 1 on"),
        ({"type": "product", **OPEN, "step": None}, "step=None is not an integer from 1 on"),
        ({"type": "product", **OPEN, "m": 3}, "m=3 is no text"),
        ({"type": "product", **OPEN, "m": "x", "problem": "y" * 99}, "y"),
        ({"type": "unseen", "operation": 3, "reason": "x", "count": 1}, "operation=3 is no text"),
        ({"type": "unseen", "operation": "x", "count": 1}, "reason=None is no text"),
        ({"type": "unseen", "operation": "x", "reason": "y", "count": "1"}, "count=1 is not an integer from 1 on"),
        ({"type": "runs", "graph": -1, "runs": 1}, "graph=-1 is not an integer from 1 on"),
        ({"type": "x" * 99}, f"type '{'x' * 50}' is not one of start, product, unseen, runs"),
        ([], "is no JSON object"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line, part):
    with pytest.raises(UsageError, match=f"line 1.*{part}"):
        gt.capture(str(written(tmp_path / "problems.jsonl", [line])))


def test_tunableop_gives_columns_first_and_names_what_has_no_row(tmp_path):
    path = tmp_path / "tunableop_untuned0.csv"
    path.write_text(
        "GemmTunableOp_BFloat16_TN,tn_4096_16_1024_ld_1024_1024_4096\n"
        "GemmTunableOp_Half_NN,nn_4096_16_1024_ld_4096_1024_4096\n"
        "GemmTunableOp_tf32_NT,nt_64_32_128_ld_64_32_64\n"
        "GemmAndBiasTunableOp_BFloat16_TN,tn_4096_16_1024_ld_1024_1024_4096\n"
        "GemmStridedBatchedTunableOp_float_NN,nn_64_32_128_B_6_ld_64_128_64\n"
        "GemmTunableOp_BFloat16_TN,tn_4096_16_1024_ld_2048_1024_4096\n"
        "GemmStridedBatchedTunableOp_float_NN,nn_64_32_128_B_6_ld_80_128_64\n"
        "GemmTunableOp_double_TN,tn_4096_16_1024_ld_1024_1024_4096\n",
        encoding="utf-8",
    )
    found = gt.capture(str(path))
    assert [product.problem.name for product in found.products] == [
        "16x4096x1024:bf16:nt",
        "16x4096x1024:fp16:nn",
        "32x64x128:tf32:tn",
        "16x4096x1024:bf16:nt:addmm",
        "6x32x64x128:fp32:nn:bmm",
        "16x4096x1024:bf16:nt:ldb=2048",
    ]
    unseen = {work.operation: work.reason for work in found.unseen}
    assert unseen.keys() == {"GemmStridedBatchedTunableOp_float_NN", "GemmTunableOp_double_TN"}
    assert unseen["GemmStridedBatchedTunableOp_float_NN"].endswith("no batch strides, in a product of 6x32x64x128")


def test_another_csv_is_refused(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("m,n,k\n1,2,3\n", encoding="utf-8")
    with pytest.raises(UsageError, match="is a landscape file: gemmtune show, compare"):
        gt.capture(str(path))


def test_an_open_size_begins_at_two_and_may_have_an_end(tmp_path):
    lines = [{"type": "product", **OPEN, "first": 1, "last": 64, "step": 1}]
    (product,) = gt.capture(str(written(tmp_path / "problems.jsonl", lines))).products
    assert (product.m, product.first, product.last, product.step, product.count) == ("8*s0", 2, 64, 1, 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("GemmTunableOp_Half_NN", "line 1 is no untuned GEMM: expected OP_TYPE_LAYOUT,layout_n_m_k_ld_"),
        ("GemmTunableOp_Half_NN,nx_1_2_3_ld_1_3_1", "line 1 is no untuned GEMM"),
        ("GemmTunableOp_Half_NN,nn_1_2_3_ld_1_3", "line 1: .* has no sizes and leading dimensions"),
        ("GemmTunableOp_Half_NN,nn_1_2_x_ld_1_3_1", "line 1: 'nn_1_2_x_ld_1_3_1' has no sizes and leading dimensions"),
        ("GemmTunableOp_Half_NN,nn_1_2_3_no_1_3_1", "line 1: .* has no sizes and leading dimensions"),
    ],
)
def test_a_line_that_tunableop_does_not_write_is_named(tmp_path, line, said):
    path = tmp_path / "untuned.csv"
    path.write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=rf"record .*untuned\.csv: {said}"):
        gt.capture(str(path))


def test_tunableops_head_and_further_columns_are_no_products(tmp_path):
    path = tmp_path / "untuned.csv"
    line = "GemmTunableOp_float_TT,tt_4_2_3_ld_3_2_4,other,0.1"
    path.write_text(f"GemmTunableOp_Half_NN,nn_4_2_3_ld_4_3_4\n\nValidator,PT_VERSION,2.13\n{line}\n", encoding="utf-8")
    found = gt.capture(str(path))
    assert [product.problem.name for product in found.products] == ["2x4x3:fp16:nn", "2x4x3:fp32:tt"]
    assert found.source == "Products that TunableOp recorded in untuned.csv."
    assert not found.unseen


def test_results_of_tunableop_are_read_without_leading_dimensions_and_a_torn_last_line(tmp_path):
    path = tmp_path / "tunableop_results0.csv"
    path.write_text(
        "Validator,PT_VERSION,2.2.0\n"
        "GemmTunableOp_float_NT,nt_25088_4096_64,1219,1.262\n"
        "GemmStridedBatchedTunableOp_Half_NN,nn_64_32_128_B_6,3,0.1\n"
        "GemmTunableOp_float_NT,nt_25088_4",
        encoding="utf-8",
    )
    found = [product.problem.name for product in gt.capture(str(path)).products]
    assert found == ["4096x25088x64:fp32:tn", "6x32x64x128:fp16:nn:bmm"]


def test_a_file_that_begins_with_a_scaled_product_is_no_landscape(tmp_path):
    path = tmp_path / "tunableop_untuned0.csv"
    scaled = "ScaledGemmTunableOp_Float8_e4m3fn_BFloat16_TN,tn_64_128_32_ld_32_32_64_rw_1_bias_None"
    path.write_text(f"{scaled}\nGemmTunableOp_Half_NN,nn_4_2_3_ld_4_3_4\n", encoding="utf-8")
    assert [product.problem.name for product in gt.capture(str(path)).products] == ["2x4x3:fp16:nn"]


@pytest.mark.parametrize("inputs", [("bf16[2,2]",), (3, 4)])
def test_a_record_takes_no_inputs(tmp_path, inputs):
    path = written(tmp_path / "problems.jsonl", LINES)
    with pytest.raises(UsageError, match="is a record, which takes no inputs"):
        gt.capture(str(path), *inputs)


@pytest.mark.parametrize("ends", ["", " "])
def test_a_last_line_without_its_newline_counts_where_it_is_whole(tmp_path, ends):
    path = written(tmp_path / "problems.jsonl", LINES)
    path.write_text(path.read_text(encoding="utf-8").rstrip("\n") + ends, encoding="utf-8")
    assert [(each.problem.name, each.count) for each in gt.capture(str(path)).products] == [("16x64x32:bf16:nt", 21)]


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("problems.jsonl", "".join(json.dumps(line) + "\n" for line in LINES) + '{"type": "product", "m": "{8}', 8),
        ("untuned.csv", "GemmTunableOp_Half_NN,nn_64_32_128_ld_64_128_64\nGemmTunableOp_Half_NN,nn_64_3", 2),
    ],
)
def test_a_last_line_that_is_cut_off_is_named_among_what_is_not_tuned(tmp_path, name, text, number):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    found = gt.capture(str(path))
    assert len(found.products) == 1
    torn = [each for each in found.unseen if each.operation == f"line {number}"]
    assert [each.reason.partition(":")[0] for each in torn] == ["cut off"]


def test_records_of_several_processes_are_one_capture_whose_runs_add_up(tmp_path):
    paths = [tmp_path / f"tunableop_untuned{rank}.csv" for rank in range(8)]
    for rank, path in enumerate(paths):
        own = f"GemmTunableOp_Half_NN,nn_64_{rank + 1}_128_ld_64_128_64\n"
        path.write_text(f"GemmTunableOp_Half_NN,nn_64_32_128_ld_64_128_64\n{own}", encoding="utf-8")
    found = gt.capture(*map(str, paths))
    counts = {each.problem.name: each.count for each in found.products}
    assert (len(counts), counts["32x64x128:fp16:nn"], counts["3x64x128:fp16:nn"]) == (9, 8, 1)
    assert [path.name in found.source for path in paths] == [True] * 8
    for wrong in (("bf16[1,2]",), (tmp_path,), (str(tmp_path / "none.csv"),)):
        with pytest.raises(UsageError, match="is a record, which takes no inputs but further records"):
            gt.capture(str(paths[0]), *wrong)
