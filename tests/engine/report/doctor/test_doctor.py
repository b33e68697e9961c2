"""Tests of `gemmtune doctor`, on any machine."""

from __future__ import annotations

import compileall
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import StoreError
from gemmtune.engine.records.measurement import DeviceState
from gemmtune.engine.report.doctor import gpu
from gemmtune.engine.report.doctor.gpu import gpu_checks, inductor_check
from gemmtune.engine.report.doctor.host import (
    bytecode_check,
    compiler_checks,
    database_check,
    package_checks,
    ray_check,
)
from gemmtune.engine.report.doctor.report import Level, advice, doctor_report, fault, fine, healthy
from gemmtune.engine.store.database import Database
from gemmtune.engine.testing.objective_conformance import example_measurement
from gemmtune.engine.toolchain.gpu_info import present_device
from gemmtune.engine.toolchain.installed import install_command

BARE = """
import sys
from importlib.metadata import DistributionFinder

ABSENT = {"torch", "triton", "ray", "cuda", "cutlass", "quack", "psycopg", "cuda-bindings", "nvidia-cutlass-dsl"}


class Without(DistributionFinder):
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *rest):
        return None if name.partition(".")[0] in ABSENT else self.finder.find_spec(name, *rest)

    def find_distributions(self, context=DistributionFinder.Context()):
        if context.name in ABSENT or not hasattr(self.finder, "find_distributions"):
            return []
        return self.finder.find_distributions(context)


sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
sys.argv = ["gemmtune", "doctor", "--json"]
from gemmtune.engine import cli
cli.main()
"""


def test_check_is_one_line_with_several_remedies_below():
    checks = [fine("A", "there"), advice("long", "so", "do this"), fault("C", "gone", "do that", "or that")]
    assert doctor_report(checks).to_text().splitlines() == [
        "ok      A     there",
        "advice  long  so: do this",
        "fault   C     gone",
        "        - do that",
        "        - or that",
    ]
    assert healthy(checks[:2])
    assert not healthy(checks)
    assert doctor_report(checks).to_json()["checks"][1] == {
        "name": "long",
        "level": "advice",
        "found": "so",
        "remedies": ["do this"],
    }


def test_small_gpu_gets_advice_with_four_ways_around_is_big_gpu():
    small, large = inductor_check(catalogue.device("L4")), inductor_check(catalogue.device("A100"))
    assert (small.level, large.level) == (Level.ADVICE, Level.OK)
    assert "58 SMs, is_big_gpu asks for 68" in small.found
    assert len(small.remedies) == 4
    assert "gemmtune_inductor.install()" in small.remedies[0]
    assert "108 SMs" in large.found


def test_least_sms_are_those_of_the_installed_inductor(monkeypatch):
    inductor = pytest.importorskip("torch._inductor.utils")
    properties = pytest.importorskip("torch._inductor.runtime.hints").DeviceProperties

    def passes(sms: int) -> bool:
        found = properties(type="cuda", index=0, multi_processor_count=sms, cc=89, major=8)
        monkeypatch.setattr(properties, "create", lambda _device: found)
        inductor.is_big_gpu.cache_clear()
        try:
            return inductor.is_big_gpu(inductor.torch.device("cuda", 0))
        finally:
            inductor.is_big_gpu.cache_clear()

    for device in catalogue.devices():
        assert passes(device.sm_count) == (inductor_check(device).level is Level.OK), device
    assert (passes(67), passes(68)) == (False, True)


def test_packages_are_compared_with_their_bounds():
    requirements = [
        "numpy>=1.26",
        "typer>=999",
        "no-such-thing>=1",
        'no-such-option>=1; extra == "ray"',
        'gemmtune[ray]; extra == "all"',
        'not-for-users>=1; extra == "dev"',
        'elsewhere>=1; platform_system == "Amiga"',
    ]
    numpy, typer, missing, optional = package_checks(requirements, has_gpu=False)
    assert numpy.level is Level.OK
    assert (typer.level, typer.remedies) == (Level.FAULT, (f"{install_command()} --upgrade",))
    assert typer.found.endswith("is not >=999")
    assert (missing.level, missing.found) == (Level.FAULT, "not installed (>=1)")
    assert (optional.level, optional.remedies) == (
        Level.ADVICE,
        (f"{install_command('ray')}, for what needs it",),
    )


def test_a_torch_without_cuda_beside_a_gpu_is_a_fault():
    torch = pytest.importorskip("torch")
    (check,) = package_checks(['torch>=2.11; extra == "triton"'], has_gpu=True)
    assert (check.level is Level.FAULT) == torch.__version__.endswith("+cpu")


def test_a_compiler_that_is_not_there_is_named():
    check = compiler_checks({"CC": "/no/such/cc"})[0]
    assert check.level is Level.ADVICE
    assert check.found.startswith("/no/such/cc not found")


