"""Common part of the spaces of decode kernels: everything but the params and their tiling."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.kernel_call import RUNTIME_PACKAGES, Argument
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.engine.toolchain.versions import toolchain_of
from gemmtune.spaces.cute.decode.occupancy import features, rough_time_ns
from gemmtune.spaces.cute.decode.rules import fits, serves
from gemmtune.spaces.cute.decode.tiling import Tiling

REVISION = "4"
"""Revision of the kernels' source, part of their toolchain: raise it with every change of a binary."""
_SEEDS = 12
_DEEP = 3  # stages from which on many loads are ahead


class DecodeSpace(Space):
    """Kernels of gemmtune's own for products of few rows, see `spaces/cute/decode/kernels.py`.

    A binary takes the sizes at launch, so problems of one m share it, with any n and k. It is right for every m, so a
    row may serve a range, and a dynamic m has the kernels of a static one.
    """

    preload = ("gemmtune.spaces.cute.decode.build",)
    needs = RUNTIME_PACKAGES
    most_rows: ClassVar[int]
    """Largest m that the kernels are made for."""

    @abstractmethod
    def tiling(self, problem: Problem, config: Config) -> Tiling:
        """Return the work of each thread."""

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject problems that the kernels do not compute, and tilings that do not fit."""
        verdict = serves(task, self.most_rows)
        return verdict and fits(task, config, self.tiling(gemm(task.problem), config))

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return the tiles and splits of k that a rough model finds fastest, with each kind of loads."""
        feasible = [config for config in self.points(task) if not config["use_pdl"] and self.check(task, config)]
        tilings = [self.tiling(gemm(task.problem), config) for config in feasible]
        times = [rough_time_ns(task, tiling) for tiling in tilings]
        found: dict[tuple[int, ...], Config] = {}
        for number in sorted(range(len(feasible)), key=times.__getitem__):
            tiling = tilings[number]
            loads = min(tiling.stages, _DEEP), tiling.shares_a
            found.setdefault((tiling.tile_n, tiling.warps_k, tiling.split_k, *loads), feasible[number])
        return tuple(found.values())[:_SEEDS]

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """Return how the blocks fill the GPU, and whether launches overlap."""
        return {**features(task, self.tiling(gemm(task.problem), config)), "overlap": float(bool(config["use_pdl"]))}

    def toolchain(self) -> Toolchain:
        """Return the versions of the DSL, which compiles, of TVM-FFI, which launches, and of the kernels."""
        versions = toolchain_of(*RUNTIME_PACKAGES, extra="cute").versions
        return Toolchain(tuple(sorted((*versions, ("gemmtune-decode-kernels", REVISION)))))

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return all that a binary depends on: target, types, bias, epilogue, rows of a block and config."""
        problem = gemm(task.problem)
        rows = self.tiling(problem, config).rows
        operands = problem.a_dtype if problem.a_dtype is problem.b_dtype else f"{problem.a_dtype}.{problem.b_dtype}"
        types = f"{operands}.{problem.out_dtype}.{problem.bias}.{problem.epilogue}"
        return f"{task.space}/{task.device.arch}/{types}/{rows}/{config.digest}"

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Cross-compile the kernel for the task's device."""
        from gemmtune.spaces.cute.decode.build import build

        return build(self, task, config, self.tiling(gemm(task.problem), config), folder)

    def deployed_call(self, artifact: Artifact, task: Task) -> list[Argument]:
        """Return A, B as n×k, the output, the bias or any tensor with the epilogue's operands, and the stream."""
        return ["a", "b.mT", "out", ["bias", *(each.name for each in gemm(task.problem).epilogue.operands)], "stream"]

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Link the object and call it through TVM-FFI."""
        from gemmtune.spaces.cute.artifact import CuteKernel

        return CuteKernel(artifact, self.deployed_call(artifact, task), gemm(task.problem).argument_names)
