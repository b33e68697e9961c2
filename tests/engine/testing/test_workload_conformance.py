from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest

from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.seams.kinds import expand_workloads, parse_workload
from gemmtune.engine.testing import workload_conformance
from gemmtune.engine.testing.workload_conformance import check_operands, check_workload

EXAMPLES = Path(__file__).parents[3] / "docs/examples/own_kernel"
GEMMS = ("16x4096x4096:bf16:nt", "8x16x32x64:fp16:tn:bmm", "64x32x48:int8:nt", "33x64x128:bf16:nt:addmm:dynamic_m=true")
LAYERS = (
    "vllm_moe:m9:e4:k2:h128:n128:bf16",
    "grouped:rows:m9:g4:n16:k32:bf16:nt:routing=counts(5.0.4.0)",
    "grouped:inner:m16:g4:n24:k9:fp16:tn:routing=zipf(1.5)",
    "grouped:batched:m7:g3:n16:k32:bf16:nn",
    "grouped:rows:m9:g4:n16:k32:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32]):accumulation=exact",
    "flex:forward:b2:h4:kvh2:s150:d16:bf16:mask=window(40):score=softcap(5)",
    "flex:backward:b1:h2:s140:d16:fp16:mask=causal_document:documents=50.60.30",
    "flex:decode:b2:h4:kvh1:q3:kv70:d16:bf16:dynamic=kv",
    "flex:forward:b1:h2:s140:d16:bf16:mask=document:dynamic=s",
    "flex:forward:b2:h2:s140:d16:bf16:mask=or(at(t0,b,q,kv),lt(kv,at(t1,b))):seen=20.50:block=32",
)
SMALL = ("16x32x48:bf16:nt", "2x16x32x48:fp16:tn:bmm", "48x32x48:e4m3:nt", "9x32x48:bf16:nt:addmm", *LAYERS)


def own_kernels():
    pytest.importorskip("triton", reason="triton is not installed")
    files = (f"triton:{EXAMPLES / 'softmax.py'}:Softmax", f"triton:{EXAMPLES / 'int4_gemm.py'}:Int4Gemm")
    return [case for file in files for case in expand_workloads(file)]


@pytest.mark.parametrize("check", workload_conformance.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", [*GEMMS, *LAYERS])
def test_workloads_keep_the_contract(name, check):
    check(parse_workload(name))


def test_own_kernels_keep_the_contract():
    for case in own_kernels():
        check_workload(case)


@pytest.mark.parametrize("name", SMALL)
def test_operands_and_results_keep_the_contract(name):
    pytest.importorskip("torch", reason="torch is not installed")
    check_operands(parse_workload(name))


def test_operands_of_own_kernels_keep_the_contract():
    softmax, _, product, _ = own_kernels()
    check_operands(softmax.resized(8))
    check_operands(product)


@dataclass(frozen=True)
class Heavy(Problem):
    kind: ClassVar[str] = "gemm"
    weight: float = field(default=1.0, compare=True)


@dataclass(frozen=True)
class Unnamed(Problem):
    @property
    def name(self):
        return "16 x 16"


@dataclass(frozen=True)
class Endless(Problem):
    @property
    def series(self):
        return self


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Heavy(16, 16, 16), "compares its weight"),
        (Unnamed(16, 16, 16), "a space or a slash"),
        (replace(Endless(16, 16, 16)), "another workload|another series"),
    ],
)
def test_a_broken_workload_is_refused(broken, message):
    with pytest.raises(ContractError, match=message):
        check_workload(broken)
