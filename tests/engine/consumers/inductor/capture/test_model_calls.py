"""Several calls of one model make one capture, and a call has a text."""

from __future__ import annotations

import pytest

import gemmtune as gt
from gemmtune.engine.consumers.inductor.capture.model_calls import parse_call, read_calls
from gemmtune.engine.records.errors import UsageError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

pytestmark = pytest.mark.filterwarnings("ignore:::torch")  # torch warns of itself


class Two(torch.nn.Module):
    """A layer that every call runs, and one of the calls without a mask."""

    def __init__(self):
        super().__init__()
        self.every = torch.nn.Linear(64, 32, bias=False, dtype=torch.bfloat16)
        self.some = torch.nn.Linear(32, 16, bias=False, dtype=torch.bfloat16)

    def forward(self, x, mask=None):
        made = self.every(x)
        return self.some(made) if mask is None else made * mask


@pytest.mark.parametrize(
    ("given", "weight", "inputs"),
    [
        ("bf16[16, 64]", 1.0, ["bf16[16,64]"]),
        ("  weight=512  x=bf16[16,64]  mask=bool[16,1]", 512.0, ["x=bf16[16,64]", "mask=bool[16,1]"]),
        (["weight=0.5", "weight=bf16[2,2]"], 0.5, ["weight=bf16[2,2]"]),
        ("", 1.0, []),
    ],
)
def test_a_call_is_its_inputs_and_a_weight(given, weight, inputs):
    call = parse_call(given)
    assert (call.weight, [str(each) for each in call.inputs]) == (weight, inputs)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("weight=-1 bf16[2,2]", "weight=-1 of a call is no number above 0"),
        ("weight=many bf16[2,2]", "weight=many of a call is no number above 0"),
        ("weight=nan", "weight=nan of a call"),
        ("weight=1 weight=2", "two weights, weight=1 and weight=2"),
        ("bf16", "malformed input 'bf16'"),
    ],
)
def test_a_malformed_call_is_refused_by_its_text(given, said):
    with pytest.raises(UsageError, match=said):
        parse_call(given)


def test_a_file_of_calls_has_one_per_line(tmp_path):
    path = tmp_path / "calls.txt"
    path.write_text("# decode\nweight=512 bf16[16,64]\n\n  bf16[8,64]\n", encoding="utf-8")
    assert read_calls(path) == ("weight=512 bf16[16,64]", "bf16[8,64]")
    path.write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(UsageError, match="has no call: write one per line"):
        read_calls(path)


def test_products_of_several_calls_are_merged_and_their_weights_add_up():
    calls = ["weight=3 bf16[16,64]", ["weight=0.5", torch.empty(16, 64, dtype=torch.bfloat16), "mask=bool[16,1]"]]
    captured = gt.capture(Two(), "bf16[4,64]", calls=calls, device="H200")
    assert {each.name: each.weight for each in captured.problems} == {
        "4x32x64:bf16:nt": 1.0,
        "4x16x32:bf16:nt": 1.0,
        "16x32x64:bf16:nt": 3.0,
        "16x16x32:bf16:nt": 3.0,
        "16x32x64:bf16:nt:epilogue=mul(column[bool])": 0.5,
    }
    assert [(each.name, each.weight, each.products, each.runs) for each in captured.calls] == [
        ("bf16[4,64]", 1.0, 2, 2),
        ("bf16[16,64]", 3.0, 2, 2),
        ("bfloat16[16,64] mask=bool[16,1]", 0.5, 1, 1),
    ]


def test_calls_of_an_open_size_and_of_a_fixed_one_are_products_apart():
    captured = gt.capture(Two(), calls=["weight=2 bf16[m:2..512,64]", "bf16[7,64]"], device="H200")
    assert [(each.m, each.count, each.problem.name) for each in captured.products if each.problem.n == 32] == [
        ("s77", 2.0, "32x32x64:bf16:nt:dynamic_m=true"),
        ("", 1.0, "7x32x64:bf16:nt"),
    ]


def test_a_call_that_fails_is_named():
    with pytest.raises(UsageError, match=r"^bf16\[4,65\]: the callable fails: "):
        gt.capture(Two(), calls=["bf16[4,64]", "weight=2 bf16[4,65]"], device="H200")
