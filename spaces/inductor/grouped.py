"""Render and compile Inductor's template of grouped products for a GPU that need not be present.

Imports torch and triton.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.source import ConstantSource
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel import mm_grouped
from torch._inductor.select_algorithm import realize_inputs
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.gemm.terms import Layout
from gemmtune.engine.records.grouped.product import Form, Grouped, grouped
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.spaces.common.build_result import refusals
from gemmtune.spaces.inductor.build import artifact, compiled
from gemmtune.spaces.inductor.epilogue import GeneratedKernel, input_buffer
from gemmtune.spaces.inductor.target import environment, target

# Inductor's names of the arguments, and ours.
_ARGUMENTS = {"arg_a_ptr": "a", "arg_b_ptr": "b", "arg_offsets_ptr": "offs", "out_ptr0": "out", "ks0": "size"}


def build_grouped(space: Space, task: Task, config: Config, folder: Path) -> Artifact:
    """Render and compile `config` with Inductor's template, and leave the cubin in `folder`.

    Raises:
        BuildError: Inductor or Triton refuse the config, or it needs more than a block may have.
    """
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=folder) as scratch, environment(scratch), target(task.device):
        with refusals():
            kernel = _render(grouped(task.problem), config, task.device)
        (found,) = compiled(kernel)
        blocks = [("blocks", task.device.sm_count)]
        return artifact(space, task, config, found, blocks, scratch, folder, started, gives_scratch=True)


def _render(product: Grouped, config: Config, device: Device) -> GeneratedKernel:
    """Render the template as `_tuned_grouped_mm_common` of Inductor does, for a range size that a graph leaves open."""
    shapes = ShapeEnv()
    graph = GraphLowering(torch.fx.symbolic_trace(torch.nn.Identity()), shape_env=shapes)
    with V.set_graph_handler(graph):
        source = ConstantSource("size")
        size = shapes.create_symbol(product.size, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
        g, n, inner = product.groups, product.n, product.form is Form.INNER
        m, k = (product.m, size) if inner else (size, product.k)
        dtype = getattr(torch, product.dtype.torch_name)
        a_rows, b_rows = product.a_layout is Layout.N, product.b_layout is Layout.N
        a = input_buffer(graph, "a", dtype, [m, k], [k, 1] if a_rows else [1, m])
        batch = [] if inner else [g]
        b_stride = [n, 1] if b_rows else [1, k]
        b = input_buffer(graph, "b", dtype, [*batch, k, n], [*(k * n for _ in batch), *b_stride])
        offs = input_buffer(graph, "offs", torch.int32, [g], [1])
        *_, layout, a, b, offs = mm_grouped.grouped_mm_args(a, b, offs)
        options: dict[str, Any] = {
            "SCALED": False,
            "A_IS_2D": True,
            "B_IS_2D": inner,
            "A_IS_K_MAJOR": a_rows,
            "B_IS_K_MAJOR": not b_rows,
            "USE_FAST_ACCUM": False,
            "NUM_SMS": device.sm_count,
            "USE_TMA_LOAD": True,
            "USE_EXPERIMENTAL_MAKE_TENSOR_DESCRIPTOR": False,
            "NUM_CONSUMER_GROUPS": 1,
            **config,
        }
        nodes = tuple(realize_inputs(a, b, offs))  # type: ignore[no-untyped-call]
        choice = mm_grouped.triton_grouped_mm_template.generate(input_nodes=nodes, layout=layout, **options)
        if choice is None:
            raise BuildError("Inductor renders nothing for this config")
        request = choice.bmreq
        return GeneratedKernel(request.module_path, request.module_cache_key, request.kernel_name, _ARGUMENTS)
