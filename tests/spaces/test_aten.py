from __future__ import annotations

import hashlib
from importlib.metadata import version

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.spaces.aten import AtenSpace


def task(problem="64x48x80:bf16:nt"):
    return Task(Problem.parse(problem), catalogue.device("H200"), "aten")


def test_there_is_one_config_and_it_is_the_seed():
    assert AtenSpace().params(task()) == ()
    assert list(AtenSpace().points(task())) == [Config({})] == list(AtenSpace().seeds(task()))
    assert AtenSpace().check(task(), Config({}))


@pytest.mark.parametrize("problem", ["64x64x64:e4m3:nt:addmm", "2x64x64x64:int8:nt:bmm"])
def test_addmm_and_bmm_of_8_bits_are_rejected_by_name(problem):
    verdict = AtenSpace().check(task(problem), Config({}))
    assert verdict.rule == "operation"
    _, dtype, _, op = problem.split(":")
    assert verdict.reason == f"aten runs mm of {dtype}, not {op}"
    assert AtenSpace().seeds(task(problem)) == ()


@pytest.mark.parametrize(
    ("problem", "entry"),
    [
        ("64x64x64:e4m3:nt", "aten::_scaled_mm"),
        ("64x64x64:int8:nt", "aten::_int_mm"),
        ("64x64x64:bf16:nt:addmm", "aten::addmm"),
        ("64x64x64:bf16:nt:addmm:bias=matrix", "aten::addmm"),
        ("2x64x64x64:bf16:nt:bmm", "aten::bmm"),
        ("64x64x64:bf16:nt:dynamic_m=true", "aten::mm"),
    ],
)
def test_each_operation_and_operands_of_8_bits_have_an_entry_of_their_own(problem, entry):
    assert AtenSpace().seeds(task(problem)) == (Config({}),)
    assert AtenSpace().artifact_key(task(problem), Config({})) == entry


def test_8_bit_floats_are_rejected_on_gpus_without_the_type():
    problem = Problem.parse("64x64x64:e4m3:nt")
    older, oldest = (Task(problem, catalogue.device(sku), "aten") for sku in ("L4", "A100"))
    assert AtenSpace().check(older, Config({}))
    verdict = AtenSpace().check(oldest, Config({}))
    assert (verdict.rule, verdict.reason) == ("architecture", "e4m3 needs sm_89 or later, not sm_80")


def test_operands_the_vendor_library_does_not_multiply_are_rejected_with_the_reason():
    verdict = AtenSpace().check(task("64x64x64:e5m2:nt"), Config({}))
    assert verdict.reason == "aten::_scaled_mm does not multiply e5m2 by e5m2 to bf16"


def test_the_artifact_names_the_vendor_librarys_entry_point_and_leaves_no_file(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    artifact = AtenSpace().build(task(), Config({}), tmp_path)
    assert (artifact.key, artifact.space, artifact.path, artifact.launch) == ("aten::mm", "aten", "", ())
    assert artifact.digest == hashlib.sha256(b"aten::mm").hexdigest()
    assert artifact.resources is None
    assert artifact.toolchain.versions == (("torch", version("torch")),)
    assert not any(tmp_path.iterdir())


def test_tasks_share_the_entry_point_of_the_vendor_library():
    other = Task(Problem.parse("1x1x1:fp32:tn"), catalogue.device("A100"), "aten")
    assert AtenSpace().artifact_key(task(), Config({})) == AtenSpace().artifact_key(other, Config({}))


@pytest.mark.parametrize("dtype", ["e4m3", "int8"])
def test_the_loaded_kernel_multiplies_8_bits(dtype, tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    one = task(f"32x48x64:{dtype}:nt")
    element = getattr(torch, one.problem.a_dtype.torch_name)
    a = (torch.arange(32 * 64) % 7 - 3).reshape(32, 64).to(element)
    b = (torch.arange(48 * 64) % 5 - 2).reshape(48, 64).to(element).t()
    out = torch.zeros(32, 48, dtype=getattr(torch, one.problem.out_dtype.torch_name))
    kernel = AtenSpace().load(AtenSpace().build(one, Config({}), tmp_path), one)
    kernel(a, b, out)
    kernel.close()
    assert torch.equal(out.double(), a.double() @ b.double())


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "tf32"])
def test_the_loaded_kernel_multiplies(dtype, layout, tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    problem = Problem.parse(f"5x6x7:{dtype}:{layout}")
    element = getattr(torch, problem.a_dtype.torch_name)
    a, b = torch.arange(35, dtype=element), torch.arange(42, dtype=element)
    a = a.reshape(5, 7) if layout[0] == "n" else a.reshape(7, 5).t()
    b = b.reshape(7, 6) if layout[1] == "n" else b.reshape(6, 7).t()
    out = torch.full((5, 6), float("nan"), dtype=element)
    one = Task(problem, catalogue.device("H200"), "aten")
    kernel = AtenSpace().load(AtenSpace().build(one, Config({}), tmp_path), one)
    try:
        kernel(a, b, out)
        assert matmul.fp32_precision == ("tf32" if dtype == "tf32" else "ieee")
    finally:
        matmul.fp32_precision = before
        kernel.close()
    assert torch.equal(out, (a.double() @ b.double()).to(element))
