"""Kernels that Inductor runs behind the vendor library's products: an epilogue, or the sum of parts of k."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.spaces.common.build_result import artifact_of

if TYPE_CHECKING:
    import torch

    from gemmtune.engine.toolchain.launching.cubin import CubinKernel
    from gemmtune.spaces.inductor.epilogue import GeneratedKernel

PRODUCT = "product"
"""Name of the tensor that the vendor library writes and the first pointwise kernel reads."""
_LAUNCHES = 100  # of each variant of a kernel, to choose among them
_L2_SIZES = 4  # bytes written before each of these launches, over those of L2


def build_pointwise(
    space: Space, task: Task, config: Config, folder: Path, generate: Callable[[Problem], Sequence[GeneratedKernel]]
) -> Artifact:
    """Compile the kernels that `generate` returns for a problem, and leave their cubins in one file.

    Inductor compiles a kernel for some block sizes and takes the fastest at its first call; all are in the file.

    Raises:
        BuildError: Inductor or Triton refuse them, or there are none.
    """
    from gemmtune.spaces.inductor.build import compiled
    from gemmtune.spaces.inductor.target import environment, target

    started, problem = time.perf_counter(), gemm(task.problem)
    with tempfile.TemporaryDirectory(dir=folder) as scratch, environment(scratch), target(task.device):
        kernels: list[list[dict[str, object]]] = []
        contents, file, resources = b"", Path(scratch) / "kernels.cubins", None
        for made in generate(problem):
            variants = []
            for variant in compiled(made):
                found = variant.write(file, task.device)
                resources = resources or found
                binary = file.read_bytes()
                variants.append(
                    {
                        "first_byte": len(contents),
                        "bytes": len(binary),
                        "entry": variant.binary.metadata.name,
                        "grid": variant.grid,
                        "threads": found.threads,
                        "shared_bytes": found.shared_bytes,
                        "arguments": variant.arguments,
                        "values": dict(made.sizes),
                        "scratch": dict(made.scratch),
                    }
                )
                contents += binary
            kernels.append(variants)
        file.write_bytes(contents)
        if resources is None:
            raise BuildError(f"Inductor makes no kernel behind the products of {problem.name}")
        launch = (("kernels", json.dumps(kernels, separators=(",", ":"))),)
        return artifact_of(space, task, config, file, folder, launch, resources, started)


class PointwiseKernels:
    """Loaded kernels behind a product; the first call chooses the fastest variant of each, as Inductor does."""

    def __init__(self, artifact: Artifact, problem: Problem) -> None:
        """Load the binaries into torch's current context; raise a RuntimeError if the driver refuses one."""
        import torch

        from gemmtune.engine.toolchain.launching.cubin import CubinKernel

        contents, kernels = Path(artifact.path).read_bytes(), json.loads(str(dict(artifact.launch)["kernels"]))
        sizes = {name: size for variants in kernels for name, size in variants[0]["scratch"].items()}
        self._scratch = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes.values()]
        operands = (*problem.argument_names, PRODUCT, *sizes)
        self._variants = [
            [
                CubinKernel(
                    contents[variant["first_byte"] : variant["first_byte"] + variant["bytes"]],
                    variant["entry"],
                    tuple(variant["grid"]),
                    variant["threads"],
                    variant["shared_bytes"],
                    variant["arguments"],
                    variant["values"],
                    operands,
                )
                for variant in variants
            ]
            for variants in kernels
        ]

    def __call__(self, *tensors: torch.Tensor) -> None:
        """Enqueue the kernels on torch's current stream, with the problem's tensors and the product behind them."""
        tensors += (*self._scratch,)
        for place, variants in enumerate(self._variants):
            if len(variants) > 1:
                self._variants[place] = [_fastest(variants, tensors)]
            self._variants[place][0](*tensors)

    def close(self) -> None:
        """Unload the modules and free the kernels' own tensors."""
        self._scratch.clear()
        for variants in self._variants:
            for kernel in variants:
                kernel.close()


def _fastest(variants: Sequence[CubinKernel], tensors: Sequence[torch.Tensor]) -> CubinKernel:
    """Time the variants by themselves on a cold L2, as Inductor does, close all but the fastest, and return that one.

    Launches back to back would tell nothing about short kernels: the CPU takes longer to launch one than it runs.
    """
    import torch

    evicting = torch.empty(
        _L2_SIZES * torch.cuda.get_device_properties().L2_cache_size, dtype=torch.uint8, device="cuda"
    )
    times = []
    for kernel in variants:
        kernel(*tensors)
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(_LAUNCHES)]  # type: ignore[no-untyped-call]
        for start, end in pairs:
            evicting.zero_()
            start.record()
            kernel(*tensors)
            end.record()
        pairs[-1][1].synchronize()
        times.append(median(start.elapsed_time(end) for start, end in pairs))
    best = times.index(min(times))
    for kernel in (*variants[:best], *variants[best + 1 :]):
        kernel.close()
    return variants[best]
