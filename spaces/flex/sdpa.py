"""Space of torch's own attention, which is timed beside flex_attention where it has the mask."""

from functools import partial
from typing import Any

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.flex.attention import Flex, Phase, flex
from gemmtune.engine.records.flex.masks import NONE
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable
from gemmtune.spaces.common.one_config import PooledCall, TorchFunctionSpace

_KEY = "aten::scaled_dot_product_attention"


class SdpaSpace(TorchFunctionSpace):
    """One config: `scaled_dot_product_attention`, of which torch chooses the kernel. No table serves it."""

    workload = "flex"
    examples = (
        ("flex:forward:b2:h8:kvh2:s1024:d64:bf16:mask=causal", "H200"),
        ("flex:decode:b8:h32:kvh8:q1:kv4096:d128:bf16", "H200"),
    )

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

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return the function, which serves all tasks."""
        return _KEY

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Return torch's function, called with queries, keys and values alone; its result is the output."""
        import torch

        call = partial(torch.nn.functional.scaled_dot_product_attention, **_options(flex(task.problem)))
        return PooledCall(lambda *arguments: call(*arguments[:3]), output=-1)

    def advice(self, task: Task) -> str:
        """Return the call that a program makes in place of flex_attention."""
        options = "".join(f", {name}=True" for name, its in _options(flex(task.problem)).items() if its)
        return f"call scaled_dot_product_attention(q, k, v{options}) in place of flex_attention"


def _options(attention: Flex) -> dict[str, Any]:
    return {"is_causal": attention.mask != NONE, "enable_gqa": attention.heads != attention.kv_heads}
