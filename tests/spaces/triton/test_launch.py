"""What a launch of a user's binary passes, without a GPU: the kernels note it instead of loading."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmtune.engine.records import catalogue  # noqa: E402
from gemmtune.spaces.triton import launch  # noqa: E402 (it imports torch)
from gemmtune.spaces.triton_source.launches import Pointer  # noqa: E402


def test_tensors_are_passed_by_position_and_numbers_as_the_bits_of_their_slot(monkeypatch):
    x, out = torch.zeros(4), torch.zeros(4)
    seen = {}

    def grid(sizes, given):
        seen.update(sizes=sizes, given=given)
        return (5, 2, 1)

    definition = SimpleNamespace(
        name="Copy",
        tensors=lambda sizes: {"out": out, "x": x, "n": 1000, "scale": 0.5, "BLOCK": 1},
        decorators=SimpleNamespace(hook_of=lambda values: None),
        values=lambda arguments, values: {**arguments, **values},
        grid=grid,
    )
    task = SimpleNamespace(problem=SimpleNamespace(sizes={"n": 1000}), device=catalogue.device("H200"))
    artifact = SimpleNamespace(
        launch=(
            ("passed", "x out n scale flag"),
            ("types", "*fp32 *fp32 i32 fp32 u1"),
            ("threads_0", 256),
        )
    )
    monkeypatch.setattr(launch, "TritonKernels", lambda *given: given)
    loaded, [found] = launch.load(artifact, task, {"BLOCK": 64, "flag": True}, definition)
    assert loaded is artifact
    assert found.arguments == {
        "x": Pointer("", (1,)),
        "out": Pointer("", (0,)),
        "n": 1000,
        "scale": struct.unpack("<I", struct.pack("<f", 0.5))[0],
        "flag": 1,
    }
    assert (found.function, found.grid, found.num_warps, found.constants) == ("Copy", (5, 2, 1), 8, {})
    assert found.unaligned == {"x", "out", "n", "scale", "flag"}
    assert seen["sizes"] == {"n": 1000}
    assert seen["given"]["BLOCK"] == 64


@pytest.mark.parametrize(
    ("kind", "value", "bits"),
    [
        ("fp64", 0.5, struct.unpack("<Q", struct.pack("<d", 0.5))[0]),
        ("fp64", 1e300, struct.unpack("<Q", struct.pack("<d", 1e300))[0]),
        ("fp32", 1e300, 0x7F800000),  # infinity, as Triton's own launcher passes it
        ("fp32", 3, 0x40400000),
        ("fp16", 0.5, 0x3800),
        ("bf16", 0.5, 0x3F00),
        ("i64", 2**40, 2**40),
    ],
)
def test_a_number_fills_the_slot_of_its_type(kind, value, bits):
    assert launch._argument("eps", value, kind, {}) == bits


def test_a_hook_runs_before_every_launch_with_all_that_the_launch_passes():
    order = []
    kernels = SimpleNamespace(__call__=None, close=lambda: order.append("closed"))
    hooked = launch.HookedKernels(
        lambda *arguments: order.append(arguments), lambda given: order.append(dict(given)), ("out", "n"), {"BLOCK": 64}
    )
    hooked("tensor", 7)
    assert order == [{"BLOCK": 64, "out": "tensor", "n": 7}, ("tensor", 7)]
    launch.HookedKernels(kernels, print, (), {}).close()
    assert order[-1] == "closed"
