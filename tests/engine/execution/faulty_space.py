"""A space whose configs fail in every way a kernel can; the GPU tests install it as a distribution of its own.

FAULTY_FOLDER is where its kernels leave and find word, in the environment of whoever uses it. FAULTY_FAULTS, where it
is set, names the configs there are, with commas between them.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import BuildError, Launchable, Space

if TYPE_CHECKING:
    import torch

FAULTS = (
    "none",
    "wrong element",
    "unwritten",
    "NaN output",
    "illegal address",
    "endless",
    "too much shared memory",
    "does not load",
    "exits",
    "kills itself",
    "waits to be killed",
    "does not build",
    "builder killed",
    "illegal again",
    "none again",
)
TURNS = {"turns wrong": "wrong element", "turns illegal": "illegal address", "turns deadly": "kills itself"}
"""Right until there is a file `turned` in the folder, and of that fault when loaded after."""

WAITING = "waiting"
"""The file in which the first process that loads `waits to be killed` says its id."""

PTX = b"""
.version 7.8
.target sm_70
.address_size 64
.visible .entry illegal(.param .u64 out) {
    .reg .u64 %address;
    .reg .u32 %value;
    mov.u64 %address, 64;
    mov.u32 %value, 1;
    st.global.u32 [%address], %value;
    ret;
}
.visible .entry endless(.param .u64 out) {
    .reg .u64 %address;
    .reg .u32 %value;
    ld.param.u64 %address, [out];
AGAIN:
    ld.volatile.global.u32 %value, [%address];
    bra AGAIN;
}
"""
ENTRIES = {
    "illegal address": b"illegal",
    "illegal again": b"illegal",
    "endless": b"endless",
    "too much shared memory": b"illegal",
}


class FaultySpace(Space):
    def params(self, task: Task) -> tuple[Param, ...]:
        chosen = os.environ.get("FAULTY_FAULTS")
        return (Param("fault", tuple(chosen.split(",")) if chosen else (*FAULTS, *TURNS), ordered=False),)

    def check(self, task: Task, config: Config) -> Verdict:
        return Verdict.yes()

    def seeds(self, task: Task) -> tuple[Config, ...]:
        return ()

    def toolchain(self) -> Toolchain:
        return Toolchain((("faulty", "1"),))

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        fault = str(config["fault"])
        if fault == "does not build":
            raise BuildError("as asked")
        if fault == "builder killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return Artifact(fault, task.space, "", fault, (), None, 0.0, self.toolchain())

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        folder, fault = Path(os.environ["FAULTY_FOLDER"]), artifact.key
        if fault in TURNS:
            fault = TURNS[fault] if (folder / "turned").exists() else "none"
        if fault == "does not load":
            raise RuntimeError("as asked")
        if fault == "exits":
            os._exit(3)
        if fault == "kills itself":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "waits to be killed" and not (folder / WAITING).exists():
            (folder / "written").write_text(str(os.getpid()))
            (folder / "written").rename(folder / WAITING)
            time.sleep(3600)
        return FaultyKernel(fault)


class FaultyKernel:
    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.function = entry(ENTRIES[fault]) if fault in ENTRIES else None

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        import ctypes

        import torch
        from cuda.bindings import driver

        if self.function is not None:
            shared = 2**20 if self.fault == "too much shared memory" else 0
            stream = torch.cuda.current_stream().cuda_stream
            arguments = ((out.data_ptr(),), (ctypes.c_void_p,))
            (status,) = driver.cuLaunchKernel(self.function, 1, 1, 1, 1, 1, 1, shared, stream, arguments, 0)
            if status != driver.CUresult.CUDA_SUCCESS:
                raise RuntimeError(status.name)
            return
        if self.fault == "unwritten":
            torch.mm(a[:-1], b, out=out[:-1])
            return
        torch.mm(a, b, out=out)
        if self.fault == "wrong element":
            out[3, 5].add_(40)
        if self.fault == "NaN output":
            out[3, 5].fill_(float("nan"))

    def close(self) -> None:
        pass


def entry(name: bytes) -> object:
    import torch
    from cuda.bindings import driver

    torch.cuda.current_stream()  # makes torch's context current in this thread
    status, module = driver.cuModuleLoadData(PTX)
    assert status == driver.CUresult.CUDA_SUCCESS, status
    return driver.cuModuleGetFunction(module, name)[1]
