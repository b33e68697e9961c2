"""Outcome of a build: the limit on shared memory, the file that stays, and the reason of a failure in a line."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import BuildError
from gemmtune.spaces.common.build_result import artifact_of, reason_of

DEVICE = replace(catalogue.device("H200"), shared_memory_per_block_bytes=1000)
TASK = Task(Problem(16, 64, 128), DEVICE, "triton_mm")
SPACE = registry.space("triton_mm")
CONFIG = SPACE.seeds(Task(Problem(16, 64, 128), catalogue.device("H200"), "triton_mm"))[0]


def built(folder, shared_bytes, config=CONFIG, task=TASK):
    (folder / "made").mkdir(exist_ok=True)
    file = folder / "made" / "kernel.cubin"
    file.write_bytes(b"code")
    resources = Resources(registers=32, spill_bytes=0, shared_bytes=shared_bytes, threads=128)
    started = time.perf_counter() - 5.0
    return artifact_of(SPACE, task, config, file, folder, (("grid_x", 3),), resources, started), resources


def test_a_binary_is_moved_to_a_file_of_its_task_and_config(tmp_path):
    artifact, resources = built(tmp_path, 1000)
    assert (artifact.key, artifact.space) == (SPACE.artifact_key(TASK, CONFIG), "triton_mm")
    assert artifact.digest == hashlib.sha256(b"code").hexdigest()
    assert (artifact.launch, artifact.resources) == ((("grid_x", 3),), resources)
    assert 5.0 <= artifact.build_seconds < 60.0
    assert artifact.toolchain == SPACE.toolchain()
    other = built(tmp_path, 1000, task=replace(TASK, problem=Problem(32, 64, 128)))[0]
    paths = {artifact.path, other.path, built(tmp_path, 1, config=Config({**CONFIG, "num_stages": 8}))[0].path}
    assert len(paths) == 3
    assert {str(path) for path in tmp_path.glob("*.cubin")} == paths


def test_a_binary_with_more_shared_memory_than_a_block_may_have_is_refused(tmp_path):
    with pytest.raises(BuildError) as refused:
        built(tmp_path, 1001)
    assert str(refused.value) == "the binary needs 1001 B of shared memory > 1000 B per block"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("one", "ValueError: one"),
        ("", "ValueError: "),
        ("first\n\n  middle\n last \n", "ValueError: first … last"),
        ("same\nother\nsame", "ValueError: same"),
        ("\x1b[31mred\x1b[0m", "ValueError: red"),
        ("\x1b[1;31m\nred", "ValueError: red"),
        ("x" * 600, "ValueError: " + "x" * 488),
    ],
)
def test_a_reason_is_one_line_of_the_first_and_the_last_line(text, reason):
    assert reason_of(ValueError(text)) == reason
