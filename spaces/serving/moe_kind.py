"""Fused mixture-of-experts layers: operands with drawn routing, and both products in float64."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from gemmtune.engine.consumers.serving.contract.moe_layer import MoeLayer, MoeType, SglangMoe, VllmMoe
from gemmtune.engine.consumers.serving.contract.wna16_layer import SglangWna16, VllmWna16, Wna16Layer
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.seams.workload import Expected, Operands, TensorSource, WorkloadKind
from gemmtune.spaces.serving.wna16_weights import group_scales, packed_weight, unpacked_weight, zero_points

if TYPE_CHECKING:
    import torch

_BLOCKS = (8, 16, 32, 64, 128, 256)
"""Values of BLOCK_SIZE_M that rows are sorted for beforehand: those of both engines' tuned files."""
_FLAT_BLOCKS = (1, 2, 4)
"""Further values of vLLM's defaults for few rows of integer weights with a scale per group."""
_TOLERANCE = 8e-3
"""Largest ‖out − reference‖ / ‖reference‖ that rounding to bf16 may cause; see spaces/gemm/kind.py."""
_SHORT_ACCUMULATOR_TOLERANCE = 1.5e-4
"""Tolerance of Hopper's accumulator of 8-bit floats, to be multiplied by the root of k."""
_MOST_BESIDE = 8192
"""Largest n and k of the GEMM that is timed beside a layer: 128 MiB, which no L2 holds."""

_Layer = TypeVar("_Layer", bound=MoeLayer)

AlignedRows = tuple["torch.Tensor", "torch.Tensor", "torch.Tensor"]
"""Row numbers sorted by expert and padded to whole blocks, the expert of each block, and the number of padded rows."""


@dataclass(frozen=True, slots=True)
class MoeOperands:
    """Tensors of one layer. Scales that its type has not are None."""

    a: tuple[torch.Tensor, torch.Tensor]
    """Activations of both products: tokens×hidden, and rows×inter, row-major."""
    b: tuple[torch.Tensor, torch.Tensor]
    """Weights of both products: experts×n×k, row-major."""
    c: tuple[torch.Tensor, torch.Tensor]
    """Outputs of both products: tokens×top_k×n in bf16 or fp16."""
    a_scale: tuple[torch.Tensor | None, torch.Tensor | None]
    """Scales of the activations: one, or one per row and block of elements."""
    b_scale: tuple[torch.Tensor | None, torch.Tensor | None]
    """Scales of the weights: one per expert, per expert and output channel, or per expert and block of elements."""
    weights: torch.Tensor
    """Weight of each token's experts, tokens×top_k in float32."""
    experts: torch.Tensor
    """Experts of each token, tokens×top_k in int32; those of one token differ."""
    aligned: Mapping[int, AlignedRows]
    """Sorted rows for each value of BLOCK_SIZE_M."""
    zeros: tuple[torch.Tensor, ...] = ()
    """Zero points of both weights, where they have some."""

    @property
    def arguments(self) -> tuple[object, ...]:
        """Arguments of a kernel's call: five per product, then weights, experts, sorted rows, and zero points."""
        products = ((self.a[i], self.b[i], self.c[i], self.a_scale[i], self.b_scale[i]) for i in (0, 1))
        each_product = (each for product in products for each in product)
        return (*each_product, self.weights, self.experts, self.aligned, *self.zeros)

    @property
    def outputs(self) -> tuple[torch.Tensor, ...]:
        """Outputs of both products."""
        return self.c


