"""Models that a callable refers to, and tensors of a GPU that is not here."""

from __future__ import annotations

import functools
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch warns of itself
    from gemmtune.engine.capture import calls, lowering

from torch._functorch import config as functorch_config  # noqa: E402 (torch is there)
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

ONE, OTHER = torch.nn.Linear(2, 2), torch.nn.ReLU()


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
    assert not calls._is_on_fake_gpu(fake)
    assert not calls._is_on_fake_gpu(torch.empty(2))


def test_a_capture_takes_nothing_from_caches_and_frees_no_input_meanwhile():
    before = functorch_config.enable_autograd_cache, functorch_config.donated_buffer
    recorder = lowering.Lowering((), {})
    assert not recorder.is_running
    with recorder.settings():
        assert (functorch_config.enable_autograd_cache, functorch_config.donated_buffer) == (False, False)
    assert (functorch_config.enable_autograd_cache, functorch_config.donated_buffer) == before
