"""Models that a callable refers to, and tensors of a GPU that is not here."""

from __future__ import annotations

import functools
import importlib
import warnings

import pytest

import gemmtune as gt
from gemmtune.engine.records.errors import UsageError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch warns of itself
    from gemmtune.engine.consumers.inductor.capture import calls, lowering, no_data
    from gemmtune.engine.consumers.inductor.capture.fake_gpu import GPU

from torch._functorch import config as functorch_config  # noqa: E402 (torch is there)
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

ONE, OTHER = torch.nn.Linear(2, 2), torch.nn.ReLU()


MANY = {"one": [ONE], "other": (OTHER,)}


def of_a_container(x):
    return MANY["other"][0](MANY["one"][0](x))


def of_a_lambda(x):
    return next(map(lambda y: OTHER(ONE(y)), [x]))  # noqa: C417 (a lambda)


def of_a_generator_expression(x):
    return sum(OTHER(ONE(part)) for part in x.split(1))


def of_globals(x):
    return OTHER(ONE(x))


def of_closure(model):
    def call(x):
        return model(x)

    return call


class Method(torch.nn.Module):
    def call(self, x):
        return x


METHOD = Method()


@pytest.mark.parametrize(
    ("call", "models"),
    [
        (ONE, [ONE]),
        (of_globals, [OTHER, ONE]),
        (of_a_container, [OTHER, ONE]),
        (of_a_lambda, [OTHER, ONE]),
        (of_a_generator_expression, [OTHER, ONE]),
        (of_closure(ONE), [ONE]),
        (METHOD.call, [METHOD]),
        (functools.partial(of_closure(ONE), scale=OTHER), [ONE, OTHER]),
        (functools.partial(METHOD.call, ONE), [METHOD, ONE]),
        (functools.partial(ONE, ONE), [ONE]),
        (torch.relu, []),
        (len, []),
    ],
)
def test_the_models_of_a_callable_are_found_once_each(call, models):
    found = calls.models_of(call)
    assert sorted(map(id, found)) == sorted(map(id, models))


def test_a_tensor_without_data_on_a_cpu_is_not_on_the_fake_gpu():
    with FakeTensorMode():
        fake = torch.empty(2)
    assert not no_data.is_on_fake_gpu(fake)
    assert not no_data.is_on_fake_gpu(torch.empty(2))


def test_a_capture_takes_nothing_from_caches_and_frees_no_input_meanwhile():
    before = functorch_config.enable_autograd_cache, functorch_config.donated_buffer
    recorder = lowering.Lowering((), [], lambda tensor: None)
    assert not recorder.is_running
    with recorder.settings():
        assert (functorch_config.enable_autograd_cache, functorch_config.donated_buffer) == (False, False)
    assert (functorch_config.enable_autograd_cache, functorch_config.donated_buffer) == before


def gone(x):
    return ONE(x)


class Builder:
    def __init__(self):
        raise MemoryError("too\nlarge")


class Silent:
    pass


@pytest.mark.parametrize(
    ("given", "has_inputs", "built"),
    [
        (ONE, True, ONE),
        (lambda: ONE, True, ONE),
        (gone, True, gone),
        (max, True, max),  # Python knows no signature of it
        (torch.nn.ReLU, False, torch.nn.ReLU),
    ],
)
def test_a_class_and_a_function_without_parameters_build_the_model(given, has_inputs, built):
    found = calls.built_call(given, "m:x", has_inputs=has_inputs)
    assert built in (found, type(found))


def test_without_inputs_a_function_without_parameters_is_the_call():
    def run():
        raise AssertionError

    assert calls.built_call(run, "m:x", has_inputs=False) is run


def test_a_model_that_is_not_built_is_refused_with_the_first_line_of_its_reason():
    with pytest.raises(UsageError, match=r"^m:x builds no model: MemoryError: too( \(.*, line \d+\))?$"):
        calls.built_call(Builder, "m:x", has_inputs=True)
    with pytest.raises(UsageError, match=r"^m:x returns Silent, which cannot be called$"):
        calls.built_call(Silent, "m:x", has_inputs=True)

    def stopped():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calls.built_call(stopped, "m:x", has_inputs=True)


def test_the_cause_of_an_error_is_the_innermost_exception():
    inner, outer = ValueError("inner"), TypeError("outer")
    outer.__cause__ = inner
    assert calls.cause_of(outer) is inner
    assert calls.described(outer) == "ValueError: inner"
    assert calls.described(ValueError("x" * 400)) == f"ValueError: {'x' * 300}"
    assert calls.described(ValueError()) == "ValueError: "
    hidden = TypeError("handled")
    hidden.__context__ = inner
    assert calls.cause_of(hidden) is hidden
    outer.__cause__ = KeyboardInterrupt()
    assert calls.cause_of(outer) is outer


