"""Questions that the program asks of nvMatmulHeuristics, with a library that answers by the shape it is asked about."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from gemmtune.spaces.matmul_heuristics import program

QUERY = {
    "gpu": "H200",
    "layout": "TN",
    "m": 16,
    "n": 32,
    "k": 64,
    "batch": 3,
    "precision": "HSH",
    "tile_k": 128,
}


class Kernel(ctypes.Structure):
    _fields_ = [
        ("cta", ctypes.c_int * 3),
        ("warp", ctypes.c_int * 3),
        ("cluster", ctypes.c_int * 2),
        ("splitK", ctypes.c_int),
        ("gridSwizzle", ctypes.c_int),
        ("ctaOrder", ctypes.c_int),
    ]


class Library:
    """nvMatmulHeuristics: tiles of 64 rows are valid, and the second raster order is the faster for clusters."""

    NvMatmulHeuristicsTarget = SimpleNamespace(CUTLASS3="cutlass")
    NvMatmulHeuristicsFlags = SimpleNamespace(PERF_MODEL_BASED_AUTO_TUNING="tuning")
    NvMatmulHeuristicsNvidiaGpu = {"H200": "gpu 7"}  # noqa: RUF012 (an enum of the library)
    NvMatmulHeuristicsMatmulLayout = {"TN": "layout 2"}  # noqa: RUF012 (as above)

    def __init__(self, proposals):
        self.proposals, self.asked, self.seen = proposals, [], []
        self.handle, self.target, self.hardware_descriptor = "handle", 5, "hardware"

    def NvMatmulHeuristicsInterfaceEx(self, **given):  # noqa: N802 (the library's name)
        self.asked.append(given)
        return self

    def makeNvMatmulHeuristicsProblem(self, *given):  # noqa: N802 (as above)
        self.asked.append(given)
        return ctypes.c_int(1)

    def get(self, problem, most, precision):
        self.asked.append((most, precision))
        return self.proposals

    def nvMatmulHeuristicsEstimateRuntime(self, handle, precision, target, problem, kernel, hardware):  # noqa: N802
        its = kernel._obj
        self.seen.append(((*its.cta,), (*its.warp,), (*its.cluster,), its.splitK, its.gridSwizzle, its.ctaOrder))
        assert (handle, precision, target.value, hardware) == ("handle", b"HSH", 5, "hardware")
        if its.cta[0] != 64:
            return 0.0
        faster = its.ctaOrder == 1 and its.cluster[0] > 1
        return its.cta[1] * (0.5 if faster else 1.0)


def proposal(tile_m, tile_n, split=1):
    shape = SimpleNamespace(cta_tile_m=tile_m, cta_tile_n=tile_n, cluster_m=2, cluster_n=1, split_k=split)
    return {"kernel": shape, "nvmmhKernelConfiguration": Kernel()}


@pytest.fixture
def answer(monkeypatch):
    def answer(*proposals):
        library = Library([*proposals])
        monkeypatch.setattr(program, "library", library, raising=False)
        return program._answer(QUERY), library

    return answer


def test_proposals_are_those_without_a_split_k_and_every_valid_shape_has_a_time(answer):
    found, library = answer(proposal(128, 64), proposal(64, 32, split=2), proposal(64, 16))
    assert library.asked == [
        {"backend": "cutlass", "flags": "tuning", "gpu": "gpu 7"},
        (16, 32, 64, "layout 2", 3),
        (64, "HSH"),
    ]
    assert found["proposals"] == [(128, 64, 2, 1), (64, 16, 2, 1)]
    clusters = {(m, n) for m in (1, 2, 4, 8, 16) for n in (1, 2, 4, 8, 16) if m * n <= 16}
    assert {tuple(each[:4]) for each in found["times"]} == {
        (64, n, *cluster) for n in range(16, 257, 16) for cluster in clusters
    }
    assert all(each[4] == each[1] * (0.5 if each[2] > 1 else 1) for each in found["times"])  # the better order
    assert {(cta[2], warp, *rest) for cta, warp, _, *rest in library.seen if cta[:2] == (192, 48)} == {
        (128, (64, 48, 64), 1, 1, order) for order in (0, 1)
    }
    assert {cta[0] for cta, *_ in library.seen} == {64, 128, 192, 256}


def test_without_a_proposal_nothing_is_estimated(answer):
    found, library = answer()
    assert found == {"proposals": [], "times": []}
    assert library.seen == []
