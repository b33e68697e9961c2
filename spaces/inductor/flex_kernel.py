"""Launch the cubins of Inductor's templates of flex_attention. Imports torch and cuda.bindings."""

from collections.abc import Mapping

import torch

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.flex.attention import Flex, Phase
from gemmtune.spaces.inductor.kernel import TemplateKernel

_PARTS = ("acc", "m", "l")


class FlexKernel(TemplateKernel):
    """Kernel of attention; one for decoding writes parts, which another of Inductor's kernels sums.

    That kernel is equal for all configs, so it is not timed: `complete` sums the parts for those who read the output.
    """

    def __init__(self, artifact: Artifact, attention: Flex) -> None:
        """Load the binary; raises like `TemplateKernel`."""
        launch = dict(artifact.launch)
        self._parts: tuple[torch.Tensor, ...] = ()
        if attention.phase is Phase.DECODE:
            shape = (attention.batch, int(launch["splits"]), attention.heads, attention.queries)
            sizes = ((*shape, attention.value_dim), shape, shape)
            self._parts = tuple(torch.empty(size, dtype=torch.float32, device="cuda") for size in sizes)
        grid = _blocks(attention, launch), int(launch["grid_y"]), int(launch["grid_z"])
        values = {name: part.data_ptr() for name, part in zip(_PARTS, self._parts, strict=False)}
        values["size"] = attention.size
        super().__init__(artifact, grid, values, attention.argument_names)

    def complete(self, *arguments: torch.Tensor) -> None:
        """Sum the parts of the last launch into the output, behind it on torch's current stream."""
        if self._parts:
            arguments[-1].copy_(summed(*self._parts))

    def close(self) -> None:
        """Unload the module and free its memory."""
        super().close()
        self._parts = ()


def _blocks(attention: Flex, launch: Mapping[str, int | str]) -> int:
    """Return the blocks along x; of a kernel that takes lengths at launch, those for the attention's lengths."""
    a = attention
    if "block_m" in launch:
        return -(-a.queries // int(launch["block_m"]))
    if "block_m2" in launch:
        of_queries, of_keys = -(-a.queries // int(launch["block_m2"])), -(-a.keys // int(launch["block_n1"]))
        return of_queries * (a.heads // a.kv_heads) + of_keys
    return int(launch["grid_x"])


def summed(acc: torch.Tensor, m: torch.Tensor, l: torch.Tensor) -> torch.Tensor:  # noqa: E741 (Inductor's name)
    """Return the output of a decoded head's parts, as `create_flex_decoding_kernel` of Inductor sums them.

    Args:
        acc: weighted sums of values, shape (batch, parts, heads, queries, elements).
        m: largest score to base 2, shape (batch, parts, heads, queries).
        l: sum of weights, of that shape.
    """
    largest = m.amax(1, keepdim=True)
    factor = torch.exp2(torch.where(largest == -torch.inf, 0, m - largest))
    total = (l * factor).sum(1)
    total = torch.where(largest.squeeze(1) == -torch.inf, 1.0, total)
    return (acc * factor[..., None]).sum(1) / total[..., None]
