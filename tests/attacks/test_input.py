"""Hostile input: a right answer, or one line that names value, bound and way out."""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gemmtune as gt
from gemmtune.engine.api.plans import read_plan
from gemmtune.engine.io.numbers import checked, parse_number, shown
from gemmtune.engine.io.reading import parse_json, parse_toml, read_text
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import LandscapeError, UsageError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.search.enumeration import membership
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes
from gemmtune.engine.tables.table_file import read_table, write_table

FOREIGN = Path(__file__).parents[1] / "engine/store/landscapes/foreign"
DECODE = "16x4096x4096:bf16:nt"
QUICK = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))

NUMBERS = [0, -1, 1.5, -0.0, 1e308, -1e308, 5e-324, 2**31, 2**63, 10**20, 10**400, math.inf, -math.inf, math.nan]
WORDS = ["", " ", "1_0", "٣", "0x10", "nan", "inf", "\x1b[31m", "$x^{$", "\0", "'\"", "a,b;c", "x" * 3000]
WORDS += ["漢\u202e\ud7ff"]
HOSTILE = [*NUMBERS, *WORDS, None, True, [], {}, [[[]]], {"a": {"b": 1}}]
VALUES = st.sampled_from(HOSTILE) | st.integers() | st.floats() | st.text(max_size=20)
ANY_JSON = st.recursive(
    VALUES, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=9
)


def check_message(error: Exception, said: str = "") -> None:
    """Check that a message names what it must, and is short enough to read."""
    assert said in str(error)
    assert 10 < len(str(error)) < 8000


# Numbers


@QUICK
@given(st.sampled_from(HOSTILE) | VALUES)
def test_a_checked_number_is_finite_and_within_its_bounds(value):
    for kind, bounds in ((int, {"least": 1}), (float, {"above": 0, "most": 7}), (float, {})):
        try:
            found = checked(value, "field", kind, **bounds)
        except UsageError as error:
            check_message(error, "field=")
        else:
            assert type(found) is kind
            assert math.isfinite(found)
            assert not isinstance(value, bool | str)
            assert found >= bounds.get("least", found)
            assert bounds.get("above", -math.inf) < found <= bounds.get("most", found)


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (2**63, int, "budget=9223372036854775808 is not an integer from 1 on and at most 9223372036854775807"),
        (True, int, "budget=True is not an integer from 1 on"),
        (math.nan, float, "budget=nan is not a number from 1 on"),
    ],
)
def test_a_refused_number_is_named_with_its_bound(value, kind, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        checked(value, "budget", kind, least=1)


@pytest.mark.parametrize(("text", "number"), [("10", 10), ("-1.5e3", -1500.0), (".5", 0.5), ("9" * 19, 1e19)])
def test_plain_digits_are_a_number(text, number):
    assert (parse_number(text), type(parse_number(text))) == (number, type(number))


@pytest.mark.parametrize("text", ["1_0", "٣", "1e999", "nan", "inf", "0x10", "1 ", "--1", "1e", "9" * 400])
def test_other_spellings_are_none(text):
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_number(text)


def test_a_value_is_shown_in_few_characters():
    assert shown(10**5000) == "int too large to show"
    loop = []
    loop.append(loop)
    assert shown(loop) == "[[...]]"
    assert len(shown("x" * 10_000)) <= 80


# Texts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "nested more than 64 levels deep"),
        ("[" * 65 + "]" * 65, "nested more than 64 levels deep"),
        ("1" * 5000, "4300 digits"),
        (str(2**63), "9223372036854775808 is not an integer of 64 bits"),
        ('["\\ud800"]', "is not Unicode text"),
        ('{"\\udfff": 1}', "is not Unicode text"),
        ('{"a": 1, "a": 2}', "field 'a' stands twice"),
        ("", "file is empty"),
        ('{"a": [1,', "file is truncated: it ends at line 1"),
        ("nul", "file is not JSON at line 1"),
    ],
    ids=range(10),
)
def test_a_hostile_json_text_is_refused(text, said):
    with pytest.raises(LandscapeError, match=said):
        parse_json(text, "file", LandscapeError)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a=" + "[" * 5000, "nested more than 64 levels deep"),
        ("a" + ".a" * 200_000 + "=1", "nested more than 64 levels deep"),
        ("a=" + "1" * 5000, "4300 digits"),
        (f"a={10**20}", "is not an integer of 64 bits"),
        ("a=1\na=2", "is not TOML"),
        ("a='\0'", "is not TOML"),
    ],
    ids=range(6),
)
def test_a_hostile_toml_text_is_refused(text, said):
    with pytest.raises(UsageError, match=said):
        parse_toml(text, "file")


@QUICK
@given(ANY_JSON)
def test_any_json_is_read_as_it_was_written_or_refused(value):
    try:
        text = json.dumps(value)
    except ValueError:  # an integer of too many digits
        return
    try:
        read = parse_json(text, "file")
    except UsageError as error:
        check_message(error)
    else:
        assert json.dumps(read) == text


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "file"


