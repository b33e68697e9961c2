"""Weights that are no plain tensors: captured by their parts, or refused by name."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import gemmtune as gt
from gemmtune.engine.records.errors import UsageError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from torch import distributed  # noqa: E402 (torch is there)
from torch.nn.functional import linear  # noqa: E402 (torch is there)
from torch.utils._python_dispatch import return_and_correct_aliasing  # noqa: E402 (torch is there)

pytestmark = [pytest.mark.slow(20), pytest.mark.filterwarnings("ignore:::torch")]  # torch warns of itself


class Scaled(torch.Tensor):
    """Weight of int8 with a scale per row, which a layer multiplies behind its product."""

    @staticmethod
    def __new__(cls, data, scale):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=torch.bfloat16, device=data.device)

    def __init__(self, data, scale):
        self.data_, self.scale = data, scale

    def __repr__(self):
        return type(self).__name__

    def __tensor_flatten__(self):
        return ["data_", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, parts, *_):
        return cls(parts["data_"], parts["scale"])

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is linear:
            return cls.product(args[0], args[1])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        return return_and_correct_aliasing(func, args, kwargs or {}, cls(args[0].data_, args[0].scale))

    @staticmethod
    def product(x, weight):
        return linear(x, weight.data_.to(x.dtype)) * weight.scale


class Integers(Scaled):
    """Weight whose layer multiplies integers."""

    @staticmethod
    def product(x, weight):
        return torch._int_mm(x.to(torch.int8), weight.data_.t()) * weight.scale


class Packed(Scaled):
    """Weight whose layer Inductor lowers to a product with a weight of int8."""

    @staticmethod
    def product(x, weight):
        return (x @ weight.data_.t().to(x.dtype)) * weight.scale


class Nested(Scaled):
    """Weight of which one part is such a weight itself."""

    @staticmethod
    def product(x, weight):
        return linear(x, weight.data_)


class Hidden(torch.nn.Parameter):
    """Weight whose scale is an attribute that torch does not know."""

    scale: torch.Tensor


def layer(weight):
    made = torch.nn.Linear(512, 1024, bias=False, dtype=torch.bfloat16)
    made.weight = weight if isinstance(weight, torch.nn.Parameter) else torch.nn.Parameter(weight, requires_grad=False)
    return made


def scaled(kind=Scaled):
    return kind(torch.zeros(1024, 512, dtype=torch.int8), torch.ones(1024, dtype=torch.bfloat16))


def found_in(model):
    found = gt.capture(model, "bf16[32,512]", device="H200")
    products = [(product.problem.name, product.count, dict(product.epilogues)) for product in found.products]
    return products, [(work.operation, work.count) for work in found.unseen]


def test_a_weight_of_parts_is_what_the_model_makes_of_them():
    product = ("32x1024x512:bf16:nt", 1, {"mul(row)": 1})
    assert found_in(layer(scaled())) == ([product], [])
    assert found_in(layer(Nested(scaled(), torch.ones(1024)))) == ([product], [])
    whole = ("32x1024x512:int8:nt:out_dtype=bf16", 1, {"mul(row)": 1})
    assert found_in(layer(scaled(Integers))) == ([whole], [])
    assert found_in(layer(scaled(Packed))) == ([], [("aten._weight_int8pack_mm.default[32, 512]×[1024, 512]", 1)])
    floor = gt.capture(layer(scaled(Packed)), "bf16[32,512]", device="H200").floor
    assert ([each.flops for each in floor.parts if each.flops], floor.unknown) == ([2 * 32 * 1024 * 512], [])


def test_a_builder_makes_such_weights_on_the_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "quantised", SimpleNamespace(build=lambda: layer(scaled())))
    assert found_in("quantised:build") == ([("32x1024x512:bf16:nt", 1, {"mul(row)": 1})], [])


def product_of(x, weight):
    return linear(x, weight)


def test_an_input_of_parts_is_captured_by_them():
    found = gt.capture(product_of, "bf16[32,512]", scaled(), device="H200")
    assert [product.problem.name for product in found.products] == ["32x1024x512:bf16:nt"]
    assert found.products[0].epilogues == (("mul(row)", 1),)


def test_a_weight_whose_parts_torch_does_not_know_is_refused_by_name():
    weight = Hidden(torch.zeros(1024, 512, dtype=torch.bfloat16))
    weight.scale = torch.ones(1024)
    model = layer(weight)
    with pytest.raises(UsageError, match=r"is a Hidden, .* capture the model on a machine with the GPU"):
        found_in(model)
    assert model.weight is weight


def sharded():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    layers = (torch.nn.Linear(512, 2048, bias=False), torch.nn.SiLU(), torch.nn.Linear(2048, 512, bias=False))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(torch.nn.Sequential(*layers).bfloat16(), init_device_mesh("cuda", (4,)), plan)


@pytest.mark.skipif(not distributed.is_available(), reason="torch was built without torch.distributed")
def test_shards_of_a_model_are_captured_with_their_communication(monkeypatch):
    monkeypatch.setitem(sys.modules, "sharded", SimpleNamespace(build=sharded))
    try:
        products, others = found_in("sharded:build")
    finally:
        distributed.destroy_process_group()
    assert products == [("32x512x512:bf16:nt", 2, {"silu": 1})]
    assert ("_c10d_functional.all_reduce_.default", 1) in others


def test_scales_that_no_row_serves_are_named_with_their_size():
    float8 = torch.float8_e4m3fn

    def blocks(x):
        sizes = {"device": x.device, "dtype": torch.float32}
        weight, of_weight = torch.zeros(256, 512, device=x.device).to(float8), torch.ones(2, 4, **sizes).t()
        return torch._scaled_mm(x.to(float8), weight.t(), torch.ones(32, 4, **sizes), of_weight, out_dtype=x.dtype)

    found = gt.capture(blocks, "bf16[32,512]", device="H200")
    (unseen,) = found.unseen
    assert (unseen.operation, [*found.products]) == ("scaled_mm", [])
    assert unseen.reason.startswith("block-wise scales of 32x4 and 4x2, for blocks of 1x128 and 128x128, in a product")
    assert unseen.reason.endswith("of 32x256x512")


@pytest.mark.filterwarnings("ignore:Sparse")  # torch warns of itself
@pytest.mark.parametrize("kind", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
def test_a_sparse_tensor_is_refused_with_the_way_out(kind):
    class Sparse(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(getattr(torch.eye(64), kind)(), requires_grad=False)

        def forward(self, x):
            return self.weight @ x

    with pytest.raises(UsageError, match=rf"\[64, 64\] has torch\.{kind[3:]}.*convert it with to_dense\(\)"):
        gt.capture(Sparse(), "fp32[64,64]", device="H200")
