"""The campaign that tunes a model's layers for a serving engine, made from its config.json."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gemmtune.engine.consumers.serving.contract.file_name import TUNED_TOKENS, Engine
from gemmtune.engine.consumers.serving.contract.layer import Layer
from gemmtune.engine.consumers.serving.contract.layer_files import file_name_of
from gemmtune.engine.consumers.serving.contract.moe_layer import MoeType
from gemmtune.engine.consumers.serving.contract.wna16_layer import VllmWna16
from gemmtune.engine.consumers.serving.models.config import ModelConfig, find_model
from gemmtune.engine.consumers.serving.models.experts import expert_layers, fused_experts
from gemmtune.engine.consumers.serving.models.linears import block_linears
from gemmtune.engine.consumers.serving.models.quantization import WeightType, plain_type, weight_type
from gemmtune.engine.consumers.serving.models.sharding import Sharding
from gemmtune.engine.io.printing import one_line
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.layout import Grid, Report

_ANY_DEVICE = "H200"


@dataclass(frozen=True, slots=True)
class EngineProblems:
    """Layers of a model that an engine runs by its Triton kernels on one rank."""

    source: str
    """Path of the config.json."""
    sharding: Sharding
    """Engine that serves the model, and how its ranks share it."""
    layers: tuple[Layer, ...]
    """Layers of one token, each with the number of the model's layers that run it as weight."""
    tokens: tuple[int, ...]
    """Token counts to tune."""
    left_out: tuple[str, ...]
    """Sentences that say which layers are not listed, and why."""

    @property
    def problems(self) -> tuple[Layer, ...]:
        """Every layer at every token count."""
        return tuple(layer.resized(each) for layer in self.layers for each in self.tokens_of(layer))

    def tokens_of(self, layer: Layer) -> list[int]:
        """Return the token counts at which the engine runs a layer in Triton."""
        return _in_triton(layer, self.tokens)

    @property
    def title(self) -> str:
        """One line on the model, the engine and its ranks."""
        return f"{self.source} in {self.sharding.engine} on one rank of tp={self.sharding.tp}, ep={self.sharding.ep}"

    def to_toml(self) -> str:
        """Return the campaign file."""
        lines = [f"# {one_line(each)}" for each in (self.title, *self.left_out)]
        for layer in self.layers:
            sizes = {name: size for name, size in layer.sizes.items() if name != "tokens"}
            texts = {name: f'"{text}"' for name, text in layer.to_fields().items() if name not in layer.sizes}
            fields = {"kind": f'"{layer.kind}"', "tokens": self.tokens_of(layer), **sizes, **texts}
            fields["weight"] = layer.weight
            layers = f"{layer.weight:g} layer{'' if layer.weight == 1 else 's'}"
            lines += ["", f"# {_file(layer)}, {layers} of the model"]
            lines += ["[[problem]]", *(f"{name} = {value}" for name, value in fields.items())]
        return "\n".join([*lines, ""])

    def report(self, written: str) -> Report:
        """Return the report of the layers and of the files that the tuned table becomes."""
        grid = Grid(
            {
                "layer": [each.series_name for each in self.layers],
                "runs": [f"{each.weight:g}" for each in self.layers],
                "file": [_file(each) for each in self.layers],
            },
            ("layer", "file"),
        )
        tokens = f"{len(self.tokens)} token counts: {', '.join(map(str, self.tokens))}"
        way = f"written: {written}\nto tune: gemmtune tune {written} --out out"
        record = {
            "source": self.source,
            "engine": self.sharding.engine,
            "tp": self.sharding.tp,
            "ep": self.sharding.ep,
            "tokens": self.tokens,
            "layers": [{"layer": each.series_name, "runs": each.weight, "file": _file(each)} for each in self.layers],
            "left_out": self.left_out,
            "written": written,
        }
        return Report(record, [self.title, grid, "\n".join([tokens, *self.left_out]), way])


