"""Rule that pads products: its decisions, in the package and in an exported loader, and its place."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch._inductor import config  # noqa: E402 (torch is there)
from torch._inductor.fx_passes import pad_mm  # noqa: E402

from gemmtune.engine.consumers.inductor.loader import loader  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.hooks import activation  # noqa: E402


@pytest.fixture(params=["package", "exported"])
def rule(request, exported, load):
    if request.param == "package":
        return activation.should_pad
    load(exported(), "exported_loader")
    return sys.modules["exported_loader.activation"].should_pad


def matrix(rows, columns, *, transposed=False, dtype=torch.bfloat16):
    """Describe a matrix on a GPU."""
    meta = (
        torch.empty(columns, rows, device="meta", dtype=dtype).t()
        if transposed
        else torch.empty(rows, columns, device="meta", dtype=dtype)
    )
    return SimpleNamespace(
        shape=meta.shape, stride=meta.stride, element_size=meta.element_size, numel=meta.numel, is_cuda=True
    )


@pytest.mark.parametrize(
    ("m", "n", "k", "pads"),
    [
        (2048, 30522, 1024, True),  # 1.20 on an H200, see experiments/padding
        (1024, 30522, 1024, False),  # 0.83
        (512, 50257, 768, True),  # 1.16
        (256, 50257, 768, False),  # 0.66
        (2048, 4096, 1003, True),  # 1.94
        (16, 50257, 768, False),
        (2048, 30528, 1024, False),  # aligned
        (1970, 3072, 1024, False),  # rows are aligned, m is no row
    ],
)
def test_a_product_is_padded_where_that_is_faster(rule, m, n, k, pads):
    with config.patch(shape_padding=False):
        assert rule(None, matrix(m, k), matrix(k, n, transposed=True), torch.ops.aten.mm) is pads


@pytest.mark.parametrize(
    ("m", "n", "k", "transposed", "pads"),
    [
        (3032, 1002, 1024, True, False),  # one copy of B: 8 µs + 7.4 ps per element against 5 fs per m·n·k
        (3040, 1002, 1024, True, True),
        (1912, 1002, 1024, False, False),  # 1.8 ps per element of a B that is not transposed
        (1920, 1002, 1024, False, True),
        (840, 1001, 1024, True, False),  # 18 fs where a row is odd
        (848, 1001, 1024, True, True),
        (7064, 1024, 1002, True, False),  # copies of A and of B
        (7120, 1024, 1002, True, True),
    ],
)
def test_a_product_is_padded_from_the_size_on_that_pays_the_copies(rule, m, n, k, transposed, pads):
    with config.patch(shape_padding=False):
        assert rule(None, matrix(m, k), matrix(k, n, transposed=transposed), torch.ops.aten.mm) is pads


def test_other_products_are_left_alone(rule):
    large = matrix(2048, 1024), matrix(1024, 30522, transposed=True)
    with config.patch(shape_padding=False):
        assert not rule(None, *large, torch.ops.aten.bmm)
        wide = matrix(2048, 1024, dtype=torch.float32), matrix(1024, 30522, transposed=True, dtype=torch.float32)
        assert not rule(None, *wide, torch.ops.aten.mm)


def test_the_rule_holds_while_a_recording_or_a_table_is_in_place(tmp_path):
    own = pad_mm.should_pad
    loader.record(tmp_path / "problems.jsonl")
    try:
        assert pad_mm.should_pad is not own
    finally:
        loader.stop_recording()
    assert pad_mm.should_pad is own
