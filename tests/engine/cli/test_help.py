"""Help that fits 80 columns, choices that are listed, and completion."""

from __future__ import annotations

import io
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gemmtune.engine.cli import commands, output
from gemmtune.engine.cli.choices import Kind, completed, completed_problem
from gemmtune.engine.report.layout import Grid, Report

DECODE = "16x4096x4096:bf16:nt"
APP: Any = get_command(commands.app)
COMMANDS = sorted(APP.commands)
SAMPLER = """
import gemmtune as gt


class InOrder(gt.Sampler):
    def __init__(self, search):
        super().__init__(search)
        self.left = list(search.feasible)

    def ask(self, count):
        batch, self.left = self.left[:count], self.left[count:]
        return batch

    def tell(self, trials):
        pass
"""


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns_and_is_whole(run, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    shown = run(*([command] if command else []), "-h")
    assert (shown.status, shown.err) == (0, "")
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "…" not in shown.out
    lists = ("[ARGS]...", "}...", "]...", ",...]")  # an argument or a size that may stand again
    assert "..." not in reduce(lambda text, each: text.replace(each, ""), lists, shown.out)


def test_help_names_at_most_15_commands_in_groups_in_a_page_of_a_terminal(run):
    titles = [line[:-1] for line in run("--help").out.splitlines() if re.fullmatch(r"\w+:", line)]
    assert titles == ["Options", *commands.GROUPS] == ["Options", "Tune", "Look", "Ship", "Models", "Research", "Host"]
    assert sorted(name for group in commands.GROUPS.values() for name in group) == COMMANDS
    assert len(COMMANDS) <= 15


def test_the_options_of_tune_are_in_groups_and_list_the_choices(run):
    shown = run("tune", "--help").out
    titles = [line[:-1] for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Arguments", "Problems", "Search", "Limits", "Table", "Output", "Where", "Options"]
    words = " ".join(shown.split())
    for choice in ("quack_gemm", "static", "latency_energy", "H200"):
        assert choice in words


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("samplers", "transfer"),
        ("spaces", "cute_gemm"),
        ("devices", "H200"),
        ("objectives", "latency"),
        ("landscapes", "16x4096x4096:bf16:nt"),
        ("pruners", "prior"),
        ("exporters", "inductor"),
    ],
)
def test_list_prints_every_choice(run, kind, name):
    assert any(line.split()[0] == name for line in run("list", kind).out.splitlines())
    assert name in [each["name"] for each in run("list", kind, "--json").record[kind]]


def test_a_shell_completes_names_and_the_parts_of_a_problem():
    assert completed(Kind.SAMPLERS)("tr") == ["transfer"]
    assert completed(Kind.DEVICES)("h2") == ["H200"]
    (to,) = [each for each in APP.commands["export"].params if each.name == "to"]
    assert [each.value for each in to.shell_complete(None, "ind")] == ["inductor"]
    assert "16x4096x4096:bf16:nt" in completed_problem("16x")
    assert completed_problem("7x8x9:b") == ["7x8x9:bf16"]
    assert completed_problem("7x8x9:bf16:t") == ["7x8x9:bf16:tn", "7x8x9:bf16:tt"]
    assert "7x8x9:bf16:nt:addmm" in completed_problem("7x8x9:bf16:nt:a")


def test_a_sampler_is_taken_from_a_file(run, small, refusal):
    Path("mine.py").write_text(SAMPLER)
    study = ("--budget", "4", "--seeds", "1")
    assert run("compare", small, "--sampler", "./mine.py:InOrder", *study, "--json").record["sampler"] == "InOrder"
    assert run("compare", small, "--sampler", "random,mine:InOrder", *study, "--json").record["curves"][1]["arm"]
    shown = run("show", "comparison/comparison.json").out
    assert shown.startswith("1 landscape, budget 4, 1 seed")
    assert "InOrder" in shown
    tuned = run("tune", "--problem", DECODE, "--sampler", "./mine.py:InOrder", "--budget", "4",
                "--no-report", "--json")  # fmt: skip
    assert tuned.record["sampler"] == "InOrder"
    Path("folder").mkdir()
    Path("mine.py").rename("folder/other.py")
    Path("folder/campaign.toml").write_text(f'problems = ["{DECODE}"]\nsampler = "./other.py:InOrder"\nbudget = 3\n')
    filed = run("tune", "folder/campaign.toml", "--no-report", "--json")
    assert (filed.record["sampler"], filed.record["tasks"][0]["evaluations"]) == ("InOrder", 3)
    refusal(run("compare", small, "--sampler", "./gone.py:A"), "no file ./gone.py", "A")
    refusal(run("compare", small, "--sampler", "folder/other.py:gt"), "other")
    Path("broken.py").write_text("1 / 0\n")
    refusal(run("compare", small, "--sampler", "./broken.py:A"), "./broken.py", "ZeroDivisionError")


def test_wins_and_faults_are_painted_on_a_terminal_alone(monkeypatch):
    report = Report({}, [Grid({"problem": ["a", "b"], "why": ["wins", "baseline wins"], "ships": ["x", "aten"]})])
    monkeypatch.setattr(output, "columns", lambda: 80)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    written = io.StringIO()
    monkeypatch.setattr("sys.stdout", written)
    output.show(report, as_json=False)
    assert "\x1b[32mwins\x1b[0m" in written.getvalue()
    assert "\x1b[2mbaseline wins\x1b[0m" in written.getvalue()
    written.truncate(0)
    monkeypatch.setenv("NO_COLOR", "1")
    output.show(report, as_json=False)
    assert "\x1b" not in written.getvalue()