def test_models_get_tensors_without_data_within_the_block_and_their_own_back_after_it():
    model = torch.nn.BatchNorm1d(4)
    model.shared = model.weight
    model.bias.requires_grad_(False)
    weight, mean = model.weight, model.running_mean
    with FakeTensorMode(allow_non_fake_inputs=True), calls.on_fake_gpu(model):
        assert model.weight is model.shared
        assert (model.weight.requires_grad, model.bias.requires_grad) == (True, False)
        assert isinstance(model.weight, torch.nn.Parameter)
        assert not isinstance(model.running_mean, torch.nn.Parameter)
        assert {each.device.type for each in (model.weight, model.running_mean)} == {GPU.type}
        assert model.weight.shape == (4,)
    assert model.weight is model.shared is weight
    assert model.running_mean is mean


def test_a_failure_within_an_installed_model_names_its_line_and_not_the_compilers(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "installed_model.py").write_text("import torch\n\n\ndef call(x):\n    return torch.nn.Linear(2, 2)(x)\n")
    monkeypatch.syspath_prepend(folder)
    call = importlib.import_module("installed_model").call
    with pytest.raises(RuntimeError) as caught:
        call(torch.ones(2, 3))
    its_own = caught.value.with_traceback(caught.value.__traceback__.tb_next)
    assert calls.described(its_own).endswith("installed_model.py, line 5)")


CHOICES = """
import torch
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
half = torch.float16 if torch.cuda.get_device_capability() >= (9, 0) else torch.float32
@torch.autocast("cuda", dtype=torch.float16)
def cast(x, w):
    return x @ w
def chosen(x, w):
    return (x.to(DEVICE, half) @ w.to(half)) * torch.ones(64, dtype=half, device=DEVICE)
"""


@pytest.mark.parametrize("name", ["cast", "chosen"])
def test_a_module_sees_the_gpu_as_it_is_imported(tmp_path, monkeypatch, name):
    (tmp_path / f"choices_{name}.py").write_text(CHOICES)
    monkeypatch.syspath_prepend(tmp_path)
    found = gt.capture(f"choices_{name}:{name}", "fp32[64,64]", "fp32[64,64]", device="H200")
    assert [product.problem.name for product in found.products] == ["64x64x64:fp16:nn"]
    assert not torch.cuda.is_available()


@pytest.mark.skipif(torch.cuda.is_available(), reason="moves what is imported to the GPU")
@pytest.mark.parametrize("moves", ["weight = weight.cuda()", "torch.set_default_device('cuda')"])
def test_a_module_that_needs_a_gpu_which_it_sees_is_imported_without_it(tmp_path, monkeypatch, moves):
    text = (
        f"import torch\nweight = torch.ones(64, 64)\nif torch.cuda.is_available(): {moves}\nweight += torch.ones(64)\n"
    )
    name = f"moves_{len(moves)}"
    (tmp_path / f"{name}.py").write_text(f"{text}\ndef call(x):\n    return x @ weight.to(x.device)\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = gt.capture(f"{name}:call", "fp32[64,64]", device="H200")
    assert [product.problem.name for product in found.products] == ["64x64x64:fp32:nn"]


def test_sizes_of_tensors_stay_marked_as_dynamic():
    x, w = torch.zeros(64, 64), torch.zeros(64, 64)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=128)
    (product,) = gt.capture(lambda x, w: x @ w, x, w, device="H200").products
    assert product.problem.dynamic_m
    assert (product.first, product.last) == (2, 128)


@pytest.mark.parametrize("held", [list, lambda pair: {"x": pair[0], "of": {"w": pair[1]}}], ids=["list", "dict"])
def test_tensors_in_containers_are_on_the_gpu(held):
    call = lambda its: its[0] @ its[1] if isinstance(its, list) else its["x"] @ its["of"]["w"]  # noqa: E731 (short)
    found = gt.capture(call, held((torch.zeros(64, 64), torch.zeros(64, 64))), device="H200")
    assert [product.problem.name for product in found.products] == ["64x64x64:fp32:nn"]


def of_a_stream(x):
    with torch.cuda.stream(torch.cuda.Stream()):
        return x @ x


def of_a_generator(x):
    return x @ torch.rand(x.shape, generator=torch.Generator(x.device), device=x.device)


def of_a_model_far_away(x):
    return of_a_model(x)


def of_a_model(x):
    return ONE(x)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU has these")
@pytest.mark.parametrize("call", [of_a_stream, of_a_generator])
def test_a_call_of_cuda_itself_is_refused_with_a_way_out(call):
    with pytest.raises(UsageError, match=r"test_calls.py, line \d+\).*it asks CUDA itself.* capture where the GPU is"):
        gt.capture(call, "fp32[2,2]", device="H200")


def test_a_model_that_stays_on_the_cpu_is_refused_with_a_way_out():
    with pytest.raises(UsageError, match="of a model which the callable itself names stays on the CPU"):
        gt.capture(of_a_model_far_away, "fp32[2,2]", device="H200")
