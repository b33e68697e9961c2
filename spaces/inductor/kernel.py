"""Launch a kernel of a template, as its artifact describes it. Imports torch and cuda.bindings."""

from pathlib import Path

import torch

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.toolchain.launching.cubin import CubinKernel


class TritonKernel:
    """Loaded kernel of a template, with the arguments its artifact names: operands, outputs, m."""

    def __init__(self, artifact: Artifact, problem: Problem) -> None:
        """Load the binary into torch's current context, for launches at the problem's m.

        Raises:
            RuntimeError: the driver refuses the binary.
        """
        launch = dict(artifact.launch)
        rows = -(-problem.m // int(launch["block_m"])) if "block_m" in launch else 1
        self._kernel = CubinKernel(
            Path(artifact.path).read_bytes(),
            str(launch["entry"]),
            (rows * int(launch["grid_x"]), int(launch["grid_y"]), int(launch["grid_z"])),
            int(launch["threads"]),
            int(launch["shared_bytes"]),
            str(launch["arguments"]).split(),
            {"m": problem.m},
            problem.argument_names,
        )

    def __call__(self, *arguments: torch.Tensor) -> None:
        """Enqueue one launch on torch's current stream, with the tensors of `Problem.argument_names`."""
        self._kernel(*arguments)

    def close(self) -> None:
        """Unload the module."""
        self._kernel.close()
