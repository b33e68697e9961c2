"""Constants that a call makes on a GPU that is not here are part of its graph, however they are written."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import gemmtune as gt

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

pytestmark = [pytest.mark.slow(30), pytest.mark.filterwarnings("ignore:::torch")]  # torch warns of itself

PAIR = torch.tensor([1.0, 2.0])

NUMBERS = {
    "tensor": lambda x: torch.tensor(2.0, device=x.device),
    "tensor on cuda": lambda _: torch.tensor(2.0, device="cuda"),
    "new_tensor": lambda x: x.new_tensor(2.0),
    "as_tensor": lambda x: torch.as_tensor(2.0, device=x.device),
    "to a device": lambda x: torch.tensor(2.0).to(x.device),
    "to cuda": lambda _: torch.tensor(2.0).to("cuda"),
    "cuda": lambda _: torch.tensor(2.0).cuda(),
    "to a tensor's": lambda x: torch.tensor(2.0).to(x),
    "pinned": lambda _: torch.tensor(2.0).pin_memory().to("cuda", non_blocking=True),
    "changed": lambda x: torch.tensor(1.0, device=x.device).add_(1),
    "computed": lambda x: torch.sqrt(torch.tensor(4.0, device=x.device)),
    "full": lambda x: torch.full((), 2.0, device=x.device),
}
PAIRS = {
    "tensor": lambda x: torch.tensor([1.0, 2.0], device=x.device)[0],
    "moved": lambda _: torch.tensor([1.0, 2.0]).to("cuda")[0],
    "a global on the CPU": lambda x: PAIR.to(x.device)[0],
    "reduced": lambda x: torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=x.device).sum(),
}


def captured(number, *, grad=False):
    found = gt.capture(lambda x, w: (x @ w) * number(x), "bf16[64,256]", "bf16[256,512]", grad=grad, device="H200")
    return {(product.problem.name, product.epilogues): product.count for product in found.products}


@pytest.mark.parametrize("spelling", NUMBERS)
def test_a_number_is_a_constant_of_the_epilogue(spelling):
    assert captured(NUMBERS[spelling]) == {("64x512x256:bf16:nn", (("mul(2)", 1),)): 1}


@pytest.mark.parametrize("spelling", PAIRS)
def test_a_number_of_several_is_an_operand_of_the_epilogue(spelling):
    product = ("64x512x256:bf16:nn", (("mul(scalar[fp32])", 1),))
    assert captured(PAIRS[spelling]) == {product: 1}
    assert product in captured(PAIRS[spelling], grad=True)


def test_a_cache_that_starts_empty_is_captured():
    empty = lambda x: torch.tensor([], dtype=x.dtype, device=x.device)  # noqa: E731 (a function)
    cached = lambda x, w: torch.cat([empty(x), (x @ w).flatten()])  # noqa: E731 (a function)
    (product,) = gt.capture(cached, "bf16[64,256]", "bf16[256,512]", device="H200").products
    assert product.problem.name == "64x512x256:bf16:nn"


class Moved(torch.nn.Module):
    """Layer whose buffer and constant are moved to the GPU by its kind alone."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(256, 512)
        self.register_buffer("scale", torch.tensor([1.0, 2.0]).to("cuda"))
        self.factor = torch.tensor(3.0).cuda()

    def forward(self, x):
        return self.layer(x) * self.scale[0] * self.factor


def test_a_model_moves_its_tensors_to_the_gpu_by_its_kind(monkeypatch):
    monkeypatch.setitem(sys.modules, "moved", SimpleNamespace(Moved=Moved))
    (product,) = gt.capture("moved:Moved", "fp32[64,256]", device="H200").products
    assert product.problem.name == "64x512x256:fp32:nt"
    assert product.epilogues == (("add(row).mul(scalar).mul(scalar2)", 1),)


@pytest.mark.parametrize("call", [lambda y: y * 0, lambda y: y.relu().sum() * 0], ids=["matrix", "unused loss"])
def test_a_product_times_zero_runs_from_torch_2_14_on(call):
    found = gt.capture(lambda x, w: (call(x @ w), x @ w.T), "bf16[64,256]", "bf16[256,256]", device="H200")
    runs = ["64x256x256:bf16:nn"] if torch.torch_version.TorchVersion(torch.__version__) >= (2, 14) else []
    assert [product.problem.name for product in found.products] == [*runs, "64x256x256:bf16:nt"]