class _MoeKind(WorkloadKind[_Layer], Generic[_Layer]):
    listed: ClassVar[str] = "tokens"
    layers: ClassVar[type[MoeLayer]]
    """Class of the kind's workloads."""

    def parse(self, text: str) -> _Layer:
        """Return the layer of its text; see `MoeLayer.parse`."""
        return self.layers.parse(text)  # type: ignore[return-value]  # the subclass says which

    def from_fields(self, fields: Mapping[str, str]) -> _Layer:
        """Return the layer of text fields; see `MoeLayer.from_fields`."""
        return self.layers.from_fields(fields)  # type: ignore[return-value]

    def operands(self, workload: _Layer, source: TensorSource, number: int) -> MoeOperands:
        """Return standard-normal activations and weights, with scales near 1 and a routing of its own per number."""
        import torch

        name = f"{workload.name}#{number}" if number else workload.name
        types = _torch_types(workload)
        shapes = ((workload.tokens, workload.hidden), (workload.rows, workload.inter))
        a = tuple(source.normal(types[0], shape, f"{name} a{i}") for i, shape in enumerate(shapes))
        b, c, a_scale, b_scale = [], [], [], []
        for i, (n, k) in enumerate(workload.products):
            b.append(_weight(workload, source, (workload.experts, n, k), f"{name} b{i}"))
            c.append(source.empty(types[2], (workload.tokens, workload.top_k, n), f"{name} c{i}"))
            rows = shapes[i][0]
            a_scale.append(_scales(workload, source, (rows, k), f"{name} scale of a{i}"))
            b_scale.append(_scales(workload, source, (workload.experts, n, k), f"{name} scale of b{i}"))
        seed = int.from_bytes(hashlib.sha256(f"{name} routing".encode()).digest()[:8], "big") >> 1
        generator = torch.Generator(source.device).manual_seed(seed)
        experts = _routing(workload, generator, source.device)
        weights = torch.rand(experts.shape, device=source.device, generator=generator).add_(0.5)
        weights /= weights.sum(dim=1, keepdim=True)
        grouped = isinstance(workload, Wna16Layer)
        sizes = (*_FLAT_BLOCKS, *_BLOCKS) if grouped else _BLOCKS
        blocks = {block: align(workload, experts, block) for block in sizes}
        return MoeOperands(
            (a[0], a[1]), (b[0], b[1]), (c[0], c[1]), (a_scale[0], a_scale[1]), (b_scale[0], b_scale[1]),
            weights, experts, blocks, zero_points(workload, source, name) if isinstance(workload, Wna16Layer) else (),
        )  # fmt: skip

    def expected(self, workload: _Layer, operands: Operands) -> tuple[Expected, ...]:
        """Return both products in float64, expert by expert; the second one weighted."""
        import torch

        assert isinstance(operands, MoeOperands)
        flat = operands.experts.flatten().long()
        order = torch.argsort(flat, stable=True)
        counts = torch.bincount(flat, minlength=workload.experts).tolist()
        found = []
        for i, (n, k) in enumerate(workload.products):
            values = torch.empty((workload.rows, n), dtype=torch.float32, device=flat.device)
            first = 0
            for expert, count in enumerate(counts):
                if not count:
                    continue
                rows = order[first : first + count]
                first += count
                a = _scaled_rows(operands, workload, i, rows)
                weight = _scaled_weight(operands, workload, i, expert)
                values[rows] = (a @ weight.mT).float()
            if i:
                values *= operands.weights.flatten()[:, None]
            tolerance = _TOLERANCE
            if workload.dtype.is_fp8:
                tolerance = max(tolerance, _SHORT_ACCUMULATOR_TOLERANCE * k**0.5)
            found.append(Expected(values.view(workload.tokens, workload.top_k, n), tolerance))
        return tuple(found)

    def timed_beside(self, workload: _Layer) -> Problem:
        """Return a bf16 GEMM with about the bytes and the arithmetic of the layer, at most 8192×8192 of weight."""
        moved = workload.bytes_with(workload.active_experts)
        side = min(_MOST_BESIDE, max(512, round((moved / 2) ** 0.5 / 512) * 512))
        rows = max(16, round(workload.flops / (2 * side * side) / 16) * 16)
        return Problem(m=min(rows, _MOST_BESIDE), n=side, k=side, weight=workload.weight)


class VllmMoeKind(_MoeKind[VllmMoe]):
    """Layers of vLLM's Triton kernel."""

    layers = VllmMoe


class SglangMoeKind(_MoeKind[SglangMoe]):
    """Layers of SGLang's Triton kernel."""

    layers = SglangMoe


class VllmWna16Kind(_MoeKind[VllmWna16]):
    """Layers of vLLM's Triton kernel for integer weights with a scale per group."""

    layers = VllmWna16


class SglangWna16Kind(_MoeKind[SglangWna16]):
    """Layers of SGLang's Triton kernel for integer weights with a scale per group."""

    layers = SglangWna16


