from __future__ import annotations

import pickle
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gemmtune.engine.measure import builder
from gemmtune.engine.measure.builder import BuildFailure, BuildJob, builder_pool
from gemmtune.engine.processes.process_pool import Loss, wait_for_any
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import UnknownPlugin
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry

pytestmark = pytest.mark.slow(2, together="probes")

FOLDER = Path(__file__).parent


def build(spaces, jobs, folder, deadline_seconds=100.0):
    """Build `jobs` in one pool of two processes: config to outcome."""
    pool = builder_pool(spaces, folder, 2, deadline_seconds)
    outcomes = {}
    try:
        for job in jobs:
            pool.submit(job)
        while pool.pending:
            wait_for_any([pool], 30)
            outcomes |= {outcome.job.config: outcome for outcome in pool.collect()}
    finally:
        pool.close()
    return outcomes


def test_kernels_for_an_absent_gpu_are_built_here(tmp_path):
    if find_spec("torch") is None or find_spec("triton") is None:
        pytest.skip("torch or triton is not installed")
    problem, device = Problem.parse("512x512x512:bf16:nt"), catalogue.device("H200")
    tile = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}
    fits, more = Config(tile), Config(tile | {"num_stages": 4})
    too_large = Config(tile | {"BLOCK_K": 256, "num_stages": 5})
    aten, triton_mm = Task(problem, device, "aten"), Task(problem, device, "triton_mm")
    jobs = [BuildJob(triton_mm, config) for config in (fits, more, too_large)] + [BuildJob(aten, Config({}))]
    outcomes = build(("triton_mm", "aten"), jobs, tmp_path)
    assert {outcome.loss for outcome in outcomes.values()} == {None}

    first, second = (outcomes[config].result for config in (fits, more))
    assert {str(path) for path in tmp_path.iterdir()} == {first.path, second.path}
    assert (first.resources.shared_bytes, second.resources.shared_bytes) == (3 * 8192, 4 * 8192)
    assert first.resources.threads == 128
    assert first.key == registry.space("triton_mm").artifact_key(triton_mm, fits) != second.key
    assert first.toolchain == registry.space("triton_mm").toolchain()

    refusal = outcomes[too_large].result
    assert isinstance(refusal, BuildFailure)
    assert refusal.reason == "the binary needs 327680 B of shared memory > 232448 B per block"
    assert refusal.build_seconds > 0

    vendor = outcomes[Config({})].result
    assert (vendor.key, vendor.path, vendor.resources) == ("aten::mm", "", None)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A task of the toy space, which is registered as any other distribution registers a space."""
    site = tmp_path / "site"
    metadata = site / "toy_builds-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-builds\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[gemmtune.spaces]\ntoy_builds = toy_builds:ToyBuilds\n")
    monkeypatch.setattr(sys, "path", [str(site), str(FOLDER), *sys.path])
    return Task(Problem.parse("16x16x16"), catalogue.device("H200"), "toy_builds")


def test_every_outcome_of_a_build_is_reported(toy, tmp_path):
    folder = tmp_path / "built"
    folder.mkdir()
    ends = ("hangs", "exits", "raises", "refuses", "builds")
    jobs = [BuildJob(toy, Config({"end": end})) for end in ends]
    outcomes = {str(config["end"]): outcome for config, outcome in build(("toy_builds",), jobs, folder, 3.0).items()}
    assert set(outcomes) == set(ends)

    assert outcomes["hangs"].loss is Loss.TIMED_OUT
    assert outcomes["hangs"].reason == "still running after 3 s"
    assert outcomes["exits"].loss is Loss.DIED
    assert outcomes["exits"].reason == "its process ended (exit status 9)"
    refused, raised = outcomes["refuses"].result, outcomes["raises"].result
    assert refused.reason == "needs 300000 B of shared memory > 232448 B a block"
    assert re.fullmatch(r"KeyError: 'BLOCK_M' \(\S*toy_builds.py, line \d+\)", raised.reason)
    assert min(refused.build_seconds, raised.build_seconds) >= 0
    built = outcomes["builds"].result
    assert built.key == registry.space("toy_builds").artifact_key(toy, Config({"end": "builds"}))
    assert Path(built.path).read_text() == '{"end":"builds"}  niceness 10'  # and it sees no GPU


def test_an_unknown_space_is_refused_before_a_process_starts(tmp_path):
    with pytest.raises(Exception, match=r"no space 'nonesuch'; known: "):
        builder_pool(("nonesuch",), tmp_path, 1, 1.0)


def test_jobs_and_failures_pickle(toy):
    job, failure = BuildJob(toy, Config({"end": "builds"})), BuildFailure("does not fit", 0.25)
    assert pickle.loads(pickle.dumps((job, failure))) == (job, failure)


def test_the_imports_of_builders_begin_before_there_is_a_pool(monkeypatch):
    begun = []
    monkeypatch.setattr(builder, "start_context", lambda *given: begun.append(given))
    builder.prepare_builders(["triton_mm", "aten"])
    [(imports, environment)] = begun
    assert imports[0] == builder.__name__
    assert imports[1:] == registry.preload(["triton_mm", "aten"])
    assert environment == {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    with pytest.raises(UnknownPlugin, match="none_such"):
        builder.prepare_builders(["none_such"])
    assert len(begun) == 1
