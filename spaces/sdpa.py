"""Space of torch's own attention, which is timed beside flex_attention where it has the mask."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.flex.attention import Flex, Phase, flex
from gemmtune.engine.records.flex.masks import NONE
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.engine.toolchain.versions import toolchain_of

if TYPE_CHECKING:
    import torch

_KEY = "aten::scaled_dot_product_attention"


class SdpaSpace(Space):
    """One config: `scaled_dot_product_attention`, of which torch chooses the kernel. No table serves it."""

    workload = "flex"
    examples = (
        ("flex:forward:b2:h8:kvh2:s1024:d64:bf16:mask=causal", "H200"),
        ("flex:decode:b8:h32:kvh8:q1:kv4096:d128:bf16", "H200"),
    )

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return no parameters: torch chooses for itself."""
        return ()

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject what the function does not compute, and what no table could leave to it."""
        attention = flex(task.problem)
        if attention.phase is Phase.BACKWARD:
            return Verdict.no("phase", "scaled_dot_product_attention is timed forward")
        if attention.score != NONE:
            return Verdict.no("score", f"scaled_dot_product_attention has no score function {attention.score}")
        if attention.mask not in (NONE, "causal") or (attention.mask != NONE and attention.queries != attention.keys):
            of = f"{attention.mask} of q{attention.queries}:kv{attention.keys}"
            return Verdict.no("mask", f"no fused kernel of scaled_dot_product_attention has the mask {of}")
        if attention.dynamic:
            return Verdict.no("dynamic", "scaled_dot_product_attention is timed at fixed lengths")
        return Verdict.yes()

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return the one config, if it serves the task."""
        return (Config({}),) if self.check(task, Config({})) else ()

    def toolchain(self) -> Toolchain:
        """Return the version of torch."""
        return toolchain_of("torch")

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return the function, which serves all tasks."""
        return _KEY

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Return an artifact that names torch's function; nothing is built."""
        digest = hashlib.sha256(_KEY.encode()).hexdigest()
        return Artifact(_KEY, task.space, "", digest, (), None, 0.0, self.toolchain())

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Return torch's function."""
        return _TorchAttention(flex(task.problem))

    def advice(self, task: Task) -> str:
        """Return the call that a program makes in place of flex_attention."""
        options = "".join(f", {name}=True" for name, its in _options(flex(task.problem)).items() if its)
        return f"call scaled_dot_product_attention(q, k, v{options}) in place of flex_attention"


def _options(attention: Flex) -> dict[str, Any]:
    return {"is_causal": attention.mask != NONE, "enable_gqa": attention.heads != attention.kv_heads}


class _TorchAttention:
    """Call that allocates its output, in a pool that nothing else uses: a captured launch must find it again."""

    def __init__(self, attention: Flex) -> None:
        import torch

        self._call = partial(torch.nn.functional.scaled_dot_product_attention, **_options(attention))
        self._pool = torch.cuda.MemPool()

    def __call__(self, *arguments: torch.Tensor) -> None:
        import torch

        with torch.cuda.use_mem_pool(self._pool):
            result = self._call(*arguments[:3])
        if not torch.cuda.is_current_stream_capturing():
            arguments[-1].copy_(result)

    def close(self) -> None:
        """Give the pool's memory back once no graph uses it."""
        del self._pool
