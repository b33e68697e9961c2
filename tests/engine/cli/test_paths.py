"""Every command says what a path is: it takes it, or names in one line what the path is and what is wanted."""

from __future__ import annotations

import json
import shutil

import pytest

import gemmtune as gt
from gemmtune.engine.api import reporting
from gemmtune.engine.api.replaying import Study
from gemmtune.engine.cli import tables

pytestmark = pytest.mark.slow(9)

DECODE = "16x4096x4096:bf16:nt"
SERVER = "postgresql://me:secret@127.0.0.1:1/none"
TABLE = {"out", "out/", "out/table.json", "copy.txt"}
DATABASE = {"out", "out/", "out/measurements.db", "renamed", SERVER}
INDUCTOR = {"out", "out/", "out/inductor", "out/inductor/inductor_table.json"}
LANDSCAPES = {"h200", "recorded", "small.csv"}
OTHERS = {
    "out/inductor/lookup_table.json",
    "out/run.json",
    "comparison.json",
    "page.html",
    "campaign.toml",
    "problems.jsonl",
    "untuned.csv",
    "kernel.py",
    "campaign.yaml",
    "other.json",
    "notes.txt",
    "binary",
    "empty",
    "dangling",
    "missing.json",
    "missing/table.json",
    "out/table.json/x",
    "n" * 300,
}
EXTRA = {"out/inductor/lookup_table.json", "out/run.json", "comparison.json"}
THINGS = TABLE | DATABASE | INDUCTOR | LANDSCAPES | OTHERS
COMPARISON = {"landscapes": [], "curves": [], "budget": 1, "seeds": 1}
QUICK = ("--budget", "1", "--seeds", "1")
TUNE = ("tune", "--problem", DECODE, "--budget", "1", "--out", "t")
COMMANDS = {
    "show": (["show", "X"], TABLE | DATABASE | INDUCTOR | LANDSCAPES | EXTRA),
    "page": (["show", "X", "--html", "made.html"], TABLE | DATABASE),
    "diff": (["diff", "X", "out"], TABLE),
    "diff to": (["diff", "out/table.json", "X"], TABLE),
    "verify": (["verify", "X", "--replay", "small.csv", "--out", "verified"], TABLE),
    "export": (["export", "X", "--out", "exported"], TABLE | DATABASE),
    "graphs": (["show", "X", "--graphs", "all"], TABLE),
    "check": (["check", "empty", "--table", "X"], TABLE),
    "bench": (["bench", "a:b", "--table", "X"], TABLE),
    "campaigns": (["campaigns", "X"], DATABASE),
    "merge": (["campaigns", "all.db", "merge", "X"], DATABASE),
    "forget": (["campaigns", "X", "forget", "GPU-0"], DATABASE),
    "tune database": ([*TUNE, "--replay", "small.csv", "--database", "X"], DATABASE | {"missing.json", "h200"}),
    "tune replay": ([*TUNE, "--replay", "X"], LANDSCAPES),
    "tune": (["tune", "X", "--out", "t", "--budget", "1"], {"campaign.toml", "problems.jsonl", "untuned.csv"}),
    "compare": (["compare", "X", *QUICK, "--sampler", "random"], LANDSCAPES),
    "warm": (["export", "X", "--warm", "os:getcwd"], INDUCTOR | {"other.json"}),  # which its reader refuses
    "capture": (["capture", "X"], {"problems.jsonl", "untuned.csv"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def campaign(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("campaign") / "out"
    gt.tune([DECODE], backend=gt.landscapes(small), budget=2, sampler="random", out=folder)
    return folder


@pytest.fixture
def folder(tmp_path, campaign, small, monkeypatch):
    shutil.copytree(campaign, tmp_path / "out")
    (tmp_path / "copy.txt").write_bytes((tmp_path / "out/table.json").read_bytes())
    (tmp_path / "renamed").write_bytes((tmp_path / "out/measurements.db").read_bytes())
    for name in ("recorded", "empty"):
        (tmp_path / name).mkdir()
    for name in ("small.csv", "recorded/a.csv"):
        (tmp_path / name).write_text(small.read_text())
    (tmp_path / "comparison.json").write_text(json.dumps(COMPARISON))
    (tmp_path / "page.html").write_text("<!doctype html>\n<title>x</title>")
    (tmp_path / "campaign.toml").write_text(f'problems = ["{DECODE}"]\n')
    product = {"type": "product", "problem": DECODE, "epilogue": ""}
    (tmp_path / "problems.jsonl").write_text(f"{json.dumps(product)}\n")
    (tmp_path / "untuned.csv").write_text("GemmTunableOp_BFloat16_TN,tn_4096_16_4096_ld_4096_4096_4096\n")
    (tmp_path / "kernel.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "campaign.yaml").write_text("space: triton_mm\n")
    (tmp_path / "other.json").write_text('{"name": "x"}')
    (tmp_path / "notes.txt").write_text("notes\n")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "dangling").symlink_to("nowhere")
    monkeypatch.setattr(reporting, "_write", lambda record, target, *_: target)  # drawing takes seconds
    monkeypatch.setattr(Study, "save", lambda study, folder: [])
    monkeypatch.setattr(tables, "_compiled", lambda table, call, **_: ((16,), b""))
    return tmp_path


REACHED = (
    "127.0.0.1",
    "times a model on a GPU",
    "inductor_table.json: write it",
    "no tuned file of",
    "'GPU-0' measured",
)
"""Refusals of what comes behind the path."""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_is_taken_or_named_for_what_it_is(run, folder, command):
    arguments, taken = COMMANDS[command]
    held = taken if command in ("show", "diff", "campaigns", "page") else {max(taken - {SERVER})}  # the others run long
    wrong = {}
    for thing in sorted((THINGS - taken) | held):
        ran = run(*(thing if each == "X" else each for each in arguments))
        shutil.rmtree(folder / "t", ignore_errors=True)
        for made in ("missing.json", "h200", "all.db"):
            (folder / made).unlink(missing_ok=True)
        reached = ran.status != 2 or any(words in ran.err for words in REACHED)
        named = len(ran.err.split("\n")) == 2 and thing.split("secret")[0].rstrip("/:")[:99] in ran.err
        unsaid = [words for words in ("Traceback", "rrno", "o such file", "secret") if words in ran.err]
        if unsaid or not (reached if thing in taken else named and ran.status == 2):
            wrong[thing] = ran.err
    assert wrong == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["diff", "out/report.json", "out"], ["out/report.json"]),
        (["verify", "out/measurements.db"], ["is a database", "gemmtune show", "a table is wanted", "out/table.json"]),
        (["diff", "renamed", "out"], ["is a database", "gemmtune export renamed writes it"]),
        (["campaigns", "out/table.json"], ["is a table", "gemmtune show", "such as out/measurements.db"]),
        (["tune", "out/table.json"], ["is a table", "a campaign file (TOML)"]),
        (["tune", "campaign.yaml"], ["is a YAML file", "a campaign file (TOML)"]),
        (["tune", "kernel.py"], ["is a Python file", "--kernel FILE.py:CLASS"]),
        (["show", "page.html"], ["is a page", "a browser opens it"]),
        (["capture", "campaign.toml"], ["is a campaign file", "gemmtune tune takes it", "MODULE:CALL"]),
        (["export", "out/table.json", "--warm", "a:b"], ["is a table", "such as out/inductor/inductor_table.json"]),
        (["verify", "h200"], ["h200 names landscapes", "a table is wanted"]),
        (["diff", "out/tabel.json", "out"], ["did you mean out/table.json?"]),
        (["diff", SERVER, "out"], ["me:***@127.0.0.1", "is the URL of a database"]),
        (["export", "empty"], ["empty is an empty folder", "a table or a database is wanted"]),
        (["compare", "h300"], ["no file h300", "did you mean H200?"]),
    ],
)
def test_a_wrong_path_names_what_takes_it_and_what_was_meant(run, folder, refusal, arguments, said):
    refusal(run(*arguments), *said)


@pytest.mark.parametrize("name", ["hollow", "hollow.json", "hollow.toml", "hollow.csv"])
def test_an_empty_file_is_refused_as_such_by_every_command(run, tmp_path, refusal, name):
    (tmp_path / name).touch()
    for command in ("show", "tune", "verify", "export", "compare", "capture"):
        refusal(run(command, name), f"{name} is empty; a ")


@pytest.mark.parametrize(
    "arguments",
    [["tune", "--out", ""], ["tune", "--out="], ["tune", "--database="], ["bench", "a:b", "--table", " "], ["show", ""],
     ["campaigns", "all.db", "merge", "out", ""], ["compare", "--out", "", "h200"], ["export", "out", "--out", ""]],
)  # fmt: skip
def test_an_empty_argument_is_refused(run, folder, refusal, arguments):
    refusal(run(*arguments), "is empty, as of a variable that is not set")
    assert not (folder / "table.json").exists()


def test_landscapes_have_their_devices_name(run, folder):
    named = run("show", "h200", "--json").record["landscapes"]
    assert {each["context"]["device"] for each in named} == {"H200"}
    replayed = run("compare", "h200", *QUICK, "--sampler", "random")
    assert replayed.out == run("compare", *QUICK, "--sampler", "random").out  # all that ship, where none is named