@pytest.mark.parametrize("has_headers", [True, False])
def test_a_compiler_without_pythons_headers_is_told(monkeypatch, tmp_path, has_headers):
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    if has_headers:
        (tmp_path / "Python.h").touch()
    compiler = tmp_path / "cc"
    compiler.touch(mode=0o755)
    check = compiler_checks({"CC": str(compiler)})[0]
    told = f"{compiler}, with {tmp_path / 'Python.h'}" if has_headers else f"{compiler}, but no {tmp_path / 'Python.h'}"
    assert check.found == told


@pytest.mark.parametrize(("said", "level"), [("libstdc++.so", Level.ADVICE), ("/usr/lib/libstdc++.so", Level.OK)])
def test_a_gpp_without_a_shared_libstdcpp_is_named(tmp_path: Path, said: str, level: Level):
    """It answers with the bare name then."""
    compiler = tmp_path / "g++"
    compiler.write_text(f"#!/bin/sh\necho {said}\n")
    compiler.chmod(0o755)
    (check,) = [c for c in compiler_checks({"CXX": str(compiler)}) if c.name == "C++ compiler"]
    assert (check.level, said in check.found) == (level, True)
    assert any("libstdc++" in remedy for remedy in check.remedies) == (level is Level.ADVICE)


def test_ptxas_of_inductor_is_named_and_a_broken_one_is_a_fault(tmp_path: Path):
    pytest.importorskip("triton")
    named = tmp_path / "ptxas"
    named.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.9, V13.9.77'\n")
    named.chmod(0o755)

    def check(path: str):
        (found,) = [c for c in compiler_checks({"TRITON_PTXAS_PATH": path}) if c.name == "ptxas"]
        return found

    assert check(str(named)) == fine("ptxas", f"13.9.77, {named}, which Inductor has triton run")
    assert check("").found.endswith(", triton's own")
    gone = check(str(tmp_path / "gone"))
    assert gone.level is Level.FAULT
    assert "unset that" in gone.found


