import pytest

from gemmtune.engine.consumers.serving.contract.moe_layer import VllmMoe
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.report.tables import table_report
from gemmtune.spaces.triton.kind import KernelCase

GEMM = Problem(16, 64, 64)
LAYER = VllmMoe.parse("vllm_moe:m1:e8:k2:h128:n128")
OWN = KernelCase("Softmax", "0" * 12, (("rows", 16),))


def row(work):
    """A row whose baseline leads a searched kernel by a half."""
    slower, baseline = (
        Choice(space, Config({"a": 1}), ns, ns - 1, ns + 1, 8, Evidence.MEASURED, "triton 3.7.0", "graph")
        for space, ns in (("searched", 150.0), (work.baseline_space, 100.0))
    )
    return Row(work, (baseline, slower), baseline, 100 / 150 - 1, (baseline.config,))


@pytest.mark.parametrize(
    ("workloads", "words"),
    [
        ([GEMM], "the vendor library"),
        ([OWN], "the kernel's default config"),
        ([LAYER], "vLLM's present config"),
        ([GEMM, OWN], "the baseline"),
    ],
)
def test_the_legend_below_a_table_names_the_baseline_of_its_workloads(workloads, words):
    text = table_report(Table(catalogue.device("H200"), tuple(map(row, workloads)), "latency")).to_text()
    assert f"baseline wins: no kernel found is faster than {words}, which ships" in text
