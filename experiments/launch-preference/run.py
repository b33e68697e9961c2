"""Launch one binary with shared memory preferred over L1 and without. Usage: run.py --json OUT. Needs a CUDA GPU."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from unittest.mock import patch

import torch
from cuda.bindings import driver

from gemmtune.engine.measure.problem_setup import SetupCache
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.toolchain.gpu_info import present_device
from gemmtune.spaces.inductor.kernel import TritonKernel
from gemmtune.spaces.triton_mm import TritonMmSpace

# k = 3420: rows of 6,840 bytes, so operands are copied 8 bytes at a time. k = 3424: 16 bytes at a time.
PROBLEMS = ("1024x1280x3420:bf16:nt", "1024x1280x3424:bf16:nt", "2048x4096x4096:bf16:nt")
TILE = Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 4, "num_warps": 4})
ROUNDS = 5


class WithoutPreference(TritonKernel):
    """Kernel that sets only the dynamic shared memory, which the launch needs."""

    def __init__(self, artifact, problem) -> None:
        def dynamic_alone(function, _) -> None:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            (status,) = driver.cuFuncSetAttribute(function, attribute, artifact.resources.shared_bytes)
            assert status == driver.CUresult.CUDA_SUCCESS, status

        with patch("gemmtune.spaces.inductor.kernel.prefer_shared_memory", dynamic_alone):
            super().__init__(artifact, problem)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", type=Path, required=True, help="where the results go")
    given = arguments.parse_args()
    device = present_device()
    if device is None:
        raise SystemExit("no GPU found: this experiment times on one")
    setups = SetupCache(True, torch.device("cuda", 0))
    space, rows = TritonMmSpace(), []
    with tempfile.TemporaryDirectory() as folder:
        for text in PROBLEMS:
            task = Task(Problem.parse(text), device, "triton_mm")
            artifact = space.build(task, TILE, Path(folder))
            operands = setups.get(task.problem).sets.kernel[0]
            timers = {}
            for name, kind in (("preferred", TritonKernel), ("not", WithoutPreference)):
                kernel = kind(artifact, task.problem)
                kernel(operands.a, operands.b, operands.out)  # loads it
                timers[name] = setups.timer(kernel, task.problem)
            samples = {name: [] for name in timers}
            for number in range(ROUNDS):
                for name, timer in timers.items():
                    samples[name] += [round(sample / 1e3, 2) for sample in timer.block(number).samples_ns]
            preferred, without = median(samples["preferred"]), median(samples["not"])
            rows.append({"problem": text, "preferred_us": preferred, "not_us": without, "samples_us": samples})
            print(f"{text:<24} preferred {preferred:7.1f} us  not {without:7.1f} us  ratio {preferred / without:5.2f}")
    facts = {"device": device.name, "torch": torch.__version__, "config": dict(TILE), "rows": rows}
    given.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
