"""The tuned file that an engine looks for, by layer and device."""

from gemmtune.engine.consumers.serving.contract.block_linear import BlockLinear
from gemmtune.engine.consumers.serving.contract.devices import device_text
from gemmtune.engine.consumers.serving.contract.file_name import Engine, FileName, Kernel
from gemmtune.engine.consumers.serving.contract.layer import SCALE_BLOCK
from gemmtune.engine.consumers.serving.contract.moe_layer import MoeLayer
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.workload import Workload

_BLOCK = (SCALE_BLOCK, SCALE_BLOCK)


def engine_of(layer: Workload) -> Engine | None:
    """Return the engine that a layer's kind names; None for a workload of no engine."""
    return next((engine for engine in Engine if layer.kind.startswith(f"{engine.value}_")), None)


def file_name_of(layer: Workload, device: Device) -> FileName | None:
    """Return the name of the tuned file that the layer's engine looks for; None for a workload of no engine."""
    engine = engine_of(layer)
    if engine is None:
        return None
    if isinstance(layer, MoeLayer):
        packed = layer.dtype.packed if engine is Engine.SGLANG else 1  # SGLang takes n from the packed weight's shape
        return FileName(
            engine=engine,
            kernel=Kernel.MOE,
            sizes=(layer.experts, layer.inter // packed),
            device=device_text(device.name, engine, Kernel.MOE),
            dtype=layer.dtype.short,
            block=layer.scale_block,
        )
    if isinstance(layer, BlockLinear):
        of = device_text(device.name, engine, Kernel.LINEAR)
        return FileName(engine, Kernel.LINEAR, (layer.n, layer.k), of, "fp8_w8a8", _BLOCK)
    return None
