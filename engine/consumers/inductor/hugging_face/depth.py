"""Capture of a model by name, whose equal layers may be captured a few at a time. Imports torch, transformers."""

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from gemmtune.engine.consumers.inductor.capture.calls import built_call
from gemmtune.engine.consumers.inductor.capture.capture import capture_products
from gemmtune.engine.consumers.inductor.capture.captured import Captured, CapturedCall, added, scaled
from gemmtune.engine.consumers.inductor.hugging_face.config import Config, find_config
from gemmtune.engine.consumers.inductor.hugging_face.model import HubModel
from gemmtune.engine.consumers.inductor.hugging_face.settings import CallSettings
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError

_DEPTHS = ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers")


def capture_model(
    name: str, settings: Sequence[CallSettings], *, layers: int | None, grad: bool, device: Device, is_present: bool
) -> list[Captured]:
    """Return the products of a model by its name, those of each call apart.

    With `layers`, the model is captured at that depth and one period of its layers shallower. Runs grow by their
    difference for each further period, which is exact: the other layers repeat these.

    Args:
        name: name of the model, hf:ORGANISATION/MODEL or hf:FOLDER.
        settings: sizes of each call.
        layers: number of layers to capture, more where the layers' pattern needs more; None for all.
        grad: whether to capture a step of training.
        device: GPU to lower for.
        is_present: whether the device is this machine's GPU.

    Raises:
        UsageError: there is no such model, it takes no tokens, or its layers cannot be cut.
    """
    config = find_config(name)
    whole = int(getattr(config.get_text_config(), "num_hidden_layers", 0) or 0)
    depth, period = (whole, 0) if layers is None else _depth_and_period(name, config, whole, layers)

    def captured(layers: int) -> list[Captured]:
        model = HubModel(name, config if layers == whole else _cut(name, config, whole, layers))
        calls = [model.call(each, grad=grad) for each in settings]
        try:
            return capture_products(model.builder, calls, grad=grad, device=device, is_present=is_present)
        except UsageError as error:
            raise UsageError(f"{error}; {model.how}") from error

    deep = captured(depth)
    if depth == whole:
        return deep
    repeats = (whole - depth) // period
    pairs = zip(deep, captured(depth - period), strict=True)
    return [_deepened(one, other, repeats, f"{depth} of {whole} layers") for one, other in pairs]


def _deepened(deep: Captured, shallow: Captured, repeats: int, how: str) -> Captured:
    """Return the capture of a model that has the layers between two depths `repeats` times more than the deeper one."""
    found = added([scaled(deep, 1 + repeats), scaled(shallow, -repeats)])
    compiled = Counter({name: n + repeats * (n - shallow.compiled.get(name, 0)) for name, n in deep.compiled.items()})
    runs = sum(each.count for each in found.products)
    [call] = deep.calls
    calls = [CapturedCall(call.name, call.weight, len(found.products), runs)]
    source = f"{deep.source.removesuffix('.')}, from {how}."
    return replace(found, calls=calls, compiled=compiled, source=source)


def _depth_and_period(name: str, config: Config, whole: int, least: int) -> tuple[int, int]:
    """Return the least depth from `least` on whose last layers repeat down to the full depth, and their number."""
    if least < 2:
        raise UsageError(f"layers={least} is not an integer from 2 on: one more layer is told from the rest by two")
    kinds = _layer_kinds(HubModel(name, config), whole)
    if not kinds:
        raise UsageError(f"{name} has no list of its {whole} layers: capture it without --layers")
    for depth in range(least, whole):
        for period in range(1, depth):
            if (whole - depth) % period == 0 and kinds[depth - period : whole - period] == kinds[depth:]:
                return depth, period
    return whole, 0


def _layer_kinds(model: HubModel, whole: int) -> list[object]:
    """Return what each layer of a model computes, equal for layers of equal products; empty without a list of them."""
    with torch.device("meta"):
        built: Any = built_call(model.builder.build, model.name, has_inputs=True)
    lists = [each for each in built.modules() if isinstance(each, torch.nn.ModuleList) and len(each) == whole]
    types = getattr(model.config.get_text_config(), "layer_types", None) or [""] * whole
    return [(kind, *(_kind(each[number]) for each in lists)) for number, kind in enumerate(types)] if lists else []


def _kind(layer: torch.nn.Module) -> object:
    return [
        (
            path,
            type(module).__name__,
            [
                (key, value)
                for key, value in vars(module).items()
                if isinstance(value, bool | int | float | str) and not key.startswith("_") and "idx" not in key
            ],
            [(key, tuple(tensor.shape)) for key, tensor in module._parameters.items() if tensor is not None],
        )
        for path, module in layer.named_modules()
    ]


def _cut(name: str, config: Config, whole: int, layers: int) -> Config:
    """Return a configuration with fewer layers, and as much of its lists with an entry per layer."""
    cut = copy.deepcopy(config)
    text = cut.get_text_config()
    given = {each: getattr(text, each) for each in _DEPTHS if isinstance(getattr(text, each, None), int)}
    if other := [f"{each} = {depth}" for each, depth in given.items() if depth != whole]:
        raise UsageError(f"{name} has num_hidden_layers = {whole} and {other[0]}: capture it without --layers")
    fields: dict[str, Any] = text.to_dict()
    for each, value in fields.items():
        if isinstance(value, list) and len(value) == whole:
            setattr(text, each, value[:layers])
    for each in given:
        setattr(text, each, layers)
    return cut
