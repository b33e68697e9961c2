"""Render and compile Inductor's templates of flex_attention for a GPU that need not be present.

Imports torch and triton.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from torch._dynamo.source import ConstantSource
from torch._higher_order_ops.flex_attention import create_fw_bw_graph
from torch._inductor import ir
from torch._inductor.choices import InductorChoices
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel.flex import flex_attention as templates
from torch._inductor.kernel.flex import flex_decoding
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.nn.attention.flex_attention import BlockMask, _create_empty_block_mask
from torch.utils._sympy.functions import FloorDiv

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.flex.attention import Flex, Phase, flex
from gemmtune.engine.records.flex.functions import TENSORS
from gemmtune.engine.records.flex.masks import NONE
from gemmtune.engine.records.flex.tensors import tensors_of
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.spaces.common.build_result import refusals
from gemmtune.spaces.flex.kind import tensors_read
from gemmtune.spaces.flex.torch_functions import mask_function, score_function
from gemmtune.spaces.inductor.build import artifact, compiled
from gemmtune.spaces.inductor.epilogue import GeneratedKernel, input_buffer
from gemmtune.spaces.inductor.target import environment, target

# Inductor's names of the arguments, and ours.
_ARGUMENTS = {
    **{f"arg_{name}": name.lower() for name in ("Q", "K", "V", "LSE", "MAX", "M", "L", "DELTA", "DO", "DQ", "DV")},
    **{f"arg_{full}{side}_NUM_BLKS": f"{full}{side}_num".lower() for full in ("", "FULL_") for side in ("KV", "Q")},
    **{f"arg_{full}{side}_IDX": f"{full}{side}_idx".lower() for full in ("", "FULL_") for side in ("KV", "Q")},
    "ks0": "size",
}
_FIRST_BY_KEY = 6  # place of the first tensor that has the blocks of queries by key
_OUTPUTS = {Phase.FORWARD: "out", Phase.BACKWARD: "dk", Phase.DECODE: "acc"}
_GRID_OF = {Phase.FORWARD: ("block_m",), Phase.BACKWARD: ("block_m2", "block_n1")}
"""Sizes of tiles that decide the number of blocks for a length."""
_OPTIONS = {
    **{"WRITE_DQ": True, "OUTPUT_LOGSUMEXP": True},
    **dict.fromkeys(("PRESCALE_QK", "ROWS_GUARANTEED_SAFE", "BLOCKS_ARE_CONTIGUOUS", "OUTPUT_MAX"), False),
}
"""Options of a call that states none, as `_apply_kernel_options` of torch.nn.attention.flex_attention sets them."""


class _Rendered(Exception):  # noqa: N818 (it ends a lowering, and is no error)
    """Choices of a lowering, where Inductor would select one."""

    def __init__(self, choices: list[Any]) -> None:
        super().__init__()
        self.choices = choices


def build_flex(space: Space, task: Task, config: Config | None, folder: Path) -> Artifact:
    """Render and compile `config`, or Inductor's default, and leave the cubin in `folder`.

    Raises:
        BuildError: Inductor or Triton refuse the config, or it needs more than a block may have.
    """
    started = time.perf_counter()
    attention = flex(task.problem)
    with tempfile.TemporaryDirectory(dir=folder) as scratch, environment(scratch), target(task.device):
        with refusals():
            choice, used = _render(attention, config, split_of(attention, task.device.sm_count))
        request = choice.bmreq
        names = {**_ARGUMENTS, "out_ptr0": _OUTPUTS[attention.phase], **_read_by(choice)}
        (found,) = compiled(GeneratedKernel(request.module_path, request.module_cache_key, request.kernel_name, names))
        grid = [
            *zip(("grid_x", "grid_y", "grid_z"), map(int, request.extra_args[-3:]), strict=True),
            ("splits", split_of(attention, task.device.sm_count)),
            *((name, getattr(used, name)) for name in _GRID_OF.get(attention.phase, ()) if attention.dynamic),
        ]
        return artifact(space, task, config or Config({}), found, grid, scratch, folder, started)


def split_of(attention: Flex, sm_count: int) -> int:
    """Return the blocks that share a decoded head's keys, as `get_split_k` of torch 2.11 to 2.15 computes it."""
    return max(sm_count // (attention.batch * attention.kv_heads) * 2, 1)


def _render(attention: Flex, config: Config | None, splits: int) -> tuple[Any, Any]:
    """Return the choice that Inductor makes of a call with a config, or with its own default, and Inductor's config."""
    graph = GraphLowering(torch.fx.symbolic_trace(torch.nn.Identity()), shape_env=ShapeEnv())
    handler = _Given(config)

    def stop(_name: str, choices: list[Any], *_: object, **__: object) -> NoReturn:
        raise _Rendered(choices)

    with (
        V.set_graph_handler(graph),
        V.set_choices_handler(handler),
        patch.object(templates, "autotune_select_algorithm", stop),
        patch.object(flex_decoding, "autotune_select_algorithm", stop),
    ):
        try:
            _lower(graph, attention, splits)
        except _Rendered as rendered:
            if rendered.choices:
                return rendered.choices[0], handler.answered
    raise BuildError("Inductor renders nothing for this config")


class _Given(InductorChoices):
    """Choices of one config; of Inductor's default without one."""

    def __init__(self, config: Config | None) -> None:
        """Answer with a config whose names are those of the kernel's options."""
        self._fields = {name.lower(): value for name, value in config.items()} if config is not None else {}
        self.answered: Any = None

    def get_flex_attention_fwd_configs(self, *asked: Any, **named: Any) -> list[Any]:  # noqa: ANN401
        """Return the config of a forward kernel."""
        return self._changed(super().get_flex_attention_fwd_configs(*asked, **named))

    def get_flex_attention_bwd_configs(self, *asked: Any, **named: Any) -> list[Any]:  # noqa: ANN401
        """Return the config of a backward kernel."""
        return self._changed(super().get_flex_attention_bwd_configs(*asked, **named))

    def get_flex_decode_configs(self, *asked: Any, **named: Any) -> list[Any]:  # noqa: ANN401
        """Return the config of a kernel for decoding."""
        return self._changed(super().get_flex_decode_configs(*asked, **named))

    def _changed(self, found: list[Any]) -> list[Any]:
        self.answered = replace(found[0], **self._fields)
        return [self.answered]


def _lower(graph: GraphLowering, attention: Flex, splits: int) -> None:
    """Lower the call as torch.compile does, which ends in `_Rendered`."""
    a, dtype = attention, getattr(torch, attention.dtype.torch_name)
    made = partial(_input, graph)
    queries, keys = _lengths(graph, a)
    q = made("q", dtype, a.batch, a.heads, queries, a.head_dim)
    k = made("k", dtype, a.batch, a.kv_heads, keys, a.head_dim)
    v = made("v", dtype, a.batch, a.kv_heads, keys, a.value_dim)
    tensors = tensors_read(a)
    sizes = {**a.axis_sizes, "q": queries, "kv": keys, "s": keys if a.keys == a.longest else queries}
    read = tuple(made(its.name, tensors[its.name].dtype, *map(sizes.get, its.axes)) for its in tensors_of(a.mask))
    index: Any = [torch.zeros((), dtype=torch.int32) for _ in range(4)]
    score, scores = score_function(a), (torch.zeros((), dtype=dtype), *index)
    fields: list[Any] = [
        made(f"blocks{place}", its.dtype, *_blocks(a, place, its, queries, keys))
        if isinstance(its, torch.Tensor)
        else its
        for place, its in enumerate(_block_mask(a).as_tuple())
    ]
    fields[-1] = _subgraph("mask", mask_function(a), (*index, *tensors.values()))
    options = {**_OPTIONS, **({"SPLIT_KV": splits} if a.phase is Phase.DECODE else {})}
    scale = a.head_dim**-0.5
    if a.phase is not Phase.BACKWARD:
        call: Any = lowerings[torch.ops.higher_order.flex_attention]
        call(q, k, v, _subgraph("score", score, scores), fields, scale, options, (), read)
        return
    out = made("out", dtype, a.batch, a.heads, queries, a.value_dim)
    grad = made("do", dtype, a.batch, a.heads, queries, a.value_dim)
    lse = made("lse", torch.float32, a.batch, a.heads, queries)
    call = lowerings[torch.ops.higher_order.flex_attention_backward]
    call(q, k, v, out, lse, grad, None, *score_graphs(score, dtype), fields, scale, options, (), read)


def score_graphs(score: Callable[..., torch.Tensor], dtype: torch.dtype) -> tuple[ir.Subgraph, ir.Subgraph]:
    """Return a score function's graph, and that of its gradient, whose last input is the gradient of the result."""
    index: Any = [torch.zeros((), dtype=torch.int32) for _ in range(4)]
    forward, joint = create_fw_bw_graph(score, (torch.zeros((), dtype=dtype, requires_grad=True), *index), ())
    # Each input is a tensor of its own: one that stood for two would be traced as one of them.
    inputs, grad = (torch.zeros((), dtype=dtype), *index), torch.zeros((), dtype=dtype)
    return _subgraph("forward", forward, inputs), _subgraph("joint", joint, (*inputs, grad))


def _read_by(choice: Any) -> dict[str, str]:  # noqa: ANN401 (Inductor's)
    """Return the names of tensors that the mask reads by the kernel's names, which follow the order of its inputs."""
    names = [node.get_name() for node in choice.input_nodes]
    read = [name for name in names if name in TENSORS]
    return {f"in_ptr{place}": name for place, name in enumerate(names) if name in read}


def _lengths(graph: GraphLowering, attention: Flex) -> tuple[Any, Any]:
    """Return the numbers of queries and keys, with a symbol for what a kernel takes at launch."""
    if not attention.dynamic:
        return attention.queries, attention.keys
    shapes, source = graph.sizevars.shape_env, ConstantSource("size")
    size = shapes.create_symbol(attention.keys, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
    return size if attention.dynamic == "s" else attention.queries, size


def _blocks(attention: Flex, place: int, its: torch.Tensor, queries: Any, keys: Any) -> list[Any]:  # noqa: ANN401
    """Return the shape of one tensor of the mask's blocks: (sequences, heads, blocks, blocks of the other side)."""
    if attention.mask == NONE:
        return list(its.shape)
    rows = FloorDiv(queries + attention.block_q - 1, attention.block_q)
    columns = FloorDiv(keys + attention.block_kv - 1, attention.block_kv)
    sides = (rows, columns) if place < _FIRST_BY_KEY else (columns, rows)
    return [*its.shape[:2], *sides[: its.dim() - 2]]


def _input(graph: GraphLowering, name: str, dtype: torch.dtype, *size: Any) -> ir.TensorBox:  # noqa: ANN401 (or expressions)
    """Return a new dense input of a graph on the GPU."""
    strides = [prod(size[place + 1 :]) for place in range(len(size))]
    return input_buffer(graph, name, dtype, size, strides)


def _subgraph(name: str, function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> ir.Subgraph:
    """Return a function as the graph that Inductor inlines into a template."""
    traced = make_fx(function, decomposition_table=select_decomp_table())(*inputs)
    for node in traced.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": torch.device("cuda", 0)}
    traced.graph.eliminate_dead_code()
    return ir.Subgraph(name=name, graph_module=traced)


def _block_mask(attention: Flex) -> BlockMask:
    """Return the blocks of a mask without their values."""
    a = attention
    with FakeTensorMode():
        if a.mask == NONE:
            sizes = (a.queries, a.keys)
            return _create_empty_block_mask(*(torch.empty(1, 1, size, a.head_dim) for size in sizes))
        rows, columns = -(-a.queries // a.block_q), -(-a.keys // a.block_kv)
        counts = [torch.empty(*a.mask_axes, rows, dtype=torch.int32) for _ in range(2)]
        indices = [torch.empty(*a.mask_axes, rows, columns, dtype=torch.int32) for _ in range(2)]
        return BlockMask.from_kv_blocks(
            counts[0],
            indices[0],
            counts[1],
            indices[1],
            BLOCK_SIZE=(a.block_q, a.block_kv),
            seq_lengths=(a.queries, a.keys),
        )