def align(layer: MoeLayer, experts: torch.Tensor, block_m: int) -> AlignedRows:
    """Return the rows sorted by expert, each expert's padded to blocks of `block_m` with the number of rows."""
    import torch

    flat, device = experts.flatten().long(), experts.device
    rows = flat.numel()
    if layer.takes_rows_unsorted:
        nothing = torch.empty(0, dtype=torch.int32, device=device)
        return nothing, nothing, torch.tensor([rows * block_m], dtype=torch.int32, device=device)
    counts = torch.bincount(flat, minlength=layer.experts)
    blocks = (counts + block_m - 1) // block_m
    start, first = (blocks.cumsum(0) - blocks) * block_m, counts.cumsum(0) - counts
    order = torch.argsort(flat, stable=True)
    of = flat[order]
    length = layer.sorted_rows(block_m)
    sorted_rows = torch.full((length,), rows, dtype=torch.int32, device=device)
    places = start[of] + torch.arange(rows, device=device) - first[of]
    sorted_rows[places] = order.int()
    of_blocks = torch.zeros(-(-length // block_m), dtype=torch.int32, device=device)
    used = torch.repeat_interleave(torch.arange(layer.experts, device=device), blocks).int()
    of_blocks[: used.numel()] = used
    return sorted_rows, of_blocks, (blocks.sum() * block_m).int().view(1)


def _routing(layer: MoeLayer, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    """Return the experts of each token: drawn without repetition, each draw by popularity."""
    import torch

    shares = torch.tensor(layer.popularity, dtype=torch.float32, device=device)
    draws = torch.rand((layer.tokens, layer.experts), device=device, generator=generator)
    waits = -torch.log1p(-draws) / shares  # of exponential clocks, of which the earliest `top_k` ring first
    return torch.topk(waits, layer.top_k, dim=1, largest=False).indices.int()


def _torch_types(layer: MoeLayer) -> tuple[torch.dtype, torch.dtype, torch.dtype]:
    """Return the types of activations, weights and outputs."""
    import torch

    plain = torch.float16 if layer.dtype is MoeType.FP16 else torch.bfloat16
    if layer.dtype.is_fp8:
        return torch.float8_e4m3fn, torch.float8_e4m3fn, plain
    return plain, torch.int8 if layer.dtype is MoeType.INT8_W8A16 else plain, plain


def _weight(layer: MoeLayer, source: TensorSource, shape: tuple[int, int, int], name: str) -> torch.Tensor:
    """Return the weight of a product, of shape (experts, n, k); of (experts, n, k/2) with two elements per byte."""
    if isinstance(layer, Wna16Layer):
        return packed_weight(layer, source, shape, name)
    return source.normal(_torch_types(layer)[1], shape, name)


def _scales(layer: MoeLayer, source: TensorSource, shape: tuple[int, ...], name: str) -> torch.Tensor | None:
    """Return scales near 1 of an operand whose last axis, and for a weight whose last two, are cut into blocks."""
    import torch

    is_weight, block = len(shape) > 2, layer.scale_block
    if isinstance(layer, Wna16Layer):
        return group_scales(layer, source, shape, name) if is_weight else None
    if not (layer.dtype.is_fp8 or (layer.dtype is MoeType.INT8_W8A16 and is_weight)):
        return None
    sizes: tuple[int, ...]
    if layer.dtype is MoeType.INT8_W8A16:
        sizes = shape[:2]
    elif block is None:
        sizes = (shape[0],) if is_weight else (1,)
    elif is_weight:
        sizes = (shape[0], -(-shape[1] // block[0]), shape[2] // block[1])
    else:
        sizes = (shape[0], shape[1] // block[1])
    return source.own(torch.float32, sizes, name).abs_().mul_(0.25).add_(0.75)


def _scaled_rows(operands: MoeOperands, layer: MoeLayer, which: int, rows: torch.Tensor) -> torch.Tensor:
    """Return rows of activations in float64: of the token for the first product, of the row for the second."""
    source = rows // layer.top_k if which == 0 else rows
    a, scale = operands.a[which][source].double(), operands.a_scale[which]
    if scale is None:
        return a
    if layer.scale_block is None:
        return a * scale.double()
    return a * scale[source].double().repeat_interleave(layer.scale_block[1], dim=1)


def _scaled_weight(operands: MoeOperands, layer: MoeLayer, which: int, expert: int) -> torch.Tensor:
    """Return an expert's weight in float64, n×k."""
    if isinstance(layer, Wna16Layer):
        zeros = operands.zeros[which][expert] if operands.zeros else None
        scales = operands.b_scale[which]
        assert scales is not None
        return unpacked_weight(layer, operands.b[which][expert], scales[expert], zeros)
    weight, scale = operands.b[which][expert].double(), operands.b_scale[which]
    if scale is None:
        return weight
    if layer.scale_block is None:
        return weight * scale[expert].double().view(-1, 1)
    rows, columns = layer.scale_block
    of = scale[expert].double().repeat_interleave(rows, dim=0)[: weight.shape[0]]
    return weight * of.repeat_interleave(columns, dim=1)
