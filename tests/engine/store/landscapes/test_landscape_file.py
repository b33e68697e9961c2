"""The landscape format: what is read, what is refused, and that writing loses nothing."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.errors import LandscapeError, UsageError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.store.landscapes import csv_reader
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes, write_landscapes

FOREIGN = """\
block,unroll,time_ms,status,n_reps,times_ms,compile_ms,bench_ms,framework_ms
16,0,3.875328,ok,2,3.97619;3.774466,918.599,126.383,105.242
16,1,,compile_error,0,,,,
32,0,,runtime_error,0,,3055.96,0.95,2.17
32,1,4.5e-2,ok,1,,1,1,1
"""

OURS = """\
problem.m,problem.n,problem.k,problem.dtype,task.space,task.device,task.date,BLOCK_M,BLOCK_N,time_us,status
16,4096,4096,bf16,triton_mm,H200,2026-11-21T10:00:00Z,16,32,15.8,ok
16,4096,4096,bf16,triton_mm,H200,2026-11-21T10:00:00Z,32,32,,build_failed: 263168 B > 232448 B
16,4096,4096,bf16,aten,H200,,,,17.5,ok
2048,4096,4096,bf16,triton_mm,H200,,128,256,92.0,ok
2048,4096,4096,bf16,triton_mm,H200,,16,256,,invalid: 4 warps idle
"""


def read(folder: Path, text: str, name: str = "recorded.csv") -> tuple[Landscape, ...]:
    path = folder / name
    path.write_text(text)
    return read_landscapes(path)


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(LandscapeError) as caught:
        read(folder, text)
    message = str(caught.value)
    assert "\n" not in message
    assert "recorded.csv" in message
    return message


BAT = """\
,timestamp,correctness,validity,objective,error,config.block,config.pad,times.total_time,times.compile_time,times.runtimes
0,2023-05-01 10:00:00,1.0,Correct,0.03,no error,32,0,0.5,0.25,"[0.001, 0.002]"
1,2023-05-01 10:00:00,0.0,Compile exception,10000.0,no error,64,1,0.3,0.25,[0]
2,2023-05-01 10:00:00,0.0,Config invalid,10000.0,no error,128,1,0.0,0.0,[]
3,2023-05-01 10:00:00,0.0,Launch exception,10000.0,no error,128,0,0.1,0.0,[]
"""
"""What batbench 23b76e1 writes of four results; see its result/dataset.py."""


def test_csv_results_of_bat_are_read_in_seconds(tmp_path):
    (landscape,) = read(tmp_path, BAT)
    points = list(landscape.points.values())
    assert [point.status.value for point in points] == ["ok", "build_failed", "invalid", "run_failed"]
    assert (points[0].time_ns, points[0].samples_ns, points[0].cost_seconds) == (1.5e6, (1e6, 2e6), 0.5)
    assert (points[1].reason, points[3].reason) == ("Compile exception", "Launch exception")
    assert points[0].config == Config({"block": 32, "pad": 0})
    for launches in ('"[0.001, ]"', "[]", "7", "[NaN]", '"[0.001, -2]"', "[1e300]"):
        said = refusal(tmp_path, BAT.replace('"[0.001, 0.002]"', launches))
        assert f"line 2, column times.runtimes, value {launches.strip(chr(34))!r}: expected a list of seconds" in said
    for cells, column in (("1,soon,0.25,[0]", "times.total_time"), (",0.3,0.25,[0]", "config.pad")):
        said = refusal(tmp_path, BAT.replace("1,0.3,0.25,[0]", cells))
        assert f"line 3, column {column}, value" in said


def test_a_file_without_problem_columns_holds_one_task_named_by_its_stem(tmp_path):
    (landscape,) = read(tmp_path, FOREIGN, "conv_a100.csv")
    assert landscape.name == "conv_a100"
    assert landscape.problem is None
    assert landscape.source == str(tmp_path / "conv_a100.csv")
    assert landscape.params == (Param("block", (16, 32)), Param("unroll", (0, 1)))
    assert landscape.context == {}


def test_times_are_read_to_the_exact_nanosecond_and_only_of_successes(tmp_path):
    (landscape,) = read(tmp_path, FOREIGN)
    points = list(landscape.points.values())
    assert [point.time_ns for point in points] == [3875328.0, None, None, 45000.0]
    assert points[0].samples_ns == (3976190.0, 3774466.0)
    assert points[3].samples_ns == ()
    assert landscape.optimum_ns == 45000.0


def test_status_words_of_other_tools_are_translated(tmp_path):
    words = {
        "ok": (Status.OK, ""),
        "correct": (Status.OK, ""),
        "compile_error": (Status.BUILD_FAILED, "compile_error"),
        "runtime_error": (Status.RUN_FAILED, "runtime_error"),
        "InvalidConfig": (Status.INVALID, "InvalidConfig"),
        "timeout": (Status.TIMED_OUT, "timeout"),
        "correctness": (Status.WRONG_RESULT, "correctness"),
        "wrong_result: off by 0.3": (Status.WRONG_RESULT, "off by 0.3"),
        "timed_out": (Status.TIMED_OUT, ""),
        "the moon: was full": (Status.RUN_FAILED, "the moon: was full"),
    }
    rows = "".join(f"{number},1.5,{word}\n" for number, word in enumerate(words))
    (landscape,) = read(tmp_path, f"x,time_us,status\n{rows}")
    assert [(point.status, point.reason) for point in landscape.points.values()] == list(words.values())
    assert [point.time_ns for point in landscape.points.values()] == [1500.0, 1500.0, *[None] * 8]


def test_tasks_of_one_file_differ_in_problem_space_and_device_and_keep_their_order(tmp_path):
    decode, aten, prefill = read(tmp_path, OURS)
    assert decode.problem == aten.problem == Problem(16, 4096, 4096)
    assert decode.name == "16x4096x4096:bf16:nt"
    assert prefill.problem == Problem(2048, 4096, 4096)
    assert [landscape.context["space"] for landscape in (decode, aten, prefill)] == ["triton_mm", "aten", "triton_mm"]
    assert decode.context["date"] == "2026-11-21T10:00:00Z"
    assert "date" not in prefill.context


def test_a_task_has_only_the_parameters_it_fills(tmp_path):
    decode, aten, _ = read(tmp_path, OURS)
    assert [param.name for param in decode.params] == ["BLOCK_M", "BLOCK_N"]
    assert aten.params == ()
    assert list(aten.points) == [Config({})]


def test_invalid_rows_are_kept_with_their_reason(tmp_path):
    *_, prefill = read(tmp_path, OURS)
    point = prefill.points[Config({"BLOCK_M": 16, "BLOCK_N": 256})]
    assert (point.status, point.reason) == (Status.INVALID, "4 warps idle")


def test_problem_fields_of_another_kernel_make_the_name(tmp_path):
    text = "problem.image,problem.radius,x,time_us,status\nlena,15,1,2,ok\nlena,17,1,2,ok\n"
    first, second = read(tmp_path, text)
    assert (first.name, first.problem) == ("image=lena,radius=15", None)
    assert second.name == "image=lena,radius=17"


def test_a_gemm_with_types_we_lack_is_named_but_is_no_problem(tmp_path):
    (landscape,) = read(tmp_path, "problem.m,problem.n,problem.k,problem.dtype,x,time_us,status\n8,8,8,int4,1,2,ok\n")
    assert (landscape.name, landscape.problem) == ("m=8,n=8,k=8,dtype=int4", None)


def test_values_are_numbers_booleans_or_texts_and_order_needs_numbers(tmp_path):
    (landscape,) = read(tmp_path, "a,b,c,d,time_us,status\n2,true,0.5,nt,1,ok\n-1,False,1e3,8,1,ok\n")
    assert list(landscape.points) == [
        Config({"a": 2, "b": True, "c": 0.5, "d": "nt"}),
        Config({"a": -1, "b": False, "c": 1000.0, "d": 8}),
    ]
    assert landscape.params == (
        Param("a", (-1, 2), ordered=True),
        Param("b", (True, False), ordered=False),
        Param("c", (0.5, 1000.0), ordered=True),
        Param("d", ("nt", 8), ordered=False),
    )


def test_build_columns_are_resources_and_other_dotted_columns_are_not_parameters(tmp_path):
    header = "x,time_us,status,build.registers,build.shared_bytes,build.spill_bytes,build.threads,build.seconds,a.note"
    (landscape,) = read(tmp_path, f"{header}\n1,2,ok,255,65536,0,128,0.47,hm\n2,,build_failed,,,,,,\n")
    built, failed = landscape.points.values()
    assert (built.resources, built.build_seconds) == (Resources(255, 65536, 0, 128), 0.47)
    assert (failed.resources, failed.build_seconds) == (None, None)
    assert [param.name for param in landscape.params] == ["x"]


def test_a_byte_order_mark_spaces_and_crlf_are_accepted(tmp_path):
    path = tmp_path / "sheet.csv"
    path.write_bytes(b"\xef\xbb\xbfx, time_us ,status\r\n 1 , 2.5 , ok \r\n\r\n")
    (landscape,) = read_landscapes(path)
    assert landscape.points[Config({"x": 1})].time_ns == 2500.0


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["status"]),
        ("x,time_us,status\n", ["no rows"]),
        ("x,status\n1,ok\n", ["time_us", "time_ms", "columns are x, status"]),
        ("x,time_us\n1,2\n", ["no column status", "columns are x, time_us"]),
        ("time_us,status\n2,ok\n", ["no parameter column"]),
        ("x,time_us,time_ms,status\n1,2,3,ok\n", ["both time_us and time_ms"]),
        ("x,x,time_us,status\n1,1,2,ok\n", ["two columns", "'x'"]),
        ("x,,time_us,status\n1,1,2,ok\n", ["column 2 has no name"]),
        ("x,time_us,status\n1,fast,ok\n", ["line 2", "time_us", "'fast'", "above 0"]),
        ("x,time_us,status\n1,2,ok\n2,0,ok\n", ["line 3", "time_us", "'0'"]),
        ("x,time_us,status\n1,-3,ok\n", ["line 2", "'-3'"]),
        ("x,time_us,status\n1,,ok\n", ["line 2", "time_us", "''"]),
        ("x,time_us,status\n1,nan,ok\n", ["'nan'"]),
        ("x,time_us,status\n1,inf,ok\n", ["'inf'"]),
        ("x,time_us,times_us,status\n1,2,2;0;3,ok\n", ["line 2", "times_us", "'0'"]),
        ("x,time_us,status\n1,2,\n", ["line 2", "status"]),
        ("x,time_us,status\n1,2,ok\n1,3,ok\n", ["line 3", "Config(x=1)", "line 2"]),
        ("x,time_us,status\n1,2\n", ["line 2", "2 cells under 3 columns"]),
        ("x,y,time_us,status\n1,5,2,ok\n1,,2,ok\n", ["line 3", "column y", "blank"]),
        ("problem.m,problem.n,problem.k,x,time_us,status\n0,8,8,1,2,ok\n", ["line 2", "m=0"]),
        ("task.space,task.date,x,time_us,status\na,1,1,2,ok\na,2,2,2,ok\n", ["line 3", "task.date", "'2'", "line 2"]),
        ("x,time_us,status,build.registers\n1,2,ok,255\n", ["line 2", "build.threads"]),
        ("x,time_us,status,build.seconds\n1,2,ok,soon\n", ["line 2", "build.seconds", "'soon'"]),
    ],
)
def test_a_malformed_file_is_refused_in_one_line_that_says_where(tmp_path, text, parts):
    message = refusal(tmp_path, text)
    assert [part for part in parts if part not in message] == []


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(LandscapeError, match=r"cannot read landscape .*nowhere\.csv: No such file"):
        read_landscapes(tmp_path / "nowhere.csv")
    with pytest.raises(LandscapeError, match="cannot read landscape"):
        read_landscapes(tmp_path)


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path):
    plain = tmp_path / "plain.csv.gz"
    plain.write_text(FOREIGN)
    zipped = tmp_path / "zipped.csv"
    zipped.write_bytes(gzip.compress(FOREIGN.encode()))
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress(FOREIGN.encode())[:-20])
    for path, reason in ((plain, "not whole gzip"), (zipped, "not text in UTF-8"), (cut, "not whole gzip")):
        with pytest.raises(LandscapeError, match=rf"{path.name} is {reason}"):
            read_landscapes(path)


VALUES = st.one_of(
    st.integers(-(10**17), 10**17),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.from_regex(r"[a-z][a-z_ ,\"\n]{0,6}[a-z]", fullmatch=True).filter(lambda text: text not in ("true", "false")),
)
TIMES = st.floats(1e-3, 1e13)
WORDS = st.text(st.characters(exclude_categories=["C"]), max_size=20).map(lambda text: " ".join(text.split()))


@st.composite
def points(draw, config):
    status = draw(st.sampled_from(Status))
    ok = status is Status.OK
    return Point(
        config=config,
        status=status,
        time_ns=draw(TIMES) if ok else None,
        samples_ns=tuple(draw(st.lists(TIMES, max_size=3))) if ok else (),
        reason="" if ok else draw(WORDS),
        resources=draw(st.none() | st.builds(Resources, *[st.integers(0, 10**6)] * 4)),
        build_seconds=draw(st.none() | st.floats(0, 1e4)),
    )


@st.composite
def landscapes(draw, problem):
    names = draw(st.lists(st.sampled_from(["BLOCK_M", "warps", "split k", "µ"]), min_size=1, unique=True))
    rows = st.lists(st.tuples(*[VALUES] * len(names)), min_size=1, max_size=5)
    configs = dict.fromkeys(Config(dict(zip(names, row, strict=True))) for row in draw(rows))
    seen = {name: list({repr(c[name]): c[name] for c in configs}.values()) for name in names}
    numeric = {name: all(type(value) in (int, float) for value in values) for name, values in seen.items()}
    return Landscape(
        name=problem.name,
        source="",
        params=tuple(Param(n, tuple(sorted(v) if numeric[n] else v), ordered=numeric[n]) for n, v in seen.items()),
        points={config: draw(points(config)) for config in configs},
        problem=problem,
        context={"space": draw(st.sampled_from(["a", "b"])), "toolchain": "torch 2.13.0, triton 3.6.0"},
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a loaded machine
@given(data=st.data())
def test_landscapes_read_back_equal(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("landscapes") / data.draw(st.sampled_from(["all.csv", "all.csv.gz"]))
    problems = data.draw(st.lists(st.builds(Problem, *[st.integers(1, 9)] * 3), min_size=1, max_size=3, unique=True))
    written = [data.draw(landscapes(problem)) for problem in problems]
    write_landscapes(path, written)
    back = read_landscapes(path)
    assert [list(landscape.points.items()) for landscape in back] == [list(ls.points.items()) for ls in written]
    assert [(ls.name, ls.problem, ls.context) for ls in back] == [(ls.name, ls.problem, ls.context) for ls in written]
    for read_back, original in zip(back, written, strict=True):
        assert {param.name: param for param in read_back.params} == {param.name: param for param in original.params}


@pytest.mark.parametrize(
    "text", [FOREIGN, OURS.replace("\n", "\r\n"), 'x,y,time_us,status\n1,"a\nb",2,ok\n2,a\u2028b,3,ok']
)
def test_a_text_may_be_cut_anywhere(text):
    file = Path("recorded.csv")
    whole = csv_reader.parse(file, [text])
    assert csv_reader.parse(file, list(text)) == whole
    assert csv_reader.parse(file, [text[:40], text[40:]]) == whole


@pytest.mark.parametrize(("tasks", "configs", "most"), [(100, 60, 300), (1, 6000, 1200)])
def test_a_row_takes_little_memory(tmp_path, tasks, configs, most):  # tasks share configs
    problems = range(1, tasks + 1)
    rows = "".join(f"{m},8,8,{x},{m + x}.125,1.5;2.5;{m}.25;4;5,ok\n" for m in problems for x in range(configs))
    path = tmp_path / "many.csv"
    path.write_text(f"problem.m,problem.n,problem.k,x,time_us,times_us,status\n{rows}")
    tracemalloc.start()
    try:
        found = read_landscapes(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(each.points) for each in found) == 6000
    assert (peak - 2 * path.stat().st_size) / 6000 < most  # bytes; the file and one piece of it beside them


def test_a_foreign_file_survives_being_written_again(tmp_path):
    text = "problem.image,x,time_ms,status\nlena,1,2,ok\nlena,2,,compile_error\n"
    (original,) = read(tmp_path, text)
    write_landscapes(tmp_path / "copy.csv.gz", [original])
    (copy,) = read_landscapes(tmp_path / "copy.csv.gz")
    assert (copy.name, copy.points, copy.params) == (original.name, original.points, original.params)


def test_the_same_landscapes_give_the_same_bytes(tmp_path, monkeypatch):
    recorded = read(tmp_path, OURS)
    write_landscapes(tmp_path / "a.csv.gz", recorded)
    monkeypatch.setattr("time.time", lambda: 2e9)
    write_landscapes(tmp_path / "b.csv.gz", recorded)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


def simple(name: str = "t", value: object = 1, param: str = "x", **context: str) -> Landscape:
    config = Config({param: value})
    return Landscape(name, "", (Param(param, (value,)),), {config: Point(config, Status.OK, 5.0)}, context=context)


@pytest.mark.parametrize(
    ("landscapes_", "part"),
    [
        ([], "no parameter column"),
        ([simple(value="16")], "Config(x='16') would read back as Config(x=16)"),
        ([simple(value="")], "Config(x='') would read back as Config()"),
        ([simple(value=float("inf"))], "would read back"),
        ([simple(param="status")], "'status'"),
        ([simple(param="a.b")], "columns are a.b, time_us"),
        ([simple("one"), simple("two")], "one row per config"),
        ([simple("image=")], "image="),
        ([Landscape("t", "", (Param("x", (1,)),), {})], "no rows"),
        (
            [simple("one", space="a"), simple("two", space="b"), Landscape("t", "", (), {})],
            "3 tasks would read back as 2",
        ),
        ([Landscape("t", "", (), {Config({}): Point(Config({}), Status.OK, 5.0)})], "no task.space"),
        ([Landscape("t", "", (Param("y", (1,)),), simple().points)], "Config(x=1) would read back as"),
        ([Landscape("t", "", simple().params, {Config({"x": 1}): Point(Config({"x": 1}), Status.OK, None)})], "time"),
    ],
)
def test_a_landscape_that_would_not_read_back_is_refused_and_the_old_file_stays(tmp_path, landscapes_, part):
    path = tmp_path / "old.csv.gz"
    write_landscapes(path, [simple("before")])
    before = path.read_bytes()
    with pytest.raises(LandscapeError) as caught:
        write_landscapes(path, landscapes_)
    assert part in str(caught.value)
    assert path.read_bytes() == before


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "old.csv.gz"
    write_landscapes(path, [simple(value=1)])
    before = path.read_bytes()

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"cannot write .*old\.csv\.gz: No space left"):
        write_landscapes(path, [simple(value=2)])
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["old.csv.gz"]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "nowhere" / "a.csv", tmp_path / "file" / "a.csv"):
        with pytest.raises(UsageError, match=r"cannot write .*a\.csv"):
            write_landscapes(path, [simple()])


def test_the_cost_of_an_evaluation_is_the_sum_of_its_recorded_parts(tmp_path):
    (landscape,) = read(tmp_path, FOREIGN)
    costs = [point.cost_seconds for point in landscape.points.values()]
    assert costs == [pytest.approx(1.150224), None, pytest.approx(3.05908), pytest.approx(0.003)]
    path = tmp_path / "recorded.csv.gz"
    write_landscapes(path, [landscape])
    (back,) = read_landscapes(path)
    assert [point.cost_seconds for point in back.points.values()] == costs


def test_many_rows_of_two_tasks_keep_their_order(tmp_path: Path) -> None:
    rows = [f"{'x ' if i % 700 < 600 else 'y'},{i},{i + 1}.5,{i}.25;{i + 2}, ok" for i in range(1400)]
    rows[13] = "x ,13,,,build_failed: no registers"
    rows[1399] = "y,1399,1e3,1;,ok"
    file = tmp_path / "rows.csv"
    file.write_text("\r\n".join(["task.space,P,time_us,times_us,status", *rows]))

    first, second = read_landscapes(file)

    points = {**first.points, **second.points}
    assert (len(first.points), len(second.points)) == (1200, 200)
    failed, odd = points.pop(Config({"P": 13})), points.pop(Config({"P": 1399}))
    assert (failed.status, failed.reason, failed.samples_ns) == (Status.BUILD_FAILED, "no registers", ())
    assert (odd.time_ns, odd.samples_ns) == (1e6, (1e3,))
    for config, point in points.items():
        i = config.integer("P")
        assert (point.time_ns, point.samples_ns) == ((i + 1.5) * 1000, ((i + 0.25) * 1000, (i + 2) * 1000))


@pytest.mark.parametrize(("cell", "says"), [("1;2", "time_us, value '1;2'"), ("", "time_us, value ''")])
def test_a_wrong_time_among_many_rows_names_its_line(tmp_path: Path, cell: str, says: str) -> None:
    rows = [f"{i},{cell if i == 77 else 5},5;6,ok" for i in range(100)]
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(["P,time_us,times_us,status", *rows]))

    with pytest.raises(LandscapeError, match=f"line 79, column {says}"):
        read_landscapes(file)
