"""The explained ranges of m that share a graph equal those of torch.compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from gemmtune.engine.consumers.inductor.graphs import guards
from gemmtune.engine.consumers.inductor.graphs.guards import Range, product_ranges
from gemmtune.engine.consumers.inductor.graphs.layers import Linear
from gemmtune.engine.consumers.inductor.graphs.products import asked_by_torch
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.gemm.terms import DType
from gemmtune.engine.toolchain.gpu_info import present_device
from gemmtune.engine.toolchain.releases import TORCH_VERSIONS

pytestmark = pytest.mark.slow(8, together="probes")

PROBE = Path(__file__).with_name("guard_probe.py")
H200, A100, L4 = map(catalogue.device, ("H200", "A100", "L4"))
FORUM = Linear(3420, 1280, DType.BF16)
LAST_INT32 = (2**31 - 1) // 3420

CASES = [
    (Linear(68, 20, DType.BF16, weight_grad=False), H200),
    (Linear(68, 20, DType.BF16, input_grad=True), A100),
    (Linear(1004, 1000, DType.BF16), L4),  # where the balance of the GPU cuts
    (Linear(66, 20, DType.FP32, input_grad=True), L4),
]


def ranges(layer: Linear, torch: str, device: Device, *, shape_padding: bool = True) -> tuple[Range, ...]:
    return product_ranges(tuple(layer.products()), layer.dtype, torch, device, shape_padding=shape_padding)


def edges(found: tuple[Range, ...]) -> list[tuple[int, int | None]]:
    return [(each.first, each.last) for each in found]


@pytest.fixture(scope="module")
def torch_version() -> str:
    pytest.importorskip("torch", reason="torch is not installed")
    return ".".join(version("torch").split(".")[:2])


def question(layer: Linear, device: Device | None, sizes: list[int], *, bias: bool = False) -> dict[str, object]:
    facts = ("name", "sm_count", "boost_clock_mhz", "memory_bandwidth_gb_s", "capability")
    return {
        "inputs": layer.inputs,
        "outputs": layer.outputs,
        "dtype": layer.dtype.torch_name,
        "bias": bias,
        "weight_grad": layer.weight_grad,
        "input_grad": layer.input_grad,
        "sizes": sizes,
        "device": device and {fact: getattr(device, fact) for fact in facts},
    }


@pytest.fixture
def answers(probe, tmp_path):
    """Return a function that asks torch.compile, in a process of its own."""

    def ask(questions: list[dict[str, object]]) -> list[dict[str, list[int]]]:
        done = probe(PROBE, tmp_path, json.dumps(questions))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return ask


def edge_sizes(layer: Linear, torch: str, device: Device, most: int = 2100) -> tuple[list[int], dict[str, list[int]]]:
    """Return the ends of ranges up to `most` (a CPU is slow on more), and the expected compilations."""
    found = [(first, last) for first, last in edges(ranges(layer, torch, device)) if first <= most]
    alone = [first for first, last in found if first == last]
    wanted = {"compiled": [first for first, _ in found if first not in alone], "specialised": alone}
    return sorted({m for first, last in found for m in (first, min(last or most, most))}), wanted


@pytest.mark.timeout(600)
def test_ranges_equal_those_of_torch_compile(answers, torch_version: str):
    # The first shows that the probe sees guards at all, also where the padding pass sets none: Inductor's C++ backend
    # sums the gradient of a bias otherwise from 4097 rows on.
    questions = [question(Linear(8, 8, DType.BF16), H200, [2, 4096, 4097], bias=True)]
    wanted = [{"compiled": [2, 4097], "specialised": []}]
    for layer, device in CASES:
        sizes, does = edge_sizes(layer, torch_version, device)
        questions.append(question(layer, device, sizes))
        wanted.append(does)
    assert answers(questions) == wanted


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.skipif(present_device() is None, reason="needs a GPU")
@pytest.mark.parametrize("layer", [FORUM, replace(FORUM, weight_grad=False), replace(FORUM, input_grad=True)])
def test_ranges_equal_those_of_torch_compile_on_the_gpu(layer: Linear, torch_version: str, tmp_path: Path):
    sizes, does = edge_sizes(layer, torch_version, present_device(), most=5000)
    # A process of its own: a fork of one that has asked for the GPU cannot use it.
    command = [sys.executable, str(PROBE), json.dumps([question(layer, None, sizes, bias=True)])]
    caches = {f"{name}_CACHE_DIR": str(tmp_path / name) for name in ("TORCHINDUCTOR", "TRITON")}
    environment = {**os.environ, **caches}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [does]


@pytest.mark.parametrize(("first_m", "served"), [(1024, [LAST_INT32]), (LAST_INT32 + 1, [LAST_INT32, LAST_INT32 + 1])])
def test_torch_itself_cuts_where_an_index_no_longer_fits_in_32_bits(first_m: int, served: list[int]):
    torch = pytest.importorskip("torch")
    version = ".".join(torch.__version__.split(".")[:2])
    (forward, _) = FORUM.products()
    questions = list(asked_by_torch(forward, version, first_m))
    assert [m for m in (LAST_INT32, LAST_INT32 + 1) if all(question.holds(m) for question in questions)] == served


def test_a_newer_torch_is_asked_itself_and_answers_as_the_known_one(monkeypatch: pytest.MonkeyPatch):
    torch = pytest.importorskip("torch")
    version = ".".join(torch.__version__.split(".")[:2])
    known = edges(ranges(FORUM, version, H200, shape_padding=False))
    monkeypatch.setattr(guards, "TORCH_VERSIONS", ("2.10",))
    assert edges(ranges(FORUM, version, H200, shape_padding=False)) == known
    with pytest.raises(UsageError, match=r"the guards of torch 9\.1 are not known without it; known: 2\.11, "):
        ranges(FORUM, "9.1", H200)


def test_the_forums_layer_is_cut_by_the_gradient_of_its_weight():
    found = ranges(FORUM, "2.11", H200)
    assert edges(found) == [(2, 1280), (1281, 3419), (3420, 3420), (3421, LAST_INT32), (LAST_INT32 + 1, None)]
    (cut,) = [guard for guard in found[0].guards if guard.last == 1280]
    assert (cut.text, cut.asked) == ("m <= 1280", "K > M, m > 1280")
    assert cut.product == "weight gradient mm(1280×m, m×3420)"
    assert cut.source == "torch/_inductor/fx_passes/pad_mm.py: is_mm_compute_bound"
    assert [next(each.first for each in found if each.first <= m <= each.last) for m in (560, 1024, 2048)] == [
        2,
        2,
        1281,
    ]


def test_without_a_gradient_the_forums_layer_is_cut_at_its_inputs():
    found = ranges(replace(FORUM, weight_grad=False), "2.11", H200)
    assert edges(found) == [(2, 3419), (3420, LAST_INT32), (LAST_INT32 + 1, None)]
    assert [guard.text for guard in found[0].ends] == ["m <= 3419"]


@pytest.mark.parametrize("torch", TORCH_VERSIONS[1:])
@pytest.mark.parametrize("weight_grad", [True, False])
def test_from_2_12_on_the_padding_pass_cuts_nothing(torch: str, weight_grad: bool):
    found = ranges(replace(FORUM, weight_grad=weight_grad), torch, H200)
    assert edges(found) == [(2, LAST_INT32), (LAST_INT32 + 1, None)]


def test_without_shape_padding_2_11_cuts_as_2_13_does():
    assert edges(ranges(FORUM, "2.11", H200, shape_padding=False)) == edges(ranges(FORUM, "2.13", H200))


def test_a_gpu_of_inductors_datasheet_is_cut_at_its_balance():
    found = ranges(FORUM, "2.11", L4)
    assert edges(found)[:2] == [(2, 711), (712, 1280)]
    assert "arithmetic intensity > 403.333" in {guard.asked for guard in found[0].guards}


@pytest.mark.parametrize("torch", TORCH_VERSIONS)
@pytest.mark.parametrize("layer", [FORUM, Linear(1280, 3420, DType.FP16, input_grad=True), Linear(1, 1, DType.FP32)])
def test_ranges_follow_each_other_and_keep_their_guards(layer: Linear, torch: str):
    found = ranges(layer, torch, L4)
    assert found[0].first == 2
    assert [each.last + 1 for each in found[:-1]] == [each.first for each in found[1:]]
    assert found[-1].last is None
    for each in found:
        assert all(guard.first <= each.first for guard in each.guards)
        assert all(guard.last is None or guard.last >= (each.last or each.first) for guard in each.guards)


def test_an_unknown_torch_and_an_empty_layer_are_refused():
    with pytest.raises(UsageError, match=r"torch 2\.10 are not known without it; known: 2\.11, .*2\.15"):
        ranges(FORUM, "2.10", H200)
    with pytest.raises(UsageError, match="64:0 has no product"):
        Linear(64, 0, DType.BF16)
