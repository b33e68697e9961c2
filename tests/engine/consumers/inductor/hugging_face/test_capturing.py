"""Models by name are captured as torch itself counts their products, eager and on the meta device."""

from __future__ import annotations

import copy
from collections import Counter

import pytest

import gemmtune as gt
from gemmtune.engine.records.errors import ToolchainMissing, UsageError
from gemmtune.engine.toolchain.gpu_info import present_device

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: the extra hf")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402 (behind the skips)

from gemmtune.engine.consumers.inductor.hugging_face.config import find_config  # noqa: E402 (as above)

pytestmark = [
    pytest.mark.filterwarnings("ignore:::torch"),  # torch warns of itself
    pytest.mark.filterwarnings("ignore:::transformers"),
]

SMALL = {"hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "vocab_size": 272}
LLAMA_1B = {
    "architectures": ["LlamaForCausalLM"],
    "dtype": "bfloat16",
    "head_dim": 64,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
    "vocab_size": 128256,
}


class Products(TorchDispatchMode):
    """Counter of the layers that torch runs, by their sizes m, n and k."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            a, b = args[-2:]
            self.counts[a.shape[0], b.shape[1], a.shape[1]] += 1
        return func(*args, **(kwargs or {}))


def truth(config, model, tokens, batch) -> Counter:
    """Products of a step of decoding, or of a prompt, that the eager model runs on the meta device."""
    with torch.device("meta"):
        built = getattr(transformers, model)(copy.deepcopy(config)).eval()
        ids = torch.zeros(batch, tokens, dtype=torch.int64)
        named = {"cache": transformers.DynamicCache(config=config)} if tokens == 1 else {"logits_to_keep": 1}
        with torch.no_grad(), Products() as products:
            built(ids, **named)
    return products.counts


def counted(captured) -> Counter:
    """Products of a capture in one dimension of its batch, by m, n and k, those that no row can serve too."""
    counts = Counter()
    for each in captured.products:
        if each.problem.batch == 1 and each.problem.op.value != "bmm":
            counts[each.problem.m, each.problem.n, each.problem.k] += each.count
    return counts


def saved(folder, config, **more):
    for name, value in more.items():
        setattr(config, name, value)
    config.save_pretrained(folder)
    return f"hf:{folder}"


CONFIGS = {
    "LlamaForCausalLM": lambda: transformers.LlamaConfig(num_hidden_layers=3, num_key_value_heads=2, **SMALL),
    "Qwen3ForCausalLM": lambda: transformers.Qwen3Config(
        num_hidden_layers=3, num_key_value_heads=2, head_dim=16, **SMALL
    ),
    "Gemma3ForCausalLM": lambda: transformers.Gemma3TextConfig(
        num_hidden_layers=7, num_key_value_heads=2, head_dim=16, sliding_window=32, sliding_window_pattern=3, **SMALL
    ),
    "GPT2LMHeadModel": lambda: transformers.GPT2Config(n_layer=3, n_embd=64, n_head=4, vocab_size=272),
}


@pytest.mark.parametrize("model", CONFIGS)
@pytest.mark.parametrize(("tokens", "batch"), [(1, 3), (16, 1)])
def test_a_models_layers_are_those_that_torch_runs(tmp_path, model, tokens, batch):
    config = CONFIGS[model]()
    captured = gt.capture(saved(tmp_path, config), tokens=tokens, batch=batch, device="H200")
    assert counted(captured) == truth(config, model, tokens, batch)


def test_published_sizes_are_captured_at_two_layers_as_at_sixteen(tmp_path):
    config = transformers.LlamaConfig(**LLAMA_1B)
    captured = gt.capture(saved(tmp_path, config), tokens=[1, 16], layers=2, device="H200")
    assert counted(captured) == truth(config, "LlamaForCausalLM", 1, 1) + truth(config, "LlamaForCausalLM", 16, 1)
    assert [(each.name, each.products, each.runs) for each in captured.calls] == [
        ("tokens=1 batch=1 context=2048", 5, 113),
        ("tokens=16 batch=1", 5, 113),
    ]
    assert "from 2 of 16 layers" in captured.source


def test_layers_of_several_kinds_are_cut_at_whole_periods(tmp_path):
    config = transformers.Gemma3TextConfig(
        num_hidden_layers=14, num_key_value_heads=2, head_dim=16, sliding_window=32, **SMALL
    )
    name = saved(
        tmp_path, config, layer_types=(["sliding_attention"] * 2 + ["full_attention"]) * 4 + ["sliding_attention"] * 2
    )
    captured = gt.capture(name, tokens=1, batch=3, layers=3, device="H200")
    assert "from 5 of 14 layers" in captured.source  # 2 layers, and periods of 3
    assert counted(captured) == truth(find_config(name), "Gemma3ForCausalLM", 1, 3)


def test_calls_of_a_model_by_name_have_weights_of_their_own(tmp_path):
    config = transformers.LlamaConfig(num_hidden_layers=2, num_key_value_heads=2, **SMALL)
    calls = ["weight=10 tokens=1 batch=2 context=64", "tokens=8"]
    captured = gt.capture(saved(tmp_path, config), calls=calls, device="H200")
    expected = truth(config, "LlamaForCausalLM", 8, 1)
    for _ in range(10):
        expected += truth(config, "LlamaForCausalLM", 1, 2)
    assert counted(captured) == expected


@pytest.mark.parametrize(
    ("config", "arguments", "runs"),
    [
        (lambda: transformers.BertConfig(num_hidden_layers=2, **SMALL), {"tokens": 16, "batch": 2}, 2 * 6 + 2),
        (
            lambda: transformers.T5Config(num_layers=2, d_model=64, d_ff=128, d_kv=16, num_heads=4, vocab_size=272),
            {"tokens": 16},
            2 * 6 + 2 * 10 + 1,  # an encoder's layer, a decoder's with cross-attention, the head
        ),
        (
            lambda: transformers.ViTConfig(
                num_hidden_layers=2,
                image_size=32,
                patch_size=8,
                hidden_size=64,
                intermediate_size=128,
                num_attention_heads=4,
            ),
            {"batch": 2},
            2 * 6 + 1,  # a layer, the pooler
        ),
    ],
    ids=["encoder", "encoder-decoder", "vision"],
)
def test_other_models_are_called_where_the_call_is_plain(tmp_path, config, arguments, runs):
    captured = gt.capture(saved(tmp_path, config()), **arguments, device="H200")
    assert sum(counted(captured).values()) == runs


def test_a_step_of_training_has_the_gradients_of_every_layer(tmp_path):
    config = transformers.LlamaConfig(num_hidden_layers=2, num_key_value_heads=2, **SMALL)
    captured = gt.capture(saved(tmp_path, config), tokens=16, batch=2, grad=True, device="H200")
    assert sum(counted(captured).values()) == 3 * (2 * 7 + 1)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantised by gptq"),
        ({"model_type": "nobody"}, "has model type `nobody`"),
        ({"model_type": "wav2vec2"}, "takes input_values: only models of tokens and of pixels"),
        ({"hidden_size": 3}, "model_type"),
        ({"model_type": "resnet"}, "takes pixel_values, and its config.json has no image_size: only"),
        (
            {"model_type": "clip", "text_config": SMALL, "vision_config": {"num_hidden_layers": 1}},
            "is a CLIPModel, called in torch.bfloat16 with input_ids: change config.json, or write a builder",
        ),
    ],
)
def test_what_cannot_be_called_by_name_is_refused_with_the_reason(tmp_path, fields, said):
    import json

    (tmp_path / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        gt.capture(f"hf:{tmp_path}", tokens=1, device="H200")


def test_layers_of_a_model_that_does_not_build_are_refused_with_the_reason(tmp_path):
    name = saved(tmp_path, transformers.LlamaConfig(num_hidden_layers=4, hidden_act="none-such", **SMALL))
    with pytest.raises(UsageError, match=r"builds no model: .*none-such"):
        gt.capture(name, tokens=16, layers=2, device="H200")


def test_a_model_that_takes_no_static_cache_is_refused_with_the_reason(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("the cache has no attention layers")

    monkeypatch.setattr(transformers.LlamaForCausalLM, "prepare_inputs_for_generation", refuse)
    name = saved(tmp_path, transformers.LlamaConfig(num_hidden_layers=2, **SMALL))
    with pytest.raises(UsageError, match="StaticCache: ValueError: the cache has no attention layers"):
        gt.capture(name, tokens=1, device="H200")


def test_a_model_of_text_and_pictures_writes_text_even_if_no_architecture_is_named(tmp_path):
    text = transformers.LlamaConfig(num_hidden_layers=2, num_key_value_heads=2, **SMALL)
    vision = {"model_type": "clip_vision_model", "num_hidden_layers": 1}
    config = transformers.LlavaConfig(text_config=text, vision_config=vision)
    captured = gt.capture(saved(tmp_path, config), tokens=1, batch=3, device="H200")
    assert counted(captured) == truth(text, "LlamaForCausalLM", 1, 3)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("hf:./nowhere", {}, r"there is no nowhere/config\.json"),
        ("hf:a/b/c", {}, "malformed model 'hf:a/b/c'"),
        ("hf:nobody/none-such", {}, "is not in the local cache, and the hub is not asked"),
        ("hf:x", {"inputs": ["bf16[2,2]"]}, "makes its own inputs: give --tokens"),
        ("hf:x", {"tokens": 0}, "tokens=0 is not an integer from 1 on"),
        ("hf:x", {"calls": ["tokens=1 bach=2"]}, "has 'bach=2': did you mean batch"),
        ("m:f", {"tokens": 1}, "are for a model by name"),
    ],
)
def test_a_wrong_name_or_call_is_said(monkeypatch, name, arguments, said):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match=said):
        gt.capture(name, *arguments.pop("inputs", ()), **arguments, device="H200")


def test_a_model_class_that_does_not_import_is_an_error_with_its_cause(tmp_path, monkeypatch):
    lazy = type(transformers).__getattr__

    def broken(package, name):
        if name == "BrokenForCausalLM":
            raise ModuleNotFoundError(f"Could not import module {name!r}") from RuntimeError("no torchvision::nms")
        return lazy(package, name)

    monkeypatch.setattr(type(transformers), "__getattr__", broken)
    model = saved(tmp_path, transformers.LlamaConfig(architectures=["BrokenForCausalLM"], **SMALL))
    with pytest.raises(UsageError, match="transformers does not load its model: RuntimeError: no torchvision::nms"):
        gt.capture(model, tokens=1, device="H200")


def test_without_transformers_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("gemmtune.engine.toolchain.installed.find_spec", lambda name: name != "transformers" or None)
    with pytest.raises(ToolchainMissing, match=r"capture of hf:x needs transformers: pip install .*\[hf\]"):
        gt.capture("hf:x", device="H200")


@pytest.mark.gpu
@pytest.mark.skipif(present_device() is None, reason="needs a GPU")
def test_on_the_gpu_a_models_products_are_those_without_it(tmp_path):
    config = transformers.LlamaConfig(num_hidden_layers=2, num_key_value_heads=2, **SMALL)
    name = saved(tmp_path, config)
    here = gt.capture(name, tokens=[1, 16], batch=2)
    assert counted(here) == counted(gt.capture(name, tokens=[1, 16], batch=2, device="A100-80GB"))
