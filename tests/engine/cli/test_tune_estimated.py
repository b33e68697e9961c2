"""`gemmtune tune` for a device that is neither here nor recorded: kernels are built and their times estimated."""

from __future__ import annotations

import re

import pytest

from gemmtune.engine.execution import hosts
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.measurement import Evidence, Status
from gemmtune.engine.store.database import Database
from gemmtune.engine.tables.table_file import read_table

pytestmark = pytest.mark.slow(10)

DECODE = "16x4096x4096:bf16:nt"


ON_PAPER = ("tune", "--device", "B200", "--space", "toy_priced", "--problem", "64x64x64", "--budget", "3")


@pytest.fixture
def on_paper(run, toy_priced):
    """A campaign for a B200, of which there is none here: three builds, one of which fails."""
    return run(*ON_PAPER, "--builders", "1", "--sampler", "random")


def test_a_device_that_is_not_here_is_built_for_and_estimated(run, on_paper, tmp_path):
    assert on_paper.status == 0, on_paper.err
    assert on_paper.err == "No NVIDIA B200 here: kernels are built for it and not timed (estimate: toy model 1.0).\n"
    (row,) = read_table(tmp_path / "out/table.json").rows
    assert [(c.config["TILE"], c.time_ns, c.samples, c.evidence) for c in row.choices] == [
        (2, 2000.0, 0, Evidence.ESTIMATED),
        (3, 3000.0, 0, Evidence.ESTIMATED),
    ]
    assert (row.baseline, row.lead) == (None, None)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "measurements.db",
        "run.json",
        "summary.txt",
        "table.json",
    ]
    with Database.open(tmp_path / "out/measurements.db") as database:
        kept = {m.config["TILE"]: m for m in database.measurements()}
    assert {tile: m.status for tile, m in kept.items()} == {1: Status.BUILD_FAILED, 2: Status.OK, 3: Status.OK}
    assert (kept[3].resources.registers, kept[3].build_seconds) == (48, 0.5)
    assert run(*ON_PAPER, "--report").status == 0
    assert (tmp_path / "out/report.html").exists()


def test_its_summary_says_what_was_built_and_why_nothing_is_exported(on_paper):
    lines = on_paper.out.splitlines()
    assert lines[0] == "NVIDIA B200, built for sm_100a and estimated, not timed: 1 problem in toy_priced"
    assert lines[1] == "sampler exhaustive, budget 3, seed 0"
    assert re.split(r"\s{2,}", lines[3]) == [
        "problem", "estimated µs", "registers", "shared B", "spilled B", "build s", "evals", "failed", "ships",
        "best config",
    ]  # fmt: skip
    assert re.split(r"\s{2,}", lines[5]) == [
        "64x64x64:bf16:nt", "2.0", "32", "2048", "0", "0.5", "3", "1", "toy_priced", "TILE=2"
    ]  # fmt: skip
    notes = [line for line in lines if line.startswith("not exported to ")]
    assert [note.split()[3] for note in notes] == ["inductor:"]  # CuTe's dispatchers run nothing of this space
    assert "1 of 1 rows are estimated, not timed (64x64x64:bf16:nt): tune on an NVIDIA B200" in notes[0]


def test_an_estimate_is_shown_without_an_interval(run, on_paper):
    line = next(line for line in run("show", "out/table.json").out.splitlines() if line.startswith("64x64x64:"))
    assert re.split(r"\s{2,}", line)[:4] == ["64x64x64:bf16:nt", "toy_priced", "2.0", "-"]


def test_programs_are_told_that_it_is_an_estimate(run, toy_priced):
    assert run(*ON_PAPER, "--json").record["evidence"] == ["estimated"]
    (choice, _) = run("show", "out/table.json", "--json").record["rows"][0]["choices"]
    assert (choice["evidence"], choice["samples"]) == ("estimated", 0)
    assert run("show", "out/table.json").out.startswith(
        "NVIDIA B200: 1 row, objective latency, estimated, margin 2.0%\n"
    )


def test_the_same_campaign_again_builds_nothing_and_writes_the_same_bytes(run, on_paper, tmp_path, stored):
    table, rows = (tmp_path / "out/table.json").read_bytes(), stored(tmp_path / "out/measurements.db")
    assert run(*ON_PAPER).out == on_paper.out
    assert (tmp_path / "out/table.json").read_bytes() == table
    assert stored(tmp_path / "out/measurements.db") == rows


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "B200", "--problem", DECODE], ["no GPU here", "of H200; nothing estimates", "triton_mm"]),
        (["--device", "L4", "--space", "toy_priced", "--problem", DECODE], ["of H200", "does not know the NVIDIA L4"]),
        (["--device", "B200", "--space", "toy_priced"], ["of H200", "no problem to tune: name one"]),
        (["--device", "H200", "--space", "aten", "--space", "toy_priced", "--problem", DECODE],
         ["nothing is recorded in space toy_priced", "space aten has no analytic model"]),
    ],
)  # fmt: skip
def test_what_can_neither_be_replayed_nor_estimated_is_refused(
    run, toy_priced, tmp_path, arguments, said, contents, refusal
):
    refusal(run("tune", *arguments), *said)
    assert contents(tmp_path) == {}


def test_a_space_that_is_not_recorded_is_estimated_where_its_device_is(run, toy_priced):
    ran = run("tune", "--device", "H200", "--space", "toy_priced", "--problem", DECODE, "--budget", "2")
    assert (ran.status, ran.err.split(":")[0]) == (0, "No NVIDIA H200 here"), ran.err


def test_a_gpu_of_another_model_does_not_stand_in_the_way(run, toy_priced, monkeypatch, refusal):
    monkeypatch.setattr(hosts, "present_device", lambda: catalogue.device("H200"))
    assert run(*ON_PAPER).err.startswith("No NVIDIA B200 here")
    refusal(
        run("tune", "--device", "B200", "--problem", DECODE),
        "no B200 to tune on: the GPU here is NVIDIA H200 (H200)",
    )