@QUICK
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_text_or_refused(path, content):
    for suffix, read in (
        (".toml", read_plan),
        (".csv", read_landscapes),
        (".json", read_landscapes),
        (".gz", partial(read_text, what="landscape")),
    ):
        file = path.with_suffix(suffix)
        file.write_bytes(content)
        try:
            read(file)
        except UsageError as error:
            check_message(error)


def test_a_gzip_bomb_is_refused_before_it_is_unpacked(path):
    bomb = path.with_suffix(".csv.gz")
    bomb.write_bytes(gzip.compress(b"0" * 2**26))
    with pytest.raises(LandscapeError, match="expands to more than 100 times its size"):
        read_landscapes(bomb)


def test_a_file_without_end_is_refused():
    with pytest.raises(UsageError, match=r"landscape /dev/zero holds more than \d+ bytes"):
        read_text(Path("/dev/zero"), "landscape")


# Campaigns


def toml_of(value: object) -> str:
    """Return a value in TOML; what TOML lacks is a text."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case list():
            return f"[{', '.join(map(toml_of, value))}]"
        case dict():
            return f"{{{', '.join(f'{json.dumps(key)} = {toml_of(each)}' for key, each in value.items())}}}"
    return json.dumps("" if value is None else str(value))


KEYS = [
    "problem",
    "problems",
    "hold_out",
    "sampler",
    "objective",
    "budget",
    "seed",
    "batch",
    "margin",
    "space",
    "pruner",
]
KEYS += ["portfolio", "ranges", "seconds", "gpu_seconds", "regret"]
PROBLEMS = st.dictionaries(
    st.sampled_from(["m", "n", "k", "dtype", "layout", "weight", "epilogue", "hold_out"]), VALUES
)


@QUICK
@given(st.dictionaries(st.sampled_from(KEYS), VALUES | st.lists(VALUES | PROBLEMS, max_size=3), max_size=4))
def test_any_campaign_is_a_plan_or_refused(path, content):
    file = path.with_suffix(".toml")
    file.write_text("".join(f"{key} = {toml_of(value)}\n" for key, value in content.items()), encoding="utf-8")
    try:
        plan = read_plan(file)
    except UsageError as error:
        check_message(error, str(file))
    else:
        numbers = plan.budget, plan.batch, plan.seed, plan.margin, *(problem.weight for problem in plan.problems)
        assert all(0 <= number <= sys.float_info.max for number in numbers)
        assert 1 <= plan.budget < 2**63


# Landscapes


def replaced(record: object, hostile: list[object]) -> Iterator[object]:
    """Yield a JSON value once per place and hostile value there."""
    children = record.items() if isinstance(record, dict) else enumerate(record) if isinstance(record, list) else ()
    for key, child in list(children):
        for value in (*hostile, *replaced(child, hostile)):
            before, record[key] = record[key], value
            yield record
            record[key] = before


@pytest.mark.parametrize("name", ["kernel_tuner_cache.json", "t4_results.json"])
def test_a_hostile_value_in_another_tuners_file_is_refused_or_read(path, name):
    found = json.loads((FOREIGN / name).read_text(encoding="utf-8"))
    if "cache" in found:
        found["cache"] = dict(list(found["cache"].items())[:1])
    else:
        found["results"] = found["results"][:1]
    file, read = path.with_name(name), 0
    hostile = [-500_000, 1e308, 10**400, 5e-324, math.nan, None, True, "\x1b[", {}, [1e308, 1e308]]
    for record in replaced(found, hostile):
        file.write_text(json.dumps(record), encoding="utf-8")
        try:
            [landscape] = read_landscapes(file)
        except LandscapeError as error:
            check_message(error)
        else:
            read += 1
            assert_believable(landscape)
    assert read > 5


CELLS = st.sampled_from(["1", "16", "0.5", "ok", "build_failed", "nt", "-1", "1e308", "1e-320", "9" * 400, *WORDS])
COLUMNS = ["time_us", "time_ms", "times_us", "status", "x", "y", "cost.seconds", "build.seconds", "build.registers"]
COLUMNS += ["problem.m", "problem.n", "problem.k", "problem.epilogue", "task.device", "compile_ms"]


@QUICK
@given(st.data())
def test_any_table_of_cells_is_a_landscape_or_refused(path, data):
    names = data.draw(st.lists(st.sampled_from(COLUMNS), unique=True, max_size=4))
    names = ["x", "status", "time_us", *(name for name in names if name not in ("x", "status", "time_us"))]
    rows = data.draw(st.lists(st.lists(CELLS, min_size=len(names), max_size=len(names)), min_size=1, max_size=3))
    rows = [[str(number), *row[1:]] for number, row in enumerate(rows)]
    quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in (names, *rows)]
    file = path.with_suffix(".csv")
    file.write_text("\n".join(quoted), encoding="utf-8")
    try:
        landscapes = read_landscapes(file)
    except LandscapeError as error:
        check_message(error)
    else:
        for landscape in landscapes:
            assert_believable(landscape)


def assert_believable(landscape: Landscape) -> None:
    for config, point in landscape.points.items():
        json.dumps(dict(config), allow_nan=False)
        times = [time for time in (point.time_ns, *point.samples_ns) if time is not None]
        assert all(1e-6 <= time <= 1e18 for time in times)
        costs = [cost for cost in (point.build_seconds, point.cost_seconds) if cost is not None]
        assert all(0 <= cost < 1e20 for cost in costs)


def test_a_name_is_drawn_as_it_is_written(run, tmp_path):
    (tmp_path / "gemm_$m^$.csv").write_text("x,time_us,status,problem.q\n1,5,ok,$x^{$\n2,4,ok,$x^{$\n3,6,ok,$x^{$\n")
    ran = run("compare", "gemm_$m^$.csv", "--sampler", "random", "--budget", "2", "--seeds", "2", "--out", "comparison")
    assert (ran.status, ran.err) == (0, "")
    assert (tmp_path / "comparison/curves.png").exists()


def test_the_results_are_written_before_they_are_drawn(monkeypatch, tmp_path):
    (tmp_path / "a.csv").write_text("x,time_us,status\n1,5,ok\n2,4,ok\n")
    study = gt.replay(tmp_path / "a.csv", sampler="random", budget=2, seeds=2)
    monkeypatch.setattr("gemmtune.engine.report.html.comparison_page.curves_png", lambda comparison: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        study.save(tmp_path / "out")
    assert json.loads((tmp_path / "out/comparison.json").read_text())["batch"] == 8


# Commands


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--budget", "9" * 20], "budget=99999999999999999999 is not an integer from 1 on and at most"),
        (["--budget", "9" * 5000], "--budget"),
        (["--seconds", "inf"], "seconds=inf is not a number above 0"),
        (["--margin", "nan"], "margin=nan is not a number from 0 on"),
        (["--out", "a" * 300], "File name too long"),
        (["--out", "\udcff"], r"argument '\udcff' is not UTF-8; rename the file"),
        (["--problem", "9" * 5000 + "x1x1"], "is not an integer from 1 to 2147483647"),
        (["--problem", "x" * 100_000], "malformed problem 'xxx"),
        (["--replay", "\x1b[31m.csv"], r"\x1b[31m.csv"),
    ],
    ids=range(9),
)
def test_a_hostile_argument_is_refused_in_one_line(run, arguments, said):
    tuned = () if "--problem" in arguments else ("--problem", DECODE)
    ran = run("tune", *tuned, *arguments)
    assert ran.is_refusal(), ran.err
    assert said in ran.err
    assert len(ran.err) < 5000
    assert "\x1b" not in ran.err


def test_a_seed_of_eighteen_digits_is_a_seed(run):
    assert run("tune", "--problem", DECODE, "--sampler", "random", "--budget", "3", "--seed", "9" * 18).status == 0


WRONG = [
    {"BLOCK_K": "64"},
    {"BLOCK_K": 64.0},
    {"BLOCK_K": True},
    {"BLOCK_K": 48},
    {"num_warps": 0},
    {"num_stages": 10**9},
    {"GROUP_M": None},
    {"extra": 1},
]


@pytest.mark.parametrize("change", WRONG, ids=str)
def test_a_config_outside_its_space_is_no_member(change):
    space = registry.space("triton_mm")
    task = Task(gt.Problem.parse(DECODE), catalogue.device("H200"), "triton_mm")
    seed = dict(space.seeds(task)[0])
    check = membership(space, task)
    assert check(Config(seed))
    values = {name: value for name, value in (seed | change).items() if value is not None}
    verdict = check(Config(values))
    assert not verdict
    assert next(iter(change)) in verdict.reason


def test_verify_names_a_row_whose_config_is_outside_its_space(run, tmp_path):
    recorded = embedded("triton_mm")[0]
    assert run("tune", "--problem", DECODE, "--sampler", "random", "--budget", "4").status == 0
    table = read_table(tmp_path / "out/table.json")
    [row] = table.rows
    wrong = replace(row.choices[0], space="triton_mm", config=Config({"BLOCK_K": "64", "num_warps": 0}))
    write_table(tmp_path / "wrong.json", replace(table, rows=(replace(row, choices=(wrong, *row.choices[1:])),)))
    ran = run("verify", "wrong.json", "--replay", recorded, "--replay", embedded("aten")[0])
    assert ran.status == 1, ran.err
    [line] = [line for line in ran.out.splitlines() if line.startswith(DECODE)]
    assert "does not work" in line


def test_warming_up_without_torch_names_the_extra(run, monkeypatch):
    for name in ("torch", "sympy"):
        monkeypatch.setitem(sys.modules, name, None)
    loader = "gemmtune.engine.consumers.inductor.loader.loader"
    monkeypatch.delitem(sys.modules, loader, raising=False)
    monkeypatch.delattr(sys.modules["gemmtune.engine.consumers.inductor.loader"], "loader", raising=False)
    Path("table.json").write_text('{"made_with": {}}', encoding="utf-8")
    ran = run("export", "table.json", "--warm", "json:dumps")
    assert ran.is_refusal(), ran.err
    assert "pip install " in ran.err
    assert "[triton]" in ran.err
