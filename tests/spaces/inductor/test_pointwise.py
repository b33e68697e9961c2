"""Pointwise kernels behind the vendor library's product: loaded, chosen among and closed without a GPU."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmtune.engine.records.gemm.problem import Problem  # noqa: E402
from gemmtune.engine.toolchain.launching import cubin  # noqa: E402
from gemmtune.spaces.inductor import pointwise  # noqa: E402

PROBLEM = Problem.parse("16x32x64:bf16:nt:epilogue=gelu.add(matrix)")


class Kernel:
    """A loaded kernel: it moves a clock by the number of its threads."""

    now, loaded = 0.0, []

    def __init__(self, *given):
        self.given, self.calls, self.closed = given, [], 0
        Kernel.loaded.append(self)

    def __call__(self, *tensors):
        self.calls.append(tensors)
        Kernel.now += self.given[3]

    def close(self):
        self.closed += 1


def variant(first, size, threads, name="k"):
    facts = {"first_byte": first, "bytes": size, "entry": name, "grid": [4, 1, 1], "threads": threads}
    return {**facts, "shared_bytes": 64, "arguments": ["product", "out"], "values": {"n": 7}, "scratch": {}}


@pytest.fixture
def loaded(monkeypatch, tmp_path):
    def load(*kernels):
        Kernel.now, Kernel.loaded = 0.0, []
        file = tmp_path / "kernels.cubins"
        file.write_bytes(b"0123456789")
        artifact = SimpleNamespace(path=file, launch=(("kernels", json.dumps(kernels)),))
        return pointwise.PointwiseKernels(artifact, PROBLEM)

    monkeypatch.setattr(cubin, "CubinKernel", Kernel)
    return load


def test_each_kernel_is_loaded_from_its_bytes(loaded):
    loaded([variant(0, 4, 128)], [variant(4, 6, 256, "l")])
    names = (*PROBLEM.argument_names, "product")
    assert [each.given for each in Kernel.loaded] == [
        (b"0123", "k", (4, 1, 1), 128, 64, ["product", "out"], {"n": 7}, names),
        (b"456789", "l", (4, 1, 1), 256, 64, ["product", "out"], {"n": 7}, names),
    ]


def test_kernels_run_in_order_with_all_tensors_and_are_closed_together(loaded):
    kernels = loaded([variant(0, 4, 128)], [variant(4, 6, 256)])
    kernels("a", "b")
    assert [each.calls for each in Kernel.loaded] == [[("a", "b")]] * 2
    kernels.close()
    assert [each.closed for each in Kernel.loaded] == [1, 1]


@pytest.mark.parametrize(("threads", "best"), [((256, 128, 512), 1), ((128, 256), 0), ((128, 128), 0)])
def test_the_fastest_variant_is_chosen_once_on_a_cold_cache_and_the_others_are_closed(
    loaded, monkeypatch, threads, best
):
    wiped = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = Kernel.now

        def synchronize(self):
            pass

        def elapsed_time(self, end):
            return end.at - self.at

    def empty(size, dtype, device):
        return SimpleNamespace(zero_=lambda: wiped.append((size, dtype, device)))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: SimpleNamespace(L2_cache_size=1000))
    monkeypatch.setattr(torch, "empty", empty)
    kernels = loaded([variant(0, 4, number) for number in threads])
    kernels("a")
    assert [each.closed for each in Kernel.loaded] == [int(place != best) for place in range(len(threads))]
    assert wiped == [(4000, torch.uint8, "cuda")] * 100 * len(threads)
    runs = [len(each.calls) for each in Kernel.loaded]
    assert runs == [101 + (place == best) for place in range(len(threads))]
    kernels("a")
    assert len(Kernel.loaded[best].calls) == runs[best] + 1
    assert len(wiped) == 100 * len(threads)
