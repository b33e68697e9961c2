"""`gemmtune measure`: configs of one's own beside the row and the vendor library."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

import pytest

from gemmtune.engine.execution import hosts
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final, Finalist
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes
from gemmtune.engine.tables.table_file import read_table

DECODE = "16x4096x4096:bf16:nt"
MINE = "BLOCK_M=16 BLOCK_N=64 BLOCK_K=128 GROUP_M=8 num_stages=5 num_warps=4"
BAD = "BLOCK_M=16 BLOCK_N=64 BLOCK_K=32 GROUP_M=8 num_stages=4 num_warps=4"
OTHER = "BLOCK_M=16,BLOCK_N=64,BLOCK_K=64,GROUP_M=8,num_stages=4,num_warps=4"


def kernels(ran):
    assert ran.status == 0, ran.err
    return {each["role"]: each for each in ran.record["problems"][0]["kernels"]}


def config(text):
    pairs = (part.split("=") for part in text.replace(",", " ").split())
    return Config({name: int(value) for name, value in pairs})


def test_a_recorded_config_has_its_landscapes_numbers_beside_row_and_library(run, tuned, tmp_path):
    shutil.copytree(tuned / "out", tmp_path / "out")
    (recorded,) = [x for x in read_landscapes(embedded("triton_mm")[0]) if x.name == DECODE]
    (row,) = [row for row in read_table(tmp_path / "out/table.json").rows if row.problem.name == DECODE]
    found = kernels(run("measure", "--problem", DECODE, "--config", MINE, "--json"))
    point, mine = recorded.points[config(MINE)], found["yours"]
    assert (mine["time_ns"], mine["registers"]) == (point.time_ns, point.resources.registers)
    assert found["row"]["config"] == dict(row.choices[0].config)
    assert found["row"]["time_ns"] == row.choices[0].time_ns < mine["time_ns"]
    assert mine["lead"] == pytest.approx(row.baseline.time_ns / point.time_ns - 1)
    assert (found["row"]["beats"], mine["beats"]) == (["baseline"], [])


def test_without_a_table_the_databases_best_is_measured_and_a_better_config_ships_later(
    run, tmp_path, recorded_configs
):
    (recorded,) = [x for x in read_landscapes(embedded("triton_mm")[0]) if x.name == DECODE]
    best = min(recorded.points.values(), key=lambda point: point.time_ns or 1e9)
    words = " ".join(f"{name}={value}" for name, value in best.config.items())
    assert kernels(run("measure", "--problem", DECODE, "--config", MINE, "--json")).keys() == {"yours", "baseline"}
    found = kernels(run("measure", "--problem", DECODE, "--config", words, "--json"))
    assert found["best known"]["config"] == dict(config(MINE))
    assert found["yours"]["lead"] > 0 > found["best known"]["lead"]
    assert run("tune", "--problem", DECODE, "--budget", "1", "--sampler", "random").status == 0
    assert read_table(tmp_path / "out/table.json").rows[0].choices[0].config == best.config


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("BLOCK_M=16 BLOK_N=64", "no param 'BLOK_N'; did you mean BLOCK_N? known: BLOCK_M, BLOCK_N"),
        ("BLOCK_M=16", "lacks BLOCK_N=16|32|64|128|256, "),
        ("BLOCK_M", "'BLOCK_M' is not NAME=VALUE"),
        ('{"BLOCK_M": 16', "is not JSON"),
        (f"{MINE} BLOCK_M=32", "has BLOCK_M twice"),
        (MINE.replace("BLOCK_K=128", "BLOCK_K=512"), "BLOCK_K=512 is not a value of triton_mm; take one of 16, 32, "),
        (
            MINE.replace("BLOCK_K=128", "BLOCK_K=256").replace("stages=5", "stages=8"),
            "> 232448 B per block at 8 stages",
        ),
    ],
)
def test_a_bad_config_is_refused_with_its_value_and_bound(run, refusal, given, said):
    ran = run("measure", "--problem", DECODE, "--config", given)
    refusal(ran._replace(err=ran.err.removeprefix("No GPU found; using the recorded landscapes.\n")), said)
    assert not Path("out").exists()


def test_what_was_not_recorded_is_refused_and_leaves_no_database(run, refusal, small):
    ran = run("measure", "--problem", DECODE, "--config", MINE, "--replay", small)
    refusal(ran, "not in the recorded landscape small.csv, which holds", "measure it on a GPU")
    refusal(run("measure", "--problem", DECODE.replace("16x", "17x", 1), "--config", MINE), "is not recorded in space")
    assert not Path("out").exists()


def test_a_problem_and_a_config_are_asked_for(run, refusal):
    refusal(run("measure", "--config", MINE), "no problem to measure")
    refusal(run("measure", "--problem", DECODE), "no config to measure")


TIMES = {config(MINE): 11e3, config(OTHER): 9e3, config(BAD): 0.0, Config({}): 12e3}


class Simulated(Executor):
    """A GPU of which every config has one time, alone and in finals; BAD gives a wrong result."""

    evidence, holds_finals, parallel = Evidence.MEASURED, True, 1
    finals: ClassVar[list[list[Config]]] = []

    def __init__(self, spaces, protocol_name, **options):
        self.protocol_name, self.finished, Simulated.finals = protocol_name, [], []

    def toolchain(self, task):
        return Toolchain((("simulated", "1"),))

    def protocol(self, task):
        return self.protocol_name

    def submit(self, task, config):
        time_ns = TIMES[config]
        self.finished.append(
            Measurement(
                Status.OK if time_ns else Status.WRONG_RESULT, "" if time_ns else "error norm 0.3 > 8e-03",
                (time_ns,) * 32 if time_ns else (), Estimate(time_ns, time_ns, time_ns) if time_ns else None,
                task=task, config=config, evidence=self.evidence, protocol=self.protocol_name,
                toolchain=self.toolchain(task), worker="simulated", created_at="2026-11-21",
                resources=Resources(64, 1024, 8, 128),
            )
        )  # fmt: skip

    def hold_final(self, candidates):
        Simulated.finals.append([config for _, config in candidates])
        fastest, *_ = met = sorted(candidates, key=lambda pair: TIMES[pair[1]])
        finalists = []
        for task, config in met:
            ns, ratio = TIMES[config], TIMES[config] / TIMES[fastest[1]]
            behind = (ratio - 1.01, ratio - 0.99) if ratio > 1 else (0.0, 0.0)
            finalists.append(Finalist(task, config, self.toolchain(task), Estimate(ns, ns, ns), (ns,) * 48, behind))
        self.finished.append(Final(tuple(finalists), self.protocol_name, "simulated", "2026-11-21T13:00:00"))

    def collect(self, timeout_seconds):
        finished, self.finished = self.finished, []
        return finished


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(hosts, "present_device", lambda: catalogue.device("H200"))
    monkeypatch.setattr(hosts, "LocalExecutor", Simulated)


def test_on_a_gpu_the_kernels_of_a_problem_meet_in_one_final(run, gpu, tmp_path):
    both = "measure", "--problem", DECODE, "--config", MINE, "--config", OTHER
    first = run(*both)
    assert Simulated.finals == [[config(OTHER), config(MINE), Config({})]]
    assert "yours 2 is the fastest, measured in paired rounds" in first.out
    assert "21.2% to 23.2%" in first.out  # 11 µs over 9 µs, and 1 % to each side
    assert run(*both).out == first.out
    assert Simulated.finals == []  # the database knows it
    with Database.open(tmp_path / "out/measurements.db") as store:
        assert len(store.finals(*next((task.problem, task.device) for task in store.tasks()))) == 1


def test_a_slow_config_alone_leaves_the_databases_best_in_the_final_and_in_the_row(run, gpu):
    run("measure", "--problem", DECODE, "--config", OTHER)
    found = kernels(run("measure", "--problem", DECODE, "--config", MINE, "--json"))
    assert Simulated.finals == [[config(OTHER), config(MINE), Config({})]]
    assert (found["best known"]["behind"], found["best known"]["beats"]) == ([0.0, 0.0], ["baseline"])
    assert run("table", "out/measurements.db", "--out", "made").status == 0
    assert read_table(Path("made/table.json")).rows[0].choices[0].config == config(OTHER)


def test_a_config_that_fails_is_told_with_its_reason_and_the_others_are_measured(run, gpu):
    ran = run("measure", "--problem", DECODE, "--config", BAD, "--config", MINE)
    assert ran.status == 1
    assert "yours 1: error norm 0.3 > 8e-03" in ran.out
    assert Simulated.finals == [[config(MINE), Config({})]]


def test_a_table_of_another_gpu_is_refused(run, gpu, monkeypatch, refusal, tuned):
    monkeypatch.setattr(hosts, "present_device", lambda: catalogue.device("B200"))
    ran = run("measure", "--problem", DECODE, "--config", MINE, "--table", tuned / "out")
    refusal(ran, "H200", "B200")
