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
        values=lambda arguments, values: {**arguments, **values},
        grid=grid,
    )
    task = SimpleNamespace(problem=SimpleNamespace(sizes={"n": 1000}), device=catalogue.device("H200"))
    artifact = SimpleNamespace(launch=(("passed", "x out n scale flag"), ("threads_0", 256)))
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
