"""Launch the cubin of Inductor's template of grouped products. Imports torch and cuda.bindings."""

from pathlib import Path

import torch

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.toolchain.launching.cubin import CubinKernel


class GroupedKernel:
    """Kernel whose blocks write tensor maps into memory of their own, which no two launches at once may share."""

    def __init__(self, artifact: Artifact, product: Grouped) -> None:
        """Load the binary into torch's current context, for launches at the product's range size.

        Raises:
            RuntimeError: the driver refuses the binary.
        """
        launch = dict(artifact.launch)
        blocks = int(launch["blocks"])
        scratch_bytes = max(1, blocks * int(launch["scratch_bytes"]))
        self._scratch = torch.empty(scratch_bytes, dtype=torch.uint8, device="cuda")
        self._kernel = CubinKernel(
            Path(artifact.path).read_bytes(),
            str(launch["entry"]),
            (blocks, 1, 1),
            int(launch["threads"]),
            int(launch["shared_bytes"]),
            str(launch["arguments"]).split(),
            {"size": product.size, "scratch": self._scratch.data_ptr()},
            product.argument_names,
        )

    def __call__(self, *arguments: torch.Tensor) -> None:
        """Enqueue one launch on torch's current stream, with the tensors of `Grouped.argument_names`."""
        self._kernel(*arguments)

    def close(self) -> None:
        """Unload the module and free its memory."""
        self._kernel.close()
        del self._scratch
