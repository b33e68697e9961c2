"""Wrong use: one line on stderr, exit status 2, and no file changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

import pytest

from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes, write_landscapes
from gemmtune.engine.tables.table_file import read_table, write_table

pytestmark = pytest.mark.slow(8)

DECODE = "16x4096x4096:bf16:nt"
MIDDLE = "128x2880x2880:bf16:nt"
TWO = ("--problem", DECODE, "--problem", MIDDLE)


def problem_columns(problem: str) -> Mapping[str, str]:
    fields = Problem.parse(problem).to_fields()
    return {f"problem.{name}": text for name, text in fields.items()}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tune", "--space", "triton"], ["no space 'triton'", "did you mean triton_mm?", "aten, aten_grouped, cute_"]),
        (
            ["list", "spaces", "triton", "--problem", DECODE],
            ["no space 'triton'", "did you mean triton_mm?", "aten, aten_grouped, cute_"],
        ),
        (["tune", "--sampler", "anneal"], ["no sampler 'anneal'", "evolution, exhaustive, gp"]),
        (["compare", "small.csv", "--sampler", "anneal"], ["no sampler 'anneal'", "evolution, exhaustive, gp"]),
        (["tune", "--objective", "beauty"], ["no objective 'beauty'", "known: energy, latency, latency_energy"]),
        (["tune", "--objective", "energy"], ["has no energy", "events-cold-l2", "measure on a GPU"]),
        (["tune", "--objective", "latency_energy"], ["has no energy", "measure on a GPU"]),
        (["tune", "--objective", "latency_warm"], ["graph-warm-l2", "with events-cold-l2", "measure on a GPU"]),
        (
            ["tune", "--pruner", "secateurs"],
            ["no pruner 'secateurs'", "known: prior, static"],
        ),
        (["export", "out/table.json", "--to", "abacus"], ["no exporter 'abacus'", "known: cute, inductor"]),
        (["tune", "--device", "H300"], ["no device 'H300'", "H100-PCIe, H100-SXM, H200"]),
        (["list", "spaces", "triton_mm", "--problem", DECODE, "--device", "H300"], ["no device 'H300'", "H200"]),
        (["tune", "--device", "H100"], ["H100-SXM", "no GPU here", "of H200"]),
        (["tune", "--device", "H100", "--replay", "small.csv"], ["H100-SXM", "of H200"]),
        (["tune", "--problem", "16x4096"], ["malformed problem '16x4096'", "2048x4096x4096:bf16:nt"]),
        (["tune", "--problem", ""], ["the argument --problem is empty"]),
        (["tune", "--problem", "16x4096x4096\n:bf16"], ["malformed problem '16x4096x4096\\n:bf16'"]),
        (["list", "spaces", "triton_mm", "--problem", "sixteen"], ["malformed problem 'sixteen'"]),
        (["sweep", "--problem", "16xx4096"], ["malformed problem '16xx4096'"]),
        (["tune", "--problem", "0x4096x4096"], ["m=0 ", "from 1 to 2147483647"]),
        (["tune", "--problem", f"{2**31}x4096x4096"], ["m=2147483648 ", "from 1 to 2147483647"]),
        (["tune", "--problem", "16x4096x4096:bf17"], ["'bf17'", "bf16, fp16, fp32"]),
        (["tune", "--problem", "16x4096x4096:bf16:qq"], ["layout 'qq'", "nn, nt, tn, tt"]),
        (["tune", "--problem", DECODE, "--problem", "16x4096x4096"], [f"problem {DECODE} is named 2 times"]),
        (["tune", "--problem", "17x4096x4096"], ["17x4096x4096:bf16:nt is not recorded", "GPU", DECODE, MIDDLE]),
        (["tune", "--replay", "small.csv", "--problem", MIDDLE], [f"{MIDDLE} is not recorded", f"recorded: {DECODE}"]),
        (["tune", "--replay", "small.csv", "--space", "aten"], ["nothing is recorded in space aten", "triton_mm"]),
        (
            ["tune", "--replay", "small.csv", "--space", "aten", "--problem", "16x4096x4096:bf16:nt"],
            ["nothing is recorded in space aten, and without a GPU 16x", "run this on the GPU; recorded: triton_mm"],
        ),
        (["tune", "--replay", "none.csv"], ["no file or folder none.csv", "a landscape file"]),
        (["compare", "none.csv"], ["no file or folder none.csv", "a landscape file"]),
        (["compare", "out/table.json"], ["out/table.json"]),
        (["compare", "small.csv", "small.csv"], [f"landscape {DECODE} is given 2 times", "give it once"]),
        (["show", "none.json"], ["no file or folder none.json", "a table, a database"]),
        (["campaigns", "none.db"], ["no file or folder none.db", "gemmtune tune"]),
        (["show", "out/summary.txt"], ["out/summary.txt is a file of something else", "out/table.json"]),
        (["export", "none.json"], ["no file or folder none.json", "a table"]),
        (["export", "small.csv"], ["small.csv is a landscape file", "a table"]),
        (["export", "out/table.json", "--device", "H100"], ["NVIDIA H200", "NVIDIA H100", "tune on this GPU"]),
        (["tune", "none.toml"], ["no file or folder none.toml", "a campaign file"]),
        (["tune", "small.csv"], ["small.csv is a landscape file", "tune --replay", "a campaign file"]),
        (["tune", "--budget", "0"], ["--budget", "1", "gemmtune tune --help"]),
        (["tune", "--budget", "many"], ["--budget", "integer", "gemmtune tune --help"]),
        (["tune", "--seed", "-1"], ["--seed", "0", "gemmtune tune --help"]),
        (["tune", "--batch", "0"], ["--batch", "1", "gemmtune tune --help"]),
        (["compare", "small.csv", "--seeds", "0"], ["--seeds", "1", "gemmtune compare --help"]),
        (["tune", "--sampler-option", "children=8"], ["--sampler-option children=8 needs --sampler"]),
        (["tune", "--sampler", "random", "--sampler-option", "a=1"], ["sampler random has no option 'a'"]),
        (["tune", "--sampling", "random"], ["--sampling", "gemmtune tune --help"]),
        (["campaigns", "one.db", "two.db"], ["no order 'two.db'", "pause, resume"]),
        (["list", "spaces", "triton_m"], ["no 'triton_m' is among the spaces", "did you mean triton_mm?"]),
        (["list", "samplers", "tpe", "--problem", DECODE], ["gemmtune list spaces NAME --problem P"]),
        (["show", "out", "--as", "config", "--problem", DECODE, "--json"], ["show --as does not read --json"]),
        (["show", "out", "--live", "--csv"], ["show --live does not read --csv"]),
        (["show", "out", "--torch", "2.12"], ["show PATH does not read --torch", "gemmtune show --help"]),
        (["check", "out", "--configs", "5"], ["check of tuned files does not read --configs"]),
        (["check", "triton_mm", "--problem", DECODE, "--html", "a"], ["a kernel or a space does not read --html"]),
        (["check", "a.py:kernel", "--draft", "--json"], ["check --draft does not read --json"]),
        (["compare", "--extend", "out", "--budget", "8", "--cold"], ["--extend does not read --budget, --cold"]),
        (["list", "spaces", "--device", "H200"], ["list without --problem does not read --device"]),
        (["tune", "--init", "new.toml", "--budget", "8"], ["tune --init does not read --budget"]),
        (["export", "out", "--warm", "a:b", "--to", "vllm"], ["export --warm does not read --to"]),
        (["tuna"], ["'tuna'", "gemmtune --help"]),
    ],
)
def test_a_wrong_use_is_one_line_and_touches_nothing(refused, arguments, said):
    refused(arguments, *said)


@pytest.mark.parametrize(
    ("campaign", "said"),
    [
        (
            "budgets = 5",
            [
                "unknown key 'budgets'",
                "batch, batch_invariant, budget, gpu_seconds, hold_out, margin, objective, one_block_k",
            ],
        ),
        ("budget = '5'", ["budget='5' is not an integer"]),
        ("budget = 5.5", ["budget=5.5 is not an integer"]),
        ("budget = true", ["budget=True is not an integer"]),
        ("budget = 0", ["budget=0 is not an integer from 1 on"]),
        ("seed = -1", ["seed=-1 is not an integer from 0 on"]),
        ("batch = 0", ["batch=0 is not an integer from 1 on"]),
        ("seconds = 0", ["seconds=0 is not a number above 0"]),
        ("regret = true", ["regret=True is not a number"]),
        ("sampler = 3", ["sampler=3 is not a text"]),
        ("space = []", ["no space to search"]),
        ("space = 'triton'", ["no space 'triton'"]),
        ("problem = 'x'", ["problem='x' is not a list of tables"]),
        ("problem = ['16x16x16']", ["problem 1='16x16x16' is not a table"]),
        ("problems = ['16x16']", ["malformed problem '16x16'"]),
        ("[[problem]]\nm = 1\nn = 1", ["'k' is missing"]),
        ("[[problem]]\nm = 1\nn = 1\nk = 1\nq = 1", ["unknown problem field 'q'"]),
        ("[[problem]]\nm = 1\nn = 1\nk = 1\nweight = 0", ["weight=0"]),
        ("budget = ", ["not TOML"]),
        ("\x00", ["not TOML"]),
    ],
)
def test_a_wrong_campaign_file_is_named(refused, tmp_path, campaign, said):
    (tmp_path / "wrong.toml").write_text(campaign)
    named = [] if "no space 'triton'" in said else ["wrong.toml"]
    refused(["tune", "wrong.toml"], *named, *said)


def test_a_landscape_without_a_column_it_needs(refused, tmp_path, small):
    lines = small.read_text().splitlines()
    for column, said in (("status", "no column status"), ("time_us", "time_us or time_ms")):
        (tmp_path / "lacking.csv").write_text("\n".join([lines[0].replace(column, "gone.gone"), *lines[1:]]))
        refused(["tune", "--replay", "lacking.csv"], "lacking.csv", said)
        refused(["compare", "lacking.csv"], "lacking.csv", said)
    (tmp_path / "lacking.csv").write_text("\n".join([lines[0].replace("problem.m", "gone.gone"), *lines[1:]]))
    refused(["tune", "--replay", "lacking.csv"], "lacking.csv", "problem.m")


def test_a_landscape_of_other_parameters(refused, tmp_path):
    columns = dict(problem_columns(DECODE)) | {"task.device": "H200", "x": "1", "time_us": "2.0", "status": "ok"}
    (tmp_path / "x.csv").write_text(f"{','.join(columns)}\n{','.join(columns.values())}\n")
    refused(["tune", "--replay", "x.csv"], "x.csv", "parameters x", "space triton_mm has BLOCK_K", "task.space")


def test_a_landscape_of_values_the_space_does_not_have(refused, tmp_path, small):
    (landscape,) = read_landscapes(small)
    config, point = next(iter(landscape.points.items()))
    strange = type(config)({**config, "BLOCK_M": 48})
    write_landscapes(tmp_path / "s.csv", [replace(landscape, points={strange: replace(point, config=strange)})])
    refused(["tune", "--replay", "s.csv"], "s.csv", "none of the 1 configs", "feasible in space triton_mm")


def test_landscapes_of_two_devices(refused, tmp_path, small):
    (landscape,) = read_landscapes(small)
    other = replace(landscape, context=dict(landscape.context) | {"device": "H100"})
    write_landscapes(tmp_path / "other.csv", [other])
    refused(["tune", "--replay", "small.csv", "--replay", "other.csv"], "2 devices", "H100, H200")


def test_a_landscape_that_names_no_gemm(refused, tmp_path):
    (tmp_path / "conv.csv").write_text("x,time_us,status\n1,2.0,ok\n2,3.0,ok\n")
    refused(["tune", "--replay", "conv.csv", "--device", "H200"], "conv.csv", "gemmtune compare conv.csv")


def test_a_damaged_table_is_neither_shown_nor_exported(refused, tmp_path):
    whole = (tmp_path / "out/table.json").read_text()
    damages = {
        "truncated": whole[: len(whole) // 2],
        "edited": whole.replace('"samples": 9', '"samples": 8', 1),
        "upgrade gemmtune": whole.replace('"schema": 7', '"schema": 8', 1),
        "empty": "",
    }
    for said, text in damages.items():
        assert text != whole
        (tmp_path / "damaged.json").write_text(text)
        refused(["export", "damaged.json"], "damaged.json", said)
        refused(["show", "damaged.json"], "damaged.json", said)


def test_a_table_that_a_consumer_cannot_be_given_is_not_exported(refused, tmp_path):
    table = read_table(tmp_path / "out/table.json")
    row = table.rows[0]
    foreign = replace(row, choices=(replace(row.choices[0], space="toy"),))
    write_table(tmp_path / "foreign.json", replace(table, rows=(foreign,)))
    refused(["export", "foreign.json"], "no Inductor template of mm for space 'toy'", "aten, triton_mm")


@pytest.mark.parametrize("out", ["small.csv/out", "small.csv", "/proc/gemmtune"])
def test_an_output_folder_that_cannot_be_written(refused, out):
    refused(["tune", "--problem", DECODE, "--out", out], f"cannot write to {out}", "name another folder")
    refused(["export", "out/table.json", "--out", out], f"cannot write to {out}", "name another folder")


def test_a_database_where_none_can_be(refused):
    refused(["tune", "--database", "small.csv/x.db"], "small.csv/x.db", "folder must exist and be writable")
    refused(["tune", "--database", "nosuchdb://x"], "cannot open database nosuchdb://x")


def test_a_database_of_a_newer_schema(refused, tmp_path):
    with closing(sqlite3.connect(tmp_path / "out/measurements.db")) as connection:
        connection.execute("UPDATE schema_version SET version = 99")
        connection.commit()
    for arguments in (["tune", *TWO], ["show", "out/measurements.db"]):
        refused(arguments, "out/measurements.db has schema 99", "knows schema 3", "use the gemmtune that wrote it")


def test_a_database_that_is_none_or_of_something_else(refused, tmp_path):
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    (tmp_path / "text.db").write_text("not a database, only a text that is long enough to be taken for one" * 20)
    for arguments in (["show"], ["tune", "--problem", DECODE, "--database"]):
        refused([*arguments, "theirs.db"], "theirs.db is a database of something else", "songs")
        refused([*arguments, "text.db"], "text.db", "not a database")


def test_a_fleet_that_is_none_is_refused_with_those_there_are(run, refusal):
    refusal(run("tune", "--fleet", "slurm"), "no fleet 'slurm'; known: local, ray, ray://HOST:PORT")


def test_clocks_are_locked_on_this_machine_only(run, refusal):
    refusal(run("tune", "--fleet", "ray", "--lock-clocks", "1500"), "locked clocks are for GPUs of this machine")
