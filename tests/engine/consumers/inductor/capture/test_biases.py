"""An addmm is the same product at capture and at each of Inductor's questions, whatever its bias is expanded from."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

import gemmtune as gt
from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row, Table

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

pytestmark = [pytest.mark.slow(15), pytest.mark.filterwarnings("ignore:::torch"), pytest.mark.filterwarnings("ignore")]

H200 = catalogue.device("H200")
TILES = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}


def linear(bias, a, w):
    return torch.nn.functional.linear(a, w, bias)


def every_second(bias, a, w):
    return linear(bias[::2], a, w)


def add(bias, a, w):
    return a @ w.t() + bias


def number(bias, a, w):
    return torch.addmm(bias.reshape(()), a, w.t())


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Compile a program for an absent H200 with a table of these problems; return the loader's report."""
    from torch._inductor.graph import GraphLowering

    from gemmtune.engine.consumers.inductor.capture.fake_gpu import GPU, fake_gpu
    from gemmtune.engine.consumers.inductor.loader import loader

    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from record_probe import module_of

    def report_of(program, shapes, problems):
        choice = Choice("triton_mm", Config(TILES), 1.0, 1.0, 1.0, 1, Evidence.ESTIMATED, "torch 2.13.0", "by hand")
        rows = tuple(Row(problem, (choice,), None, 0.0, ()) for problem in problems)
        write_all(InductorExporter().export(Table(H200, rows, "latency")), tmp_path)
        torch._dynamo.reset()
        loader.install(tmp_path / "inductor_table.json", policy="ignore")
        options = {**loader.options(), "fx_graph_cache": False, "compile_threads": 1}
        with fake_gpu(H200), patch.object(GraphLowering, "compile_to_module", module_of), torch.no_grad():
            given = [torch.empty(shape, dtype=torch.bfloat16, device=GPU) for shape in shapes]
            torch.compile(program, options=options)(*given)
        return loader.report()

    yield report_of
    loader.uninstall()
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("program", "bias", "m", "n", "named"),
    [
        (linear, (512,), 32, 512, "32x512x256:bf16:nt:addmm"),
        (linear, (1,), 32, 1, "32x1x256:bf16:nt:addmm"),
        (linear, (1,), 1, 1, "1x1x256:bf16:nt:addmm"),
        (linear, (512,), 1, 512, "1x512x256:bf16:nt:addmm"),
        (add, (1, 512), 32, 512, "32x512x256:bf16:nt:addmm"),
        (add, (1, 512), 1, 512, "1x512x256:bf16:nt:addmm:bias=matrix"),
        (add, (32, 512), 32, 512, "32x512x256:bf16:nt:addmm:bias=matrix"),
        (add, (1,), 32, 512, ""),
        (add, (32, 1), 32, 512, ""),
        (every_second, (1024,), 32, 512, ""),
        (number, (1,), 32, 512, ""),
    ],
)
def test_an_addmm_runs_the_row_of_the_product_that_was_captured(compiled, program, bias, m, n, named):
    shapes = (bias, (m, 256), (n, 256))
    inputs = [f"bf16[{','.join(map(str, shape))}]" for shape in shapes]
    captured = gt.capture(program, *inputs, device="H200")
    assert [problem.name for problem in captured.problems] == ([named] if named else [])
    report = compiled(program, shapes, captured.problems)
    assert report.products == 1
    assert report.count("row" if named else "no problem") == 1
    if not named:
        assert "is neither a row nor a matrix of rows" in str(report)
