"""Models of transformers with random weights, and the calls that servers make of them. Imports torch, transformers."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
import transformers
from torch.utils._pytree import tree_leaves
from transformers.initialization import no_init_weights

from gemmtune.engine.consumers.inductor.capture.calls import Builder, described
from gemmtune.engine.consumers.inductor.capture.model_calls import ModelCall
from gemmtune.engine.consumers.inductor.hugging_face.config import Config
from gemmtune.engine.consumers.inductor.hugging_face.settings import CallSettings
from gemmtune.engine.consumers.inductor.inputs import InputSpec
from gemmtune.engine.records.errors import UsageError

_DTYPE = torch.bfloat16  # of a configuration that names none: servers' choice
_OF_TWO_STACKS = ("AutoModelForSeq2SeqLM", "AutoModel")
_OF_ONE_STACK = ("AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModel")


class Kind(Enum):
    """Kind of model by what it is called with."""

    DECODER = "decoder"
    """Causal language model: prompts, then one token per call with a cache."""
    ENCODER = "encoder"
    """Model that reads tokens and writes none."""
    ENCODER_DECODER = "encoder-decoder"
    """Model whose decoder writes to what its encoder read."""
    VISION = "vision"
    """Model that reads pixels."""


class HubModel:
    """Model of a configuration, and its calls.

    Attributes:
        name: name that the user gave.
        config: configuration, with as many layers as are to be captured.
        kind: kind of the model.
        model: the model; None before it is built.
    """

    def __init__(self, name: str, config: Config) -> None:
        """Find the model's class; build nothing.

        Raises:
            UsageError: transformers has no class for it, or none that tokens or pixels suffice for; or its weights are
                quantised.
        """
        self.name, self.config = name, config
        if quantised := getattr(config, "quantization_config", None):
            method = quantised.get("quant_method") if isinstance(quantised, Mapping) else type(quantised).__name__
            raise UsageError(
                f"{name} has weights quantised by {method}, whose kernels follow from the weights: load the model in a "
                "function, and capture MODULE:FUNCTION"
            )
        try:
            self._class = _class_of(name, config)
        except ImportError as error:  # of what the class needs
            raise UsageError(f"{name}: transformers does not load its model: {described(error)}") from error
        self._parameters = inspect.signature(self._class.forward).parameters
        self._cache_name = "cache" if "cache" in self._parameters else "past_key_values"  # until transformers 5.20
        self._of_a_prompt = {"logits_to_keep": 1} if "logits_to_keep" in self._parameters else {}
        self.kind = _kind_of(name, self._class, config)
        self.model: Any = None

    @property
    def builder(self) -> Builder:
        """Function that builds the model on torch's default device, with random weights where tensors have data."""
        return Builder(self._build, self.name)

    @property
    def how(self) -> str:
        """Text on how the model is called, and on the way out where it takes something else."""
        called = f"called in {self._dtype} with {self._class.main_input_name}"
        return f"{self.name} is a {self._class.__name__}, {called}: change config.json, or write a builder, MODULE:CALL"

    def call(self, settings: CallSettings, *, grad: bool) -> ModelCall:
        """Return a call: a prompt, a step of decoding, a batch of pixels, or a step of training.

        Raises:
            UsageError: the model takes no tokens.
        """
        batch, tokens = settings.batch, settings.tokens
        text = self.config.get_text_config()
        below = getattr(text, "vocab_size", None)
        inputs: list[object] = []
        if self.kind is Kind.VISION:
            if tokens is not None:
                raise UsageError(f"{self.name} takes pixels and no tokens: give --batch alone")
            side = self.config.image_size
            height, width = side if isinstance(side, Sequence) else (side, side)
            dtype = str(self._dtype).removeprefix("torch.")
            inputs.append(InputSpec("pixel_values", dtype, (batch, self.config.num_channels, height, width), None))
            return ModelCall(settings.name(), inputs, weight=settings.weight)
        tokens = 1 if tokens is None else tokens
        takes_cache = self.kind is Kind.DECODER and getattr(self._class, "_can_compile_fullgraph", False)
        if tokens == 1 and not grad and takes_cache and self._cache_name in self._parameters:
            return ModelCall(settings.name(has_cache=True), [_DecodeStep(self, settings)], weight=settings.weight)
        inputs.append(InputSpec("input_ids", "int64", (batch, tokens), below))
        if self.kind is Kind.ENCODER_DECODER:
            inputs.append(InputSpec("decoder_input_ids", "int64", (batch, tokens if grad else 1), below))
        if grad and self.kind in (Kind.DECODER, Kind.ENCODER_DECODER) and "labels" in self._parameters:
            inputs.append(InputSpec("labels", "int64", (batch, tokens), below))
        if self.kind is Kind.DECODER:
            inputs.append(_Fixed({"use_cache": False} if grad else self._of_a_prompt))
        return ModelCall(settings.name(), inputs, weight=settings.weight)

    @property
    def _dtype(self) -> torch.dtype:
        named = getattr(self.config, "dtype", None) or getattr(self.config.get_text_config(), "dtype", None)
        return named if isinstance(named, torch.dtype) else getattr(torch, str(named)) if named else _DTYPE

    def _build(self) -> Any:  # noqa: ANN401 (a class of transformers)
        sample = torch.empty(0)
        has_data = type(sample) is torch.Tensor and not sample.is_meta
        with contextlib.nullcontext() if has_data else no_init_weights():
            self.model = self._class._from_config(copy.deepcopy(self.config), dtype=self._dtype)
        return self.model


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Named arguments that need no device."""

    arguments: Mapping[str, object]

    def __str__(self) -> str:
        """Return the arguments as text."""
        return " ".join(f"{name}={value}" for name, value in self.arguments.items())

    def make_arguments(self, _device: torch.device) -> Mapping[str, object]:
        """Return the arguments, which are those of any device."""
        return self.arguments

    def rewinder(self, _arguments: Mapping[str, object]) -> Callable[[], None]:
        """Return a function without effect: a call changes no number."""
        return lambda: None


@dataclass(frozen=True, slots=True)
class _DecodeStep:
    """Arguments of a step of decoding with a cache of a fixed length, as `generate` prepares them."""

    owner: HubModel
    settings: CallSettings

    def __str__(self) -> str:
        """Return the sizes of the call as text."""
        return self.settings.name(has_cache=True)

    def make_arguments(self, device: torch.device) -> Mapping[str, object]:
        """Return the arguments of the second token, after a first one; raises UsageError if no static cache fits."""
        model, size = self.owner.model, (self.settings.batch, 1)
        below = model.config.get_text_config().vocab_size
        first, second = (torch.randint(below, size, dtype=torch.int64, device=device) for _ in range(2))
        name = self.owner._cache_name
        try:
            cache = transformers.StaticCache(config=model.config, max_cache_len=self.settings.context)
            with torch.no_grad():
                model(input_ids=first, use_cache=True, **{name: cache})  # layers of a cache are made at its first use
            named = {name: cache, "use_cache": True, **self.owner._of_a_prompt}
            if "position_ids" in self.owner._parameters:
                named["position_ids"] = torch.ones(size, dtype=torch.int64, device=device)
            made: Mapping[str, object] = model.prepare_inputs_for_generation(second, next_sequence_length=1, **named)
        except Exception as error:  # of the model's class
            raise UsageError(f"no step of decoding with a StaticCache: {described(error)}") from error
        return {key: value for key, value in made.items() if value is not None}

    def rewinder(self, arguments: Mapping[str, object]) -> Callable[[], None]:
        """Return a function that gives the cache the positions and recurrent states that it has now.

        It leaves keys and values, of which a call writes those at its own position. One kernel copies all tensors of a
        type, for a model has a counter per layer.
        """
        cache: Any = arguments[self.owner._cache_name]
        held: list[tuple[dict[str, Any], str, int]] = []
        tensors: list[torch.Tensor] = []
        for layer in cache.layers:
            for key, value in vars(layer).items():
                if isinstance(value, int):
                    held.append((vars(layer), key, value))
                elif key not in ("keys", "values"):
                    tensors += [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        saved = [each.clone() for each in tensors]

        def rewind() -> None:
            for attributes, key, value in held:
                attributes[key] = value
            torch._foreach_copy_(tensors, saved)

        return rewind


def _class_of(name: str, config: Config) -> Any:  # noqa: ANN401 (a class of transformers)
    """Return the class that a configuration names, else the first that transformers has for it."""
    for architecture in getattr(config, "architectures", None) or ():
        if hasattr(transformers, architecture):
            return getattr(transformers, architecture)
    for each in _OF_TWO_STACKS if config.is_encoder_decoder else _OF_ONE_STACK:
        found = getattr(transformers, each)._model_mapping.get(type(config), None)
        if found is not None:
            return found[0] if isinstance(found, tuple) else found
    raise UsageError(f"{name}: transformers has no model of type {config.model_type!r}; write a builder, MODULE:CALL")


def _kind_of(name: str, model: Any, config: Config) -> Kind:  # noqa: ANN401 (a class of transformers)
    main = model.main_input_name
    if main == "input_ids":
        if config.is_encoder_decoder:
            return Kind.ENCODER_DECODER
        return Kind.DECODER if model.can_generate() else Kind.ENCODER
    if main == "pixel_values" and hasattr(config, "image_size") and hasattr(config, "num_channels"):
        return Kind.VISION
    lacks = [each for each in ("image_size", "num_channels") if main == "pixel_values" and not hasattr(config, each)]
    which = f", and its config.json has no {' and no '.join(lacks)}" if lacks else ""
    raise UsageError(
        f"{name} is a {model.__name__}, which takes {main}{which}: only models of tokens and of pixels are called by "
        "name; write a builder, and give its inputs: gemmtune capture MODULE:CALL --input ..."
    )
