"""A bench whose GPU has too little memory left for a job, because it keeps the operands of other problems."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace

import pytest

from gemmtune.engine.measure.jobs import FinalJob, MeasureJob
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import ReferenceLevel, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.toolchain.gpu_info import present_device

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmtune.engine.measure.bench import Bench  # noqa: E402 (it imports torch)
from gemmtune.engine.measure.operands.operand_memory import OperandMemory  # noqa: E402 (as above)
from gemmtune.engine.measure.operands.operand_sets import OperandSets  # noqa: E402 (as above)
from gemmtune.engine.measure.problem_setup import ProblemSetup, SetupCache  # noqa: E402 (as above)

PROBLEMS = [Problem.parse(f"{m}x48x80") for m in (64, 65, 66, 67)]
MEMORY = OperandMemory(torch.device("cpu"), [], list)
TORCH = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 980.00 MiB.")
DRIVER = RuntimeError("CUDA driver: CUDA_ERROR_OUT_OF_MEMORY")
TRITON = RuntimeError("Triton Error [CUDA]: out of memory")


@pytest.fixture
def setups():
    """A cache with the setup of each problem; all keep about as many bytes."""
    cache, level = SetupCache.__new__(SetupCache), ReferenceLevel("torch 2.13.0", "GPU-0", 1000.0)
    entries = [(p, ProblemSetup(p, OperandSets.make(p, True, 1, 1 << 20, MEMORY), level)) for p in PROBLEMS]
    cache._entries = OrderedDict((problem, (setup, None)) for problem, setup in entries)
    return cache


@pytest.fixture
def bench(setups, monkeypatch):
    """A function that returns a bench, whose space raises these errors in turn, and the job of the last problem."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def made(errors):
        def load(*_):
            raise errors.pop(0)

        bench = Bench.__new__(Bench)
        bench._protocol = protocol("graph-warm-l2")
        bench._setups, bench._loaded, bench._spaces = setups, None, {"triton_mm": SimpleNamespace(load=load)}
        artifact = Artifact("key", "triton_mm", "", "digest", (), None, 0.1, Toolchain(()))
        job = MeasureJob(Task(PROBLEMS[-1], catalogue.device("H200"), "triton_mm"), Config({}), artifact)
        return bench, job

    return made


def test_room_is_made_by_the_oldest_half_of_what_other_problems_keep(setups):
    setups.get(PROBLEMS[0])
    setups.make_room(PROBLEMS[0])
    assert list(setups._entries) == [PROBLEMS[3], PROBLEMS[0]]
    setups.make_room(PROBLEMS[0])
    assert setups.bytes_besides(PROBLEMS[0]) == 0


@pytest.mark.parametrize("short", [TORCH, DRIVER, TRITON])
def test_a_config_that_finds_too_little_memory_is_measured_again_with_more(bench, setups, short):
    errors = [short, ValueError("bad")]
    made, job = bench(errors)
    reading = made(job)
    assert (reading.status, reading.reason, errors) == (Status.RUN_FAILED, "ValueError: bad", [])
    assert setups.bytes_besides(PROBLEMS[-1]) > 0


def test_a_config_that_needs_more_than_all_memory_fails_once_nothing_else_is_kept(bench, setups):
    errors = [TORCH] * 10
    made, job = bench(errors)
    reading = made(job)
    assert (reading.status, reading.reason) == (Status.RUN_FAILED, f"OutOfMemoryError: {TORCH}")
    assert (list(setups._entries), len(errors)) == ([PROBLEMS[-1]], 7)


def test_a_final_that_finds_too_little_memory_is_held_again(bench):
    errors = [TORCH, ValueError("bad")]
    made, job = bench(errors)
    assert made(FinalJob((job,))).failed == ((0, "ValueError: bad"),)


@pytest.mark.gpu
@pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU and gemmtune[triton]")
def test_a_problem_that_fits_only_without_another_is_measured_and_ranked(tmp_path):
    bench, space = Bench(protocol("graph-cold-l2")), registry.space("aten")

    def job(problem):
        task = Task(Problem.parse(problem), present_device(), "aten")
        [config] = space.seeds(task)[:1]
        return MeasureJob(task, config, space.build(task, config, tmp_path))

    small, first, second = (job(f"{mnk}:bf16:nt") for mnk in ("256x256x256", "8192x65536x256", "8192x65536x512"))
    bench(small)  # allocates the regions that all problems share
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    assert bench(first).status is Status.OK
    needed, kept = torch.cuda.max_memory_allocated() - before, bench._setups.bytes_besides(second.task.problem)
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    filler = torch.empty(free - needed + kept // 2, dtype=torch.int8, device="cuda")
    reading = bench(second)
    assert (reading.status, reading.reason) == (Status.OK, "")
    assert bench._setups.bytes_besides(second.task.problem) == 0
    final = bench(FinalJob((first,)))
    assert (len(final.ranking), final.failed) == (1, ())
    del filler
