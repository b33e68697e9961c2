"""Calls of flex_attention in a graph, as problems to tune. Imports torch."""

from torch.fx import Node

from gemmtune.engine.consumers.inductor.loader.explain.table_use import problem_name
from gemmtune.engine.consumers.inductor.loader.flex.flex_calls import BACKWARD, FORWARD, FlexCall, flex_call
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.flex.attention_text import decodes


def flex_problem(node: Node) -> tuple[Flex, FlexCall] | str:
    """Return the problem of a call of flex_attention, or why it is none; empty for a call of something else."""
    name = getattr(node.target, "__name__", "")
    if name not in (FORWARD, BACKWARD):
        return ""
    try:
        call = flex_call(node, _phase(node, name))
        return Flex.parse(problem_name(call.key, call.hint)), call
    except (ValueError, ProblemError) as error:
        return str(error)


def _phase(node: Node, name: str) -> str:
    """Return the kernel that Inductor makes of a call whose options are torch's own."""
    q, k = (each.meta["val"] for each in node.args[:2])  # type: ignore[union-attr] # nodes
    if name == BACKWARD:
        return "backward"
    heads = node.args[4][2].meta["val"].shape[1]  # type: ignore[index, union-attr] # a tuple of nodes
    return "decode" if decodes(q.shape[2], q.shape[1], k.shape[1], of_heads=heads != 1) else "forward"
