"""Earlier names of commands and options, which answer with today's."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from gemmtune.engine.cli.renamed import renamed
from gemmtune.engine.records.errors import UsageError

INPUTS = "--input bf16[m:1..65536,64] --input bf16[64,32]"


@pytest.mark.parametrize(
    ("earlier", "today"),
    [
        ("init", "tune --init campaign.toml"),
        ("adapt a.py:kernel --out b.py", "check a.py:kernel --out b.py --draft"),
        ("audit vllm sglang --device H200 --json", "check vllm sglang --device H200 --json"),
        ("record --space a --out there", "sweep --space a --out there"),
        ("replay", "compare --sampler transfer --budget 64 --seeds 10"),
        ("replay h200 --sampler=tpe --cold", "compare h200 --cold --sampler tpe --budget 64 --seeds 10"),
        ("compare --samplers a,b --db m.db", "compare --sampler a,b --database m.db"),
        ("space aten --problem 1x2x3", "list spaces aten --problem 1x2x3"),
        ("report out/table.json", "show out/table.json --html out/report.html"),
        ("report folder", "show folder --html folder/report.html"),
        ("report postgresql://host/name", "show postgresql://host/name --html report.html"),
        ("report --device L4 m.db --out x.html", "show m.db --device L4 --html x.html"),
        ("table m.db --margin 0.1", "export m.db --margin 0.1 --out out"),
        ("table folder --out there", "export folder/measurements.db --out there"),
        ("warmup t.json --call m:f --sha256 0", "export t.json --sha256 0 --warm m:f"),
        ("status", "campaigns"),
        ("status m.db --watch", "campaigns m.db --watch"),
        ("forget m.db --board GPU-0 --since 2026-11-27", "campaigns m.db forget GPU-0 --since 2026-11-27"),
        ("forget --json m.db --board GPU-0", "campaigns m.db forget GPU-0 --json"),
        ("merge --json all.db a.db b.db", "campaigns all.db merge a.db b.db --json"),
        ("merge folder/table.json a b", "export folder/table.json a b --out folder"),
        ("merge all/table.json a b", "export a b --out all"),
        ("merge all.json a", "export a --out all"),
        ("explain t.json --torch 2.11", "show t.json --torch 2.11 --graphs all"),
        ("explain --linear 3420:1280 --dtype fp16", "show --graphs 1x1280x3420:fp16:nt"),
        ("explain --linear 3420", "show --graphs 1xx3420:bf16:nt"),
        ("explain --call m:f --input mx64 --input 64x32", f"show --graphs m:f {INPUTS}"),
        ("explain --help", "show --help --graphs all"),
    ],
)  # fmt: skip
def test_an_earlier_command_answers_with_todays_and_names_it_once(tmp_path, monkeypatch, capsys, earlier, today):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("folder/table.json").touch()
    assert renamed(shlex.split(earlier)) == shlex.split(today)
    assert capsys.readouterr().err == f"gemmtune: the command is now gemmtune {shlex.join(shlex.split(today))}\n"


@pytest.mark.parametrize("earlier", [["merge"], ["forget", "m.db"], ["warmup", "out"]])
def test_an_earlier_command_without_its_argument_says_which_it_is_now(earlier):
    with pytest.raises(UsageError, match=f"^{earlier[0]} lacks an argument, and is another command now: gemmtune "):
        renamed(earlier)


def test_todays_names_say_nothing(capsys):
    for command in ("tune --problem 1x2x3 --database=a.db", "compare h200 --sampler random", "show m.db", ""):
        assert renamed(shlex.split(command)) == shlex.split(command)
    assert capsys.readouterr().err == ""


def test_an_earlier_name_runs_the_command(run, small, refusal):
    ran = run("replay", small, "--sampler", "random", "--budget", "6", "--seeds", "3", "--json")
    assert list(ran.record) == ["sampler", "budget", "seeds", "fraction_of_optimum", "problems"]
    assert ran.err.count("\n") == 1
    refusal(run("replay", small, "--sampler"), "--sampler", "expected one argument")
    assert run("help", "space").out == run("list", "--help").out
