"""config.json of a model: a file, a folder's, or one of the local Hugging Face cache. Nothing is downloaded."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gemmtune.engine.io.reading import parse_json, read_text
from gemmtune.engine.records.errors import UsageError

_NAME = "config.json"
_BESIDE = "hf_quant_config.json"
"""File in which NVIDIA's ModelOpt states the quantisation of a model whose config.json does not."""
_MOST_LAYERS, _MOST = 1024, 2**20
"""Largest number of layers, and largest of all other numbers."""
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
"""Keys of the number of experts, in vLLM's order."""
_STEPS = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", "moe_layer_frequency")
"""Keys of the number of layers from one with experts to the next, at the end of each such part of the model."""


@dataclass(frozen=True)
class ModelConfig:
    """Facts of a model's config.json; those of its text part come first."""

    source: str
    """Path of the file."""
    whole: Mapping[str, object]
    """Every key of the file."""

    @cached_property
    def text(self) -> Mapping[str, object]:
        """Keys of the text part: all but one of a model with pictures are there, and DBRX's lie in parts below it."""
        thinker = self.whole.get("thinker_config")  # Qwen3-Omni's
        nested = (thinker if isinstance(thinker, dict) else self.whole).get("text_config")
        found = nested if isinstance(nested, dict) else self.whole
        parts = [its for its in map(found.get, ("ffn_config", "attn_config")) if isinstance(its, dict)]
        return {name: value for part in (*parts, found) for name, value in part.items()} if parts else found

    @property
    def architecture(self) -> str:
        """Class of the model in transformers, `MixtralForCausalLM`; empty where the file names none."""
        named = self.whole.get("architectures")
        return str(named[0]) if isinstance(named, list) and named else ""

    @property
    def quantization(self) -> Mapping[str, object]:
        """Keys of the quantisation; none for a model without one."""
        found = self.whole.get("quantization_config") or self.text.get("quantization_config")
        return found if isinstance(found, dict) else {}

    def number(self, *names: str) -> int:
        """Return the integer from 1 to 2^20 that the first of these keys states, or the largest of its list; else 0.

        Architectures have different names for one size.
        """
        for name in names:
            value = self.text.get(name)
            numbers = value if isinstance(value, list) else [value]
            found = max((each for each in numbers if type(each) is int), default=0)
            if 0 < found <= _MOST:
                return found
        return 0

    def needed(self, *names: str) -> int:
        """Return the number of the first of these keys; raises UsageError if the file states none of them."""
        if found := self.number(*names):
            return found
        raise UsageError(f"{self.source} states no {' or '.join(names)}, an integer from 1 to {_MOST}")

    @property
    def layers(self) -> range:
        """Numbers of the text part's layers."""
        return range(min(self.needed("num_hidden_layers", "n_layers"), _MOST_LAYERS))

    @cached_property
    def expert_layers(self) -> frozenset[int]:
        """Numbers of the layers with several experts."""
        if self.number(*EXPERTS) < 2:
            return frozenset()
        listed, sparse = self.text.get("moe_layers"), self.text.get("moe_layer_freq")
        if isinstance(named := self.text.get("moe_layers_enum"), str):  # Step3's, `4,5,6`
            listed = [int(each) for each in re.findall(r"[0-9]{1,4}", named)]
        if isinstance(listed, list):
            return frozenset(self.layers) & frozenset(each for each in listed if type(each) is int)
        if isinstance(sparse, list):
            return frozenset(number for number, has in zip(self.layers, sparse, strict=False) if has)
        dense = self.text.get("mlp_only_layers")
        without = frozenset(each for each in dense if type(each) is int) if isinstance(dense, list) else frozenset()
        first = self.number("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers")
        found = self.layers[first : (self.number("moe_layer_end_index") or _MOST) + 1]
        every, offset = self.number("moe_layer_freq", "expert_layer_period") or 1, self.number("expert_layer_offset")
        step = self.number(*_STEPS) or 1
        return frozenset(n for n in found if n % every == offset % every and (n + 1) % step == 0) - without


def find_model(name: str, environment: Mapping[str, str]) -> ModelConfig:
    """Return the configuration of a model.

    Args:
        name: a config.json, a folder that holds one, or a model's name on the hub that the local cache has,
            `Qwen/Qwen3-30B-A3B`; `hf:` may stand before it.
        environment: variables of the process, some of which say where the cache is.

    Raises:
        UsageError: there is no such file and the cache has none, or the file is no JSON object.
    """
    place = name.removeprefix("hf:")
    path = Path(place).expanduser()
    if path.is_dir():
        path /= _NAME
    elif not path.exists():
        path = _cached(place, environment)
    content = _object(path)
    beside = path.with_name(_BESIDE)
    if "quantization_config" not in content and beside.is_file():
        found = _object(beside)
        stated = nested if isinstance(nested := found.get("quantization"), dict) else found  # ModelOpt's is nested
        content = {**content, "quantization_config": {"quant_method": "modelopt", **stated}}
    return ModelConfig(str(path), content)


def _object(path: Path) -> dict[str, object]:
    content = parse_json(read_text(path, "model's configuration"), str(path), UsageError)
    if not isinstance(content, dict):
        raise UsageError(f"{path} holds no object, but a {type(content).__name__}")
    return content


def _cached(name: str, environment: Mapping[str, str]) -> Path:
    """Return the config.json that the local Hugging Face cache has of a model."""
    if not _HUB_NAME.fullmatch(name):
        raise UsageError(f"there is no {name}: name a config.json, its folder, or a model such as Qwen/Qwen3-30B-A3B")
    home = Path(environment.get("HF_HOME") or Path(environment.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    cache = Path(environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE") or home / "hub")
    folder = cache.expanduser() / f"models--{name.replace('/', '--')}"
    revision = folder / "refs" / "main"
    wanted = read_text(revision, "revision").strip() if revision.is_file() else "*"
    found = sorted(folder.glob(f"snapshots/{wanted}/{_NAME}"))
    if not found:
        raise UsageError(
            f"{name} is no file, no folder, and not in the Hugging Face cache {cache}, and nothing is downloaded here: "
            f"run hf download {name} {_NAME}, or name a folder with its {_NAME}"
        )
    return found[-1]