def test_package_without_bytecode_is_named_with_the_command_that_compiles_it(tmp_path: Path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("slow_one", "quick_one"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    compileall.compile_dir(tmp_path / "quick_one", quiet=1)
    packages = ("slow_one", "quick_one", "absent_one")
    check = bytecode_check(packages)
    assert check.level is Level.ADVICE
    assert check.found.startswith("none for slow_one: ")
    assert check.remedies == (f"{sys.executable} -m compileall -q -j 0 {tmp_path / 'slow_one'}",)
    subprocess.run(check.remedies[0].split(), check=True)
    assert bytecode_check(packages) == fine("bytecode", "there for slow_one, quick_one")


def test_ray_cluster_is_checked_at_its_address():
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert ray_check(address).level is Level.OK
    silent = ray_check(address)
    assert silent.level is Level.ADVICE
    assert f"RAY_ADDRESS={address} does not answer" in silent.found
    assert ray_check("no port:at all").level is Level.ADVICE
    assert ray_check(None).level is Level.OK


def test_database_is_read_and_never_created(tmp_path: Path):
    path = tmp_path / "measurements.db"
    assert database_check(str(path)).level is Level.OK
    assert not path.exists()
    with Database.open(path) as store:
        store.add([example_measurement()])
    assert database_check(str(path)).found == f"{path} holds 1 measurement"
    path.write_text("not a database, " * 100)
    assert database_check(str(path)).level is Level.FAULT


@pytest.mark.skipif(present_device() is not None, reason="there is a GPU")
def test_every_line_has_its_remedy_without_gpu_and_optional_packages(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", BARE], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    assert (done.returncode, done.stderr) == (1, "")
    record = json.loads(done.stdout)
    levels = {check["name"]: check["level"] for check in record["checks"]}
    assert not record["healthy"]
    assert [name for name, level in levels.items() if level == "fault"] == ["GPU"]
    assert {name for name, level in levels.items() if level == "advice"} >= {"torch", "triton", "ray", "Ray", "psycopg"}
    assert all(bool(check["remedies"]) == (check["level"] != "ok") for check in record["checks"])
    assert not list(tmp_path.iterdir())


@pytest.mark.gpu
@pytest.mark.skipif(present_device() is None, reason="needs a GPU")
def test_the_gpu_is_described_with_its_clocks():
    gpu, inductor, clocks, lock = gpu_checks()
    device = present_device()
    assert f"{device.sm_count} SMs" in gpu.found
    assert inductor == inductor_check(device)
    assert f"MHz of {device.boost_clock_mhz}" in clocks.found
    assert (lock.level is Level.OK) <= (os.geteuid() == 0)


class Nvml:
    """Stands in for pynvml; its `failing` calls raise NVML's error."""

    class NVMLError(Exception):
        pass

    class NVMLError_NotSupported(NVMLError):  # noqa: N801, N818 (NVML has it)
        pass

    NVML_CLOCK_MEM = 1

    def __init__(self, clocks=(210, 1980), **failing):
        self.clocks, self.failing = clocks, failing

    def __getattr__(self, name):
        def call(*_):
            if name in self.failing:
                raise self.failing[name]
            return {"nvmlSystemGetDriverVersion": "580.1", "nvmlDeviceGetSupportedGraphicsClocks": self.clocks}.get(
                name
            )

        return call


@pytest.fixture
def h200(monkeypatch):
    """A machine with two H200, whose NVML is the fake that a test gives."""

    def checks(nvml, *, root=True, throttled=()):
        state = DeviceState(1755, 3201, 41, 432_100, throttled, "580.1")
        monkeypatch.setattr(gpu, "pynvml", nvml)
        monkeypatch.setattr(gpu, "present_device", lambda: catalogue.device("H200"))
        monkeypatch.setattr(gpu, "equal_gpus", lambda: ("GPU-0", "GPU-1"))
        monkeypatch.setattr(gpu, "gpu_names", lambda: ("NVIDIA H200",) * 2)
        monkeypatch.setattr(gpu, "Telemetry", lambda _: SimpleNamespace(read=lambda: state))
        monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
        return {check.name: check for check in gpu_checks()}

    return checks


def test_a_gpu_has_its_clocks_and_the_span_that_root_may_lock(h200):
    found = h200(Nvml(clocks=(1980, 210, 1005)))
    assert found["GPU"].found == "2 × NVIDIA H200, sm_90a, 132 SMs, driver 580.1"
    assert found["clocks"].level is Level.OK
    assert found["clocks"].found == "SM 1755 MHz of 1980, memory 3201 MHz"
    assert "210 to 1980 MHz" in found["clock lock"].found


def test_clocks_that_are_held_back_or_cannot_be_locked_are_advice(h200):
    found = h200(Nvml(clocks=()), throttled=("sw_power_cap",))
    assert found["clocks"].level is found["clock lock"].level is Level.ADVICE
    assert "held back by sw_power_cap" in found["clocks"].found
    assert "names no clocks" in found["clock lock"].found
    assert h200(Nvml(), root=False)["clock lock"].found == "needs root"


def test_a_gpu_that_reports_no_clocks_to_lock_is_no_error(h200):
    refused = Nvml(nvmlDeviceGetMaxClockInfo=Nvml.NVMLError_NotSupported("not supported"))
    assert "names no clocks" in h200(refused)["clock lock"].found


def test_a_driver_that_does_not_answer_is_said_and_ends_nothing(h200):
    found = h200(Nvml(nvmlInit=Nvml.NVMLError("driver gone"), nvmlDeviceGetHandleByUUID=Nvml.NVMLError("no handle")))
    assert found["GPU"].found.endswith("driver unknown (NVML: driver gone)")
    assert (found["clocks"].level, found["clocks"].found) == (Level.ADVICE, "NVML: no handle")
    assert "clock lock" not in found


def test_a_gpu_that_cuda_hides_is_a_fault_with_its_name(monkeypatch):
    monkeypatch.setattr(gpu, "present_device", lambda: None)
    monkeypatch.setattr(gpu, "gpu_names", lambda: ("NVIDIA H200",))
    [hidden] = gpu_checks()
    assert (hidden.level, hidden.found) == (Level.FAULT, "NVIDIA H200 found, and CUDA does not answer")
    monkeypatch.setattr(gpu, "gpu_names", lambda: ())
    [none] = gpu_checks()
    assert none.level is Level.FAULT
    assert "no driver" in none.found


def test_a_databases_own_remedy_comes_before_another_place(tmp_path):
    broken = tmp_path / "m.db"
    broken.write_bytes(b"no database" * 100)
    with pytest.raises(StoreError) as refused, Database.open(broken, read_only=True):
        pass
    reason, _, way_out = str(refused.value).partition("; ")
    found = database_check(str(broken))
    assert (found.level, found.found) == (Level.FAULT, reason)
    assert found.remedies == ((way_out or "name another with --database"),)


@pytest.mark.parametrize(
    ("said", "remedy"),
    [("it is locked; end the other process", "end the other process"), ("it is gone", "name another with --database")],
)
def test_an_error_without_a_remedy_gets_one(monkeypatch, tmp_path, said, remedy):
    def refused(*_, **__):
        raise StoreError(said)

    (tmp_path / "m.db").touch()
    monkeypatch.setattr(Database, "open", refused)
    found = database_check(str(tmp_path / "m.db"))
    assert (found.found, found.remedies) == (said.partition(";")[0], (remedy,))
