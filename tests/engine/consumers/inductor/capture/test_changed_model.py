"""A model that changed after its capture: the loader's report names what has no row, and results stay right."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row, Table

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

pytestmark = [pytest.mark.slow(15), pytest.mark.filterwarnings("ignore:::torch"), pytest.mark.filterwarnings("ignore")]

TILES = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}
CAPTURED = ("16x1024x256:bf16:nt", "16x256x1024:bf16:nt:addmm")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a table of the captured products; return the models' module and the loader."""
    from gemmtune.engine.consumers.inductor.loader import loader

    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    choice = Choice("triton_mm", Config(TILES), 1.0, 1.0, 1.0, 1, Evidence.ESTIMATED, "torch 2.13.0", "by hand")
    rows = tuple(Row(Problem.parse(name), (choice,), None, 0.0, ()) for name in CAPTURED)
    table = Table(catalogue.device("H200"), rows, "latency")
    write_all(InductorExporter().export(table), tmp_path)
    torch._dynamo.reset()
    loader.install(tmp_path / "inductor_table.json", policy="ignore")
    import models

    yield models, loader
    loader.uninstall()
    torch._dynamo.reset()
    sys.modules.pop("models", None)


def test_another_width_and_activation_are_named_as_misses(installed):
    from record_probe import module_of
    from torch._inductor.graph import GraphLowering

    from gemmtune.engine.consumers.inductor.capture.fake_gpu import GPU, fake_gpu

    models, loader = installed
    options = {**loader.options(), "fx_graph_cache": False, "compile_threads": 1}
    with (
        fake_gpu(catalogue.device("H200")),
        patch.object(GraphLowering, "compile_to_module", module_of),
        torch.no_grad(),
    ):
        for width in (256, 384):
            with GPU:
                model = models.Mlp(width).bfloat16()
            torch.compile(model, options=options)(torch.empty(16, width, dtype=torch.bfloat16, device=GPU))
    report = loader.report()
    assert report.count("miss") == 2
    assert [name.split(":epilogue")[0] for name in report.misses] == [
        "16x1024x384:bf16:nt",
        "16x384x1024:bf16:nt:addmm",
    ]
    assert report.products == 4


@pytest.mark.gpu
def test_a_changed_model_computes_what_eager_does(installed):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    models, loader = installed
    torch.manual_seed(0)
    uncached = {**loader.options(), "fx_graph_cache": False}  # a graph from the cache looks nothing up
    for width in (256, 384):
        model = models.Mlp(width).bfloat16().cuda()
        x = torch.randn(16, width, dtype=torch.bfloat16, device="cuda")
        with torch.no_grad():
            expected, found = model(x), torch.compile(model, options=uncached)(x)
        assert torch.linalg.norm((found - expected).float()) <= 0.02 * torch.linalg.norm(expected.float())
    assert len(loader.report().misses) == 2
