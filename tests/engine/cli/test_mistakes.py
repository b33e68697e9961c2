"""Mistakes that newcomers made, and what the command line says of each."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import warnings
from contextlib import closing
from pathlib import Path

import pytest

from gemmtune.engine.cli import commands
from gemmtune.engine.records.errors import Stopped
from gemmtune.engine.tables.table_file import read_table

pytestmark = pytest.mark.slow(12)

GEMMTUNE = Path(sys.executable).with_name("gemmtune")
DECODE, MIDDLE = "16x4096x4096:bf16:nt", "128x2880x2880:bf16:nt"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--problem", "16x4096:bf16:nt"], ["malformed problem '16x4096:bf16:nt'", "[BATCHx]MxNxK"]),
        (["--problem", "16x4096x4096:fp8"], ["problem '16x4096x4096:fp8': dtype 'fp8'", "e4m3 or e5m2"]),
        (["--problem", "16x4096x4096:int32"], ["dtype 'int32' is not one of bf16, fp16, fp32, tf32, e4m3, e5m2, int8"]),
        (["--problem", "16x4096x4096:nt:bf16"], ["dtype 'nt' is a layout", "MxNxK:DTYPE:LAYOUT:OP"]),
        (["--problem", "16x4096x4096:bf16:tx"], ["layout 'tx'", "nn, nt, tn, tt"]),
        (["--problem", "8x16x4096x4096:bf16:nt"], ["batch=8 needs op bmm", "write 8xMxNxK:DTYPE:LAYOUT:bmm"]),
        (["--problem", "16x4096x4096:bf16:nt:dynamic=true"], ["did you mean dynamic_m?"]),
        ([DECODE], [f"{DECODE} is a problem and no campaign file", f"--problem {DECODE}"]),
        (["--margin", "2"], ["margin=2 is 200%", "for 2 % write 0.02"]),
        (["--regret", "5"], ["regret=5 is 500%", "for 5 % write 0.05"]),
        (["--margin", "-0.1"], ["margin=-0.1", "from 0 on"]),
        (["empty.toml"], ["empty.toml has no problems", "name some"]),
        (["none.toml"], ["none.toml has no problems", "name some"]),
        (["no_m.toml"], ["campaign no_m.toml: m=[] names no size", "leave the problem out"]),
        (["typo.toml"], ["unknown key 'bugdet'; did you mean budget?"]),
        (["text.toml"], ["campaign text.toml: m='16' is not an integer"]),
        (["--out", "empty.toml"], ["cannot write to empty.toml: empty.toml is a file; name another folder"]),
        (["--problm", "x"], ["No such option: --problm", "--problem"]),
        (["--device", "H300"], ["no device 'H300'", "H200"]),
        (["--device", "B200", "--problem", DECODE], ["no GPU here", "of H200", "no analytic model"]),
        (["options.toml"], ["'database' belongs to a machine", "the option --database"]),
    ],
)
def test_a_mistake_is_refused_with_the_way_out(run, refusal, arguments, said):
    Path("empty.toml").write_text("# nothing yet\n")
    Path("none.toml").write_text("budget = 2\nproblem = []\n")
    Path("no_m.toml").write_text("[[problem]]\nm = []\nn = 4096\nk = 4096\n")
    Path("typo.toml").write_text("bugdet = 4\n")
    Path("text.toml").write_text('[[problem]]\nm = "16"\nn = 4096\nk = 4096\n')
    Path("options.toml").write_text('database = "all.db"\n')
    refusal(run("tune", *arguments), *said)
    assert not Path("out").exists()


def test_a_mistyped_command_names_the_one_that_was_meant(run, refusal):
    refusal(run("tnue"), "No such command 'tnue'", "Did you mean 'tune'?")


def test_a_size_of_hold_out_that_is_a_text_is_refused(run, refusal):
    Path("c.toml").write_text('ranges = true\n[[problem]]\nm = 16\nn = 4096\nk = 4096\nhold_out = ["40"]\n')
    refusal(run("tune", "c.toml"), "m='40' is not an integer")


def test_half_precision_has_torchs_short_name(run, refusal):
    refusal(run("tune", "--problem", "16x4096x4096:f16:nt"), "16x4096x4096:fp16:nt is not recorded")


@pytest.mark.slow(1, together="commands")
def test_a_campaign_says_that_it_waits_while_another_process_has_the_database_locked(tmp_path, served):
    (tmp_path / "out").mkdir()
    command = [served / "gemmtune", "tune", "--problem", DECODE, "--budget", "2", "--sampler", "random", "--no-report"]
    with closing(sqlite3.connect(tmp_path / "out/measurements.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("waiting for the database"):
                other.rollback()
        process.communicate()
    assert process.returncode == 0
    waiting = "waiting for the database sqlite:///out/measurements.db: another process has locked it\n"
    assert said.count(waiting) == 1


@pytest.mark.slow(1, together="commands")
def test_two_same_campaigns_at_once_write_the_same_table(tmp_path, served):
    command = [served / "gemmtune", "tune", "--problem", DECODE, "--budget", "24", "--sampler", "random", "--no-report"]
    both = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    first, second = (process.communicate()[0].split("\n\n")[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert first == second
    assert len(read_table(tmp_path / "out/table.json").rows) == 1


def test_a_model_that_fails_is_named_with_m_and_where(run, tuned, refusal):
    pytest.importorskip("torch")
    warnings.simplefilter("ignore")  # the table was made with another torch
    Path("failing.py").write_text("def layer(m):\n    raise RuntimeError('no')\n\n\ndef call(m):\n    layer(m)\n")
    failed = run("export", tuned / "out/inductor/inductor_table.json", "--warm", "failing:call")
    refusal(failed, "failing:call fails at m = 16: RuntimeError: no (failing.py, line 2)")
    from torch._inductor.virtualized import V

    assert type(V.choices).__name__ == "InductorChoices"  # as before the command


@pytest.mark.parametrize("text", ["16X4096X4096:BF16:NT", "16x4096x4096:bfloat16:nt", "16x4096x4096:torch.bfloat16"])
def test_upper_case_and_torchs_names_are_understood(run, text):
    assert run("tune", "--problem", text, "--budget", "2", "--no-report").status == 0
    assert [row.problem.name for row in read_table(Path("out/table.json")).rows] == [DECODE]


def test_problems_beside_a_campaign_file_add_to_it(run):
    Path("c.toml").write_text(f'problems = ["{DECODE}"]\nbudget = 2\n')
    record = run("tune", "c.toml", "--problem", MIDDLE, "--problem", DECODE, "--no-report", "--json").record
    assert [task["problem"] for task in record["tasks"]] == [DECODE, MIDDLE]


def test_a_campaign_without_a_measurement_keeps_the_rows_of_its_problems(run):
    assert run("tune", "--problem", DECODE, "--budget", "2", "--no-report").status == 0
    before = read_table(Path("out/table.json"))
    Path("out/measurements.db").unlink()
    ran = run("tune", "--problem", DECODE, "--budget", "2", "--no-report", "--seconds", "0.000001")
    assert f"kept 1 earlier row of problems without a measurement now ({DECODE}); --replace drops them" in ran.out
    assert read_table(Path("out/table.json")).rows == before.rows


def test_a_second_campaign_keeps_the_rows_of_the_first_ones_problems(run, refusal):
    arguments = ("--budget", "2", "--no-report")
    first = run("tune", "--problem", DECODE, *arguments)
    assert first.status == 0
    row = read_table(Path("out/table.json")).rows[0]
    second = run("tune", "--problem", MIDDLE, *arguments)
    assert f"kept 1 earlier row of other problems ({DECODE}); --replace drops them" in second.out
    kept = read_table(Path("out/table.json"))
    assert [each.problem.name for each in kept.rows] == [MIDDLE, DECODE]
    assert kept.rows[1] == row
    exported = json.loads(Path("out/inductor/inductor_table.json").read_text())
    assert len(exported["rows"]) == 2
    replaced = run("tune", "--problem", MIDDLE, *arguments, "--replace")
    assert "kept" not in replaced.out
    assert f"dropped 1 earlier row of other problems, by --replace ({DECODE})" in replaced.out
    assert [each.problem.name for each in read_table(Path("out/table.json")).rows] == [MIDDLE]
    damaged = Path("out/table.json")
    damaged.write_text(damaged.read_text().replace("triton", "tritno"))
    refusal(run("tune", "--problem", DECODE, *arguments), "sha256 does not match", "--replace")


def test_a_problem_whose_earlier_row_stays_says_so_and_not_that_its_kernel_wins(run, tuned, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/table.json").write_bytes((tuned / "out/table.json").read_bytes())
    ran = run("tune", "--problem", DECODE, "--sampler", "random", "--budget", "1", "--out", "out")
    assert "stays, not" in ran.out
    (line,) = [line for line in ran.out.splitlines() if line.startswith(DECODE)]
    assert "earlier row" in line
    assert "wins" not in line
    assert "earlier row: the row of an earlier table leads" in ran.out


def test_a_small_campaign_keeps_the_better_row_of_a_committed_table(run):
    arguments = ("--problem", DECODE, "--no-report", "--budget")
    run("tune", *arguments, "16")
    better = Path("out/table.json").read_bytes()
    Path("out/measurements.db").unlink()
    for _ in range(2):  # the second one finds everything in the database
        small = run("tune", *arguments, "2", "--json").record
        assert [(each["fate"], each["before"]["space"], each["now"]["space"]) for each in small["earlier"]] == [
            ("kept", "triton_mm", "aten")
        ]
        assert Path("out/table.json").read_bytes() == better
    replaced = run("tune", *arguments, "2", "--replace")
    assert f"replaced 1 earlier row: {DECODE} triton_mm 17." in replaced.out
    assert run("tune", *arguments, "16", "--json").record["earlier"][0]["fate"] == "replaced"
    assert Path("out/table.json").read_bytes() == better


def test_a_table_of_a_database_names_the_rows_that_it_replaces(run):
    run("tune", "--problem", DECODE, "--no-report", "--budget", "16")
    run("tune", "--problem", DECODE, "--no-report", "--budget", "2", "--database", "small.db", "--out", "small")
    found = run("export", "small.db", "--out", "out")
    assert found.status == 0
    assert "replaces out/table.json: 1 difference" in found.err
    assert "triton_mm" in next(line for line in found.err.splitlines() if line.startswith("winner"))
    assert "replaces" not in run("export", "small.db", "--out", "out").err


def test_a_damaged_table_that_is_replaced_is_named(run):
    Path("out").mkdir()
    Path("out/table.json").write_text("{}")
    said = run("tune", "--problem", DECODE, "--budget", "2", "--no-report", "--replace")
    assert said.status == 0
    assert "replaces an earlier table: out/table.json: " in said.err


def test_an_exported_table_is_told_from_the_table(run, tuned, refusal):
    refusal(run("verify", tuned / "out/inductor/inductor_table.json"), "an export for Inductor", "a table is wanted")
    pytest.importorskip("torch")
    other = run("export", tuned / "out/inductor/inductor_table.json", "--warm", "os:getcwd", "--sha256", "0" * 64)
    assert f"is not '{'0' * 64}', which was asked for" in other.err
    own = run("export", tuned / "out/table.json", "--warm", "os:getcwd")
    refusal(own, "is a table", "inductor/inductor_table.json")


def test_a_database_of_another_kind_names_those_that_work(run, refusal):
    refused = run("tune", "--problem", DECODE, "--database", "mysql://user:secret@host/name")
    refusal(refused, "mysql is not one of sqlite, postgresql", "user:***@host")


def test_a_call_without_a_dynamic_size_is_told_what_m_is(run, refusal):
    refusal(
        run("show", "--graphs", "os:getcwd", "--input", "bf16[16,4096]"), "one size of the inputs is open", "m:1..4096"
    )


@pytest.mark.parametrize("problem", [["--problem", DECODE], []])
def test_a_space_of_an_extra_names_the_extra_and_a_device_to_estimate(run, refusal, problem):
    refusal(run("tune", "--space", "cute_gemm", *problem), "[cute]", "--device B200")


@pytest.mark.parametrize(("command", "said"), [("tune", "is kept; to go on"), ("compare", "nothing is kept")])
def test_a_stopped_command_says_what_is_kept(run, monkeypatch, command, said):
    def stop(_: object) -> int:
        raise Stopped(2)

    monkeypatch.setattr(commands, "run", stop)
    ended = run(command)
    assert (ended.status, said in ended.err) == (130, True)


def test_init_writes_a_campaign_and_keeps_one_that_is_there(run, refusal):
    assert run("tune", "--init", "campaign.toml").out.startswith("campaign.toml: ")
    written = Path("campaign.toml").read_text()
    refusal(run("tune", "--init", "campaign.toml"), "campaign.toml is there already")
    assert Path("campaign.toml").read_text() == written


def test_what_a_pruner_dropped_has_not_failed(run):
    arguments = ("--sampler", "random", "--budget", "32", "--pruner", "static", "--no-report")
    pruned = run("tune", "--problem", "1024x1280x3420:bf16:nt", *arguments)
    header = next(line for line in pruned.out.splitlines() if line.startswith("problem"))
    assert "rejected" in header
    assert "failed" not in header
