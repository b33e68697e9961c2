"""Rows of an earlier table: which stay beside those of a new one, which lead, and which are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.report.tables import earlier_json, earlier_notes
from gemmtune.engine.tables.earlier import Fate, read_earlier, with_earlier
from gemmtune.engine.tables.table_file import parse_table, table_text
from gemmtune.spaces.triton.kind import KernelCase

CHOICE = Choice("triton_kernel", Config({"BLOCK": 64}), 9e3, 8.9e3, 9.1e3, 32, Evidence.MEASURED, "", "graph-cold-l2")
GEMM = Problem.parse("16x4096x4096:bf16:nt")
SMALL, LARGE = (KernelCase("Scale", "a" * 12, (("n", n),), "n", kernel_sha256="0a1b") for n in (64, 128))
OTHER_CLASS = replace(SMALL, kernel="Shift", source="b" * 12)
OTHER_KERNEL = replace(SMALL, source="c" * 12, kernel_sha256="2c3d")
EDITED = replace(SMALL, source="d" * 12)


TORCH = "torch 2.11.0"
ATEN = Choice("aten", Config({}), 20e3, 19.9e3, 20.1e3, 32, Evidence.MEASURED, TORCH, "graph-cold-l2")


def table(*problems, ranges=()):
    rows = tuple(Row(problem, (CHOICE,), None, 0.0, (CHOICE.config,)) for problem in problems)
    return table_of(*rows, ranges=map(of_range, ranges))


def table_of(*rows, ranges=(), **changes):
    return Table(catalogue.device("H200"), rows, changes.pop("objective", "latency"), tuple(ranges), **changes)


def of_range(problem):
    return RangeRow(problem, 2, problem.size, CHOICE, ((problem.size, 0.0),))


def timed(time_us, space="triton_mm", tile=16, **changes):
    """Return a choice with an interval of 1 %."""
    ns = 1e3 * time_us
    config = Config({} if space == "aten" else {"tile": tile})
    fields = {"evidence": Evidence.MEASURED, "toolchain": f"{TORCH}, triton 3.6.0", "protocol": "graph-cold-l2"}
    return Choice(space, config, ns, ns * 0.995, ns * 1.005, 32, **fields | changes)


def row(*choices, problem=GEMM, baseline=ATEN):
    margin = baseline.time_ns / choices[0].time_ns - 1 if baseline else 0.0
    return Row(problem, (*choices, *([baseline] if baseline else [])), baseline, margin, (choices[0].config,))


def join(old, new, ranked=lambda problem, choice: False, **changes):
    """Return the row that ships and the fate of the earlier one."""
    merged, fates = with_earlier(table_of(new, **changes), table_of(old), {new.problem}, ranked)
    (shipped,) = merged.rows
    return shipped, fates


def fates_of(fates, fate):
    return {each.before.problem for each in fates if each.fate is fate}


def test_rows_of_a_class_before_its_edit_are_dropped_and_all_others_kept():
    earlier = table(GEMM, SMALL, LARGE, OTHER_CLASS, OTHER_KERNEL)
    merged, fates = with_earlier(table(EDITED), earlier, {EDITED})
    assert fates_of(fates, Fate.KEPT) == {GEMM, OTHER_CLASS, OTHER_KERNEL}
    assert fates_of(fates, Fate.DROPPED) == {SMALL, LARGE}
    assert {each.problem for each in merged.rows} == {EDITED, GEMM, OTHER_CLASS, OTHER_KERNEL}


def test_ranges_of_a_class_before_its_edit_are_dropped():
    earlier = table(SMALL, OTHER_KERNEL, ranges=(SMALL, OTHER_KERNEL))
    merged, _ = with_earlier(table(EDITED, ranges=(EDITED,)), earlier, {EDITED})
    assert {each.problem for each in merged.ranges} == {EDITED, OTHER_KERNEL}


def test_another_case_of_a_class_keeps_the_rows_of_its_first():
    _, fates = with_earlier(table(LARGE), table(SMALL, LARGE), {LARGE})
    assert [(each.before.problem, each.fate) for each in fates] == [(SMALL, Fate.KEPT)]


def test_two_editions_that_are_tuned_together_keep_each_others_rows():
    _, fates = with_earlier(table(EDITED, SMALL), table(LARGE), {EDITED, SMALL})
    assert [(each.before.problem, each.fate) for each in fates] == [(LARGE, Fate.KEPT)]


def test_a_row_whose_operands_were_others_is_replaced_however_fast():
    other = replace(SMALL, operand_bytes=SMALL.operand_bytes + 1)
    shipped, (fate,) = join(row(timed(5), problem=other), row(timed(9), problem=SMALL))
    assert (shipped.problem, fate.fate, fate.reason) == (SMALL, Fate.REPLACED, "its operands were others")


def test_a_row_of_other_types_is_another_workload():
    other = replace(SMALL, dtypes=("torch.float32",))
    merged, _ = with_earlier(table_of(row(timed(9), problem=SMALL)), table_of(row(timed(5), problem=other)), set())
    assert {each.problem for each in merged.rows} == {SMALL, other}
    assert len({each.problem.name for each in merged.rows}) == 2


def test_a_faster_row_of_the_same_terms_stays_and_is_named():
    old = row(timed(17.7))
    shipped, fates = join(old, replace(row(ATEN), choices=(ATEN,)))
    assert shipped == old
    assert earlier_notes(fates, set()) == [
        "kept 1 earlier row, which --replace drops: "
        "16x4096x4096:bf16:nt triton_mm 17.7 stays, not aten 20.0 µs (its lead is 13.0%)"
    ]
    (record,) = earlier_json(fates)
    assert (record["fate"], record["before"]["space"], record["now"]["time_ns"]) == ("kept", "triton_mm", 20e3)


def test_a_row_without_a_new_one_is_dropped_by_name():
    merged, fates = with_earlier(table_of(), table_of(row(timed(17.7))), {GEMM})
    assert merged.rows == ()
    (note,) = earlier_notes(fates, set())
    assert note == (
        "dropped 1 earlier row of problems that are held out, or that nothing works for now (16x4096x4096:bf16:nt)"
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ({"toolchain": "torch 2.10.0, triton 3.6.0"}, {}, "torch 2.10.0, now 2.11.0"),
        ({"toolchain": f"{TORCH}, triton 3.5.0"}, {}, "triton 3.5.0, now 3.6.0"),
        ({"protocol": "graph-warm-l2"}, {}, "protocol graph-warm-l2, now graph-cold-l2"),
        ({"evidence": Evidence.REPLAYED}, {}, "replayed, now measured"),
    ],
)
def test_a_faster_row_of_other_terms_is_replaced_and_the_terms_are_named(old, new, reason):
    shipped, fates = join(row(timed(10, **old)), row(timed(18, **new)))
    assert shipped.choices[0].time_ns == 18e3
    assert earlier_notes(fates, set()) == [
        f"replaced 1 earlier row: 16x4096x4096:bf16:nt triton_mm 10.0 -> triton_mm 18.0 µs ({reason})"
    ]


@pytest.mark.parametrize("less", [Evidence.REPLAYED, Evidence.ESTIMATED])
def test_a_measured_row_stays_where_the_new_one_was_not_measured(less):
    old = row(timed(18))
    shipped, (fate,) = join(old, row(timed(10, evidence=less)))
    assert (shipped, fate.fate, fate.reason) == (old, Fate.KEPT, f"measured, now {less}")


@pytest.mark.parametrize(
    ("old_us", "new_us", "leads"),
    [(17.7, 17.7, False), (17.7, 17.8, False), (17.7, 18.0, False), (17.6, 18.0, True), (18.0, 17.6, False)],
)
def test_an_earlier_row_leads_only_beyond_the_noise_and_two_percent(old_us, new_us, leads):
    shipped, (fate,) = join(row(timed(old_us, tile=1)), row(timed(new_us, tile=2)))
    assert shipped.choices[0].config["tile"] == (1 if leads else 2)
    assert fate.fate is (Fate.KEPT if leads else Fate.REPLACED)


def test_a_lucky_time_yields_once_its_kernel_is_ranked_again():
    old, new = row(timed(15, tile=1)), row(timed(17.7, tile=2))
    assert join(old, new)[0] == old
    shipped, (fate,) = join(old, new, lambda problem, choice: (problem, choice) == (GEMM, old.choices[0]))
    assert (shipped, fate.reason) == (new, "its kernel was ranked now, or its time withdrawn")


def test_rows_of_two_days_compare_as_multiples_of_the_baseline():
    slow = replace(ATEN, time_ns=22e3, low_ns=21.9e3, high_ns=22.1e3)
    old, new = row(timed(17.7, tile=1)), row(timed(18.5, tile=2), baseline=slow)
    assert join(old, new)[0] == new
    assert join(old, replace(new, baseline=None))[0].choices[0] == old.choices[0]


def test_a_lead_below_the_new_margin_does_not_keep_a_row():
    old, new = row(timed(19.3)), replace(row(ATEN), choices=(ATEN,))
    assert join(old, new)[0] == old
    shipped, (fate,) = join(old, new, margin=0.05)
    assert (shipped.choices[0], fate.reason) == (ATEN, "its lead of 3.6% is below the margin of 5.0%")


def test_an_objective_that_is_no_time_takes_the_new_row():
    new = table_of(row(timed(18)), objective="energy")
    merged, (fate,) = with_earlier(new, replace(new, rows=(row(timed(10)),)), {GEMM})
    assert (merged, fate.reason) == (new, "the table has no scores of objective energy")


@pytest.mark.parametrize("times", [(15, 18), (18, 15), (17.0, 17.1)])
def test_a_row_keeps_the_kernels_of_spaces_that_were_not_searched_now(times):
    cute, triton = timed(times[0], "cute_gemm"), timed(times[1])
    shipped, _ = join(row(cute), row(triton))
    assert {choice.space for choice in shipped.choices} == {"cute_gemm", "triton_mm", "aten"}
    assert shipped.choices[0] == (cute if times[0] == 15 else triton)
    again, fates = join(shipped, row(triton))
    assert again == shipped
    assert all(fate.fate is Fate.KEPT for fate in fates)


def test_a_kernel_of_other_terms_leaves_the_row_by_name():
    shipped, (fate,) = join(row(timed(15, "cute_gemm", toolchain="torch 2.10.0")), row(timed(18)))
    assert [choice.space for choice in shipped.choices] == ["triton_mm", "aten"]
    assert fate.reason == "torch 2.10.0, now 2.11.0; the row has no choice of cute_gemm any more"


def test_a_kernel_that_failed_now_does_not_come_back():
    shipped, (fate,) = join(row(timed(18), timed(19, "cute_gemm")), row(timed(17)), lambda *_: True)
    assert [choice.space for choice in shipped.choices] == ["triton_mm", "aten"]
    assert "no choice of cute_gemm any more" in fate.reason


def test_without_keep_the_table_stays_and_each_earlier_row_is_named():
    new, other = table_of(row(timed(18))), Problem.parse("64x64x64:bf16:nt")
    earlier = table_of(row(timed(10)), row(timed(10), problem=other), measured_at="2026-11-22")
    merged, fates = with_earlier(new, earlier, {GEMM}, keep=False)
    assert merged == new
    assert [(each.fate, each.before.problem) for each in fates] == [(Fate.REPLACED, GEMM), (Fate.DROPPED, other)]


def span(first, last, choice, dynamic=False):
    text = f"{last}x4096x4096:bf16:nt{':dynamic_m=true' if dynamic else ''}"
    return RangeRow(Problem.parse(text), first, last, choice, ((last, 0.0),))


FAST, SLOW = timed(17, tile=1), timed(19, tile=2)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("old", "new", "stay"),
    [
        ([(2, 64, FAST)], [(2, 64, SLOW)], True),
        ([(2, 16, SLOW), (17, 64, FAST)], [(2, 64, SLOW)], True),
        ([(2, 64, SLOW)], [(2, 64, FAST)], False),
        ([(2, 64, FAST)], [(2, 128, SLOW)], False),
        ([(2, 16, FAST), (17, 64, SLOW)], [(2, 16, SLOW), (17, 64, FAST)], False),
        ([(2, 64, replace(FAST, protocol="graph-warm-l2"))], [(2, 64, SLOW)], False),
    ],
)
def test_the_ranges_of_a_series_stay_together_if_they_lead_and_the_new_ones_do_not(old, new, stay, dynamic):
    olds, news = ([span(*each, dynamic=dynamic) for each in of] for of in (old, new))
    tuned = {each.problem for each in news}
    merged, fates = with_earlier(table_of(ranges=news), table_of(ranges=olds), tuned)
    assert list(merged.ranges) == (olds if stay else news)
    assert [each.fate for each in fates] == [Fate.KEPT if stay else Fate.REPLACED] * len(olds)
    assert len(earlier_notes(fates, set())) == 1
    assert with_earlier(table_of(ranges=news), merged, tuned)[0].ranges == merged.ranges


def test_ranges_compare_by_the_rows_of_their_sizes_too():
    other = Problem.parse("8x4096x4096:bf16:nt")
    old = table_of(row(FAST, problem=other), row(SLOW), ranges=[span(2, 8, FAST), span(9, 16, SLOW)])
    new = table_of(row(timed(22, tile=3), problem=other), row(SLOW), ranges=[span(2, 16, replace(SLOW))])
    slower = replace(new, rows=(row(timed(22, tile=3), SLOW, problem=other), row(SLOW)))
    assert with_earlier(slower, old, {GEMM, other})[0].ranges == old.ranges
    assert with_earlier(new, old, {GEMM, other})[0].ranges == new.ranges


def test_a_joined_table_is_a_table():
    old = table_of(row(timed(15, "cute_gemm")), ranges=[span(2, 64, FAST)], measured_at="2026-11-20")
    new = table_of(row(timed(17)), ranges=[span(2, 64, SLOW)], measured_at="2026-11-19")
    merged, _ = with_earlier(new, old, {GEMM})
    assert parse_table(table_text(merged), "t") == merged
    assert merged.measured_at == "2026-11-20"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "table.json"),
        (table_text(replace(table_of(row(timed(10.0))), device=catalogue.device("B200"))), "B200"),
        (table_text(table_of(row(timed(10.0)), objective="energy")), "a table of objective energy, not latency"),
    ],
)
def test_an_earlier_table_whose_rows_cannot_be_kept_is_refused_with_both_ways_out(tmp_path, text, said):
    path = tmp_path / "table.json"
    assert read_earlier(path, catalogue.device("H200"), "latency") is None
    path.write_text(text)
    with pytest.raises(UsageError, match=f"{said}.*; name another folder with --out, or drop its rows with --replace$"):
        read_earlier(path, catalogue.device("H200"), "latency")
    path.write_text(table_text(table_of(row(timed(10.0)))))
    assert len(read_earlier(path, catalogue.device("H200"), "latency").rows) == 1
