"""Models by name run any number of calls alike: with random weights, and with their cache where a call found it."""

from __future__ import annotations

import warnings

import pytest

from gemmtune.engine.consumers.inductor.hugging_face.settings import CallSettings

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: the extra hf")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch warns of itself
    from gemmtune.engine.consumers.inductor.bench import bench_model

from gemmtune.engine.consumers.inductor.hugging_face.model import HubModel  # noqa: E402 (behind the skips)

SMALL = {
    **{"hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"head_dim": 16, "vocab_size": 272, "num_hidden_layers": 3, "dtype": "float32"},
}
SLIDING = {"sliding_window": 32, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}


@pytest.fixture(params=["llama", "gemma3"])
def config(request):
    configs = transformers.LlamaConfig, transformers.Gemma3TextConfig
    return configs[0](**SMALL) if request.param == "llama" else configs[1](**SMALL, **SLIDING)


def prepared(monkeypatch, config, *, grad=False, **sizes):
    monkeypatch.setattr(bench_model, "GPU", torch.device("cpu"))
    model = HubModel("hf:small", config)
    return bench_model._prepared(model.builder, model.call(CallSettings(**sizes), grad=grad).inputs, grad=grad)


def test_steps_of_decoding_repeat_beyond_the_end_of_the_cache(monkeypatch, config):
    found = prepared(monkeypatch, config, tokens=1, batch=2, context=3)
    arms = [found.arm(found.call), found.arm(torch.compile(found.call, backend="aot_eager"))]
    outputs = [arm.results()[0][0] for _ in range(4) for arm in arms]
    first = outputs[0]
    assert first.shape == (2, 1, 272)
    assert first.isfinite().all()
    assert first.std() > 1e-3
    assert all(torch.allclose(each, first, atol=1e-5) for each in outputs)
    assert all(int(layer.cumulative_length) == 2 for layer in found.named["cache"].layers)
    assert found.named["position_ids"].tolist() == [[1], [1]]


def test_a_step_of_decoding_computes_what_two_tokens_without_a_cache_do(monkeypatch, config):
    found = prepared(monkeypatch, config, tokens=1, batch=1, context=8)
    ids = found.named["input_ids"]
    primed = []
    with torch.no_grad():
        for token in range(272):
            both = torch.cat([torch.full_like(ids, token), ids], 1)
            primed.append(found.call(input_ids=both, use_cache=False).logits[:, -1])
    step = found.arm(found.call).results()[0][0][:, -1]
    assert min(float((each - step).abs().max()) for each in primed) < 1e-4


@pytest.mark.parametrize("grad", [False, True])
def test_prompts_and_steps_of_training_have_real_weights(monkeypatch, grad):
    found = prepared(monkeypatch, transformers.LlamaConfig(**SMALL), grad=grad, tokens=5, batch=2)
    output, *_, gradients = found.arm(found.call).results()
    assert output[0].isfinite().all()
    assert output[0].abs().sum() > 0
    assert len(gradients) == (len(list(found.call.parameters())) if grad else 0)
    assert all(each.isfinite().all() for each in gradients)
