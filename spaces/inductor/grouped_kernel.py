"""Launch the cubin of Inductor's template of grouped products. Imports torch and cuda.bindings."""

import torch

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.spaces.inductor.kernel import TemplateKernel


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
