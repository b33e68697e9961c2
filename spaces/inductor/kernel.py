"""Launch a kernel of a template, as its artifact describes it. Imports torch and cuda.bindings."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.toolchain.launching.cubin import CubinKernel


class TemplateKernel:
    """Loaded kernel of a template."""

    def __init__(
        self, artifact: Artifact, grid: tuple[int, int, int], values: Mapping[str, int], operands: Sequence[str]
    ) -> None:
        """Load the binary into torch's current context.

        Its arguments, which the artifact names, are `values`, equal for all launches, and tensors: the `operands` in
        the order of a call.

        Raises:
            RuntimeError: the driver refuses the binary.
        """
        launch = dict(artifact.launch)
        self._kernel = CubinKernel(
            Path(artifact.path).read_bytes(),
            str(launch["entry"]),
            grid,
            int(launch["threads"]),
            int(launch["shared_bytes"]),
            str(launch["arguments"]).split(),
            values,
            operands,
        )

    def __call__(self, *arguments: torch.Tensor) -> None:
        """Enqueue one launch on torch's current stream, with the tensors of the workload's `argument_names`."""
        self._kernel(*arguments)

    def close(self) -> None:
        """Unload the module from the GPU."""
        self._kernel.close()


class TritonKernel(TemplateKernel):
    """Loaded kernel of a product."""

    def __init__(self, artifact: Artifact, problem: Problem) -> None:
        """Load the binary for launches at the problem's m; raises like `TemplateKernel`."""
        launch = dict(artifact.launch)
        rows = -(-problem.m // int(launch["block_m"])) if "block_m" in launch else 1
        grid = rows * int(launch["grid_x"]), int(launch["grid_y"]), int(launch["grid_z"])
        super().__init__(artifact, grid, {"m": problem.m}, problem.argument_names)


class GroupedKernel(TemplateKernel):
    """Kernel whose blocks write tensor maps into memory of their own, which no two launches at once may share."""

    def __init__(self, artifact: Artifact, product: Grouped) -> None:
        """Load the binary for launches at the product's range size; raises like `TemplateKernel`."""
        launch = dict(artifact.launch)
        blocks = int(launch["blocks"])
        scratch_bytes = max(1, blocks * int(launch["scratch_bytes"]))
        self._scratch = torch.empty(scratch_bytes, dtype=torch.uint8, device="cuda")
        values = {"size": product.size, "scratch": self._scratch.data_ptr()}
        super().__init__(artifact, (blocks, 1, 1), values, product.argument_names)

    def close(self) -> None:
        """Unload the module and free its memory."""
        super().close()
        del self._scratch
