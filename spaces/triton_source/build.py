"""Compile Triton kernels from a module's text for an absent GPU. Imports Triton, and no torch."""

import hashlib
import importlib.util
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import triton
import triton.language
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gemmtune.engine.records.artifact import Artifact, Resources
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.spaces.common.build_result import artifact_of, refusals
from gemmtune.spaces.triton_source.compiler import compiler_settings, write_cubin
from gemmtune.spaces.triton_source.launches import KernelLaunch


def build_kernels(
    space: Space, task: Task, config: Config, folder: Path, source: str, launches: Sequence[KernelLaunch]
) -> Artifact:
    """Compile the kernels of launches that follow each other, from the text of a module, into one file of cubins.

    Raises:
        BuildError: Triton refuses a kernel, or it needs more than a block may have.
    """
    started = time.perf_counter()
    used: list[Resources] = []
    facts: list[tuple[str, int | str]] = [("config", config.json), ("kernels", len(launches))]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        binaries = Path(scratch) / "kernels.cubins"
        with binaries.open("wb") as file:
            for number, launch in enumerate(launches):
                binary = _compiled(task, source, launch, scratch)
                cubin = Path(scratch) / "kernel.cubin"
                used.append(write_cubin(binary, cubin, task.device))
                file.write(binary.asm["cubin"])
                facts += [
                    (f"entry_{number}", binary.metadata.name),
                    (f"bytes_{number}", len(binary.asm["cubin"])),
                    (f"shared_{number}", used[-1].shared_bytes),
                    (f"threads_{number}", used[-1].threads),
                    (f"scratch_{number}", binary.metadata.global_scratch_size),
                ]
        resources = Resources(
            max(each.registers for each in used),
            max(each.shared_bytes for each in used),
            max(each.spill_bytes for each in used),
            max(each.threads for each in used),
        )
        return artifact_of(space, task, config, binaries, folder, tuple(facts), resources, started)


def _compiled(task: Task, source: str, launch: KernelLaunch, scratch: str) -> Any:  # noqa: ANN401 (Triton has no types)
    function = getattr(_module(source), launch.function)
    names, specialised = function.arg_names, launch.specialised()
    types = dict(specialised.types)
    if unknown := sorted(set(types) ^ set(names)):
        raise BuildError(f"the source's {launch.function} and gemmtune differ in the argument {unknown[0]}")
    constants = {(names.index(name),): _constant(value) for name, value in specialised.constants}
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in specialised.aligned}
    major, minor = task.device.capability
    target = GPUTarget("cuda", major * 10 + minor, task.device.warp_size)
    options = {"num_warps": launch.num_warps, "num_stages": launch.num_stages}
    with refusals(), compiler_settings(scratch):
        ast_source = ASTSource(function, {name: types[name] for name in names}, constants, attributes)
        return triton.compile(ast_source, target=target, options=options)


def _constant(value: object) -> object:
    if isinstance(value, str) and value.startswith("tl."):
        return getattr(triton.language, value.removeprefix("tl."))
    return value


@cache
def _module(source: str) -> ModuleType:
    """Return the module of a text, imported from a file because Triton reads a kernel's source from one, at once."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    with tempfile.TemporaryDirectory(prefix="gemmtune-kernels-") as folder:
        file = Path(folder) / f"kernels_{digest}.py"
        file.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module