def engine_problems(
    engine: str, model: str, *, tp: int = 1, ep: int = 1, tokens: Iterable[int] = (), dtype: str | None = None
) -> EngineProblems:
    """Return the layers of a model that a serving engine has tuned files for, read from its config.json alone.

    Args:
        engine: `vllm` or `sglang`.
        model: a config.json, a folder that holds one, or the name of a model in the local Hugging Face cache.
        tp: tensor-parallel ranks.
        ep: expert-parallel ranks. SGLang's divide its tp ranks. vLLM's are 1, or all of its ranks.
        tokens: token counts; without one those of the engine's own tuner.
        dtype: type of the experts in place of the model's, as with `--quantization fp8`: a `MoeType`.

    Raises:
        UsageError: there is no such model here, the ranks do not go together or do not divide its sizes, or no space
            of gemmtune has one of its layers.

    Example:
        >>> import gemmtune as gt
        >>> found = gt.engine_problems("vllm", "Qwen/Qwen3-30B-A3B", tp=4)  # doctest: +SKIP
        >>> result = gt.tune(found.problems)  # doctest: +SKIP
    """
    if engine not in set(Engine):
        raise UsageError(f"no engine {engine!r}; known: {', '.join(Engine)}")
    config, sharding = find_model(model, os.environ), Sharding(Engine(engine), tp, ep)
    of = weight_type(config)
    layers: list[Layer] = []
    left_out: list[str] = []
    experts = _expert_type(config, of, dtype)
    fused = fused_experts(config, sharding, experts)
    if config.expert_layers:
        try:
            layers += expert_layers(config, sharding, experts)
        except UsageError as refused:
            left_out.append(f"Experts are left out: {refused}.")
    try:
        layers += block_linears(config, sharding, of, fused)
    except UsageError as refused:
        left_out.append(f"Without its linear layers: {refused}.")
    counts = _counts(tokens)
    left_out += [
        f"Up to {layer.most_in_cuda} tokens are left out: vLLM runs them by its kernel in CUDA."
        for layer in layers
        if isinstance(layer, VllmWna16) and layer.most_in_cuda >= min(counts)
    ]
    layers = [layer for layer in layers if _in_triton(layer, counts)]
    if not layers:
        reasons = " ".join(left_out) or (
            f"{config.source} has neither experts nor linear layers in fp8 with a scale per 128x128, and {engine} has "
            "no tuned files for others: gemmtune capture lists what a model runs under torch.compile"
        )
        raise UsageError(reasons.rstrip("."))
    return EngineProblems(config.source, sharding, tuple(layers), counts, tuple(left_out))


def _expert_type(config: ModelConfig, of: WeightType, dtype: str | None) -> WeightType:
    """Return the type of a model's experts: the wanted one, the model's, or the plain one where they are left out."""
    if dtype is not None:
        known = [each for each in MoeType if each is not MoeType.INT4_W4A16]
        if dtype not in known:
            raise UsageError(f"dtype={dtype!r} is no type of experts; known: {', '.join(known)}")
        block = (128, 128) if dtype == MoeType.FP8_BLOCK else None
        return WeightType(MoeType(dtype), dtype, block)
    names = ("mlp.experts", "block_sparse_moe.experts")
    covered = (all(of.covers(f"model.layers.{number}.{name}") for name in names) for number in config.expert_layers)
    return of if any(covered) else plain_type(config)


def _counts(tokens: Iterable[int]) -> tuple[int, ...]:
    found = tuple(dict.fromkeys(tokens)) or TUNED_TOKENS
    if any(type(each) is not int or each < 1 for each in found):
        raise UsageError(f"tokens={list(found)} are no integers from 1 on")
    return found


def _in_triton(layer: Layer, counts: Iterable[int]) -> list[int]:
    """Return the token counts at which an engine runs a layer in Triton."""
    most = layer.most_in_cuda if isinstance(layer, VllmWna16) else 0
    return [each for each in counts if each > most]


def _file(layer: Layer) -> str:
    """Return the name of the layer's tuned file, with a star for the device."""
    name = file_name_of(layer, catalogue.device(_ANY_DEVICE))
    assert name is not None
    return replace(name, device="*").text
