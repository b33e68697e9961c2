"""Launch a user's kernel through its own decorators with a table loaded, without a GPU. Imports torch and Triton."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import triton

from gemmtune.engine.consumers.triton.contract import autotuner_of, layers, param_value
from gemmtune.engine.io.blame import STOPS, account
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.seams.workload import DryLaunch
from gemmtune.spaces.triton.decorators import OPTIONS
from gemmtune.spaces.triton.definition import Definition, module_of


def launch_dry(
    definition: Definition, cases: Mapping[str, Mapping[str, int]], folder: Path, device: Device
) -> tuple[DryLaunch, ...]:
    """Load the exported table of `folder` into the kernel, and launch each case as a program does.

    The kernel's decorators, autotuner and loader are the real ones; benchmarking and the launch of the binary alone
    are left out. A kernel without an autotuner gets one, as the loader's documentation says. Afterwards the
    autotuner is as it was.

    Args:
        definition: class of the kernel.
        cases: sizes by the case's name, which the table's rows have.
        folder: files of the exporter.
        device: GPU of the table.
    """
    kernel = definition.kernel
    if autotuner_of(kernel) is None:
        kernel = triton.autotune([triton.Config({})], [*definition.scalars(next(iter(cases.values())))])(kernel)
    kernels = json.loads((folder / "triton_table.json").read_text(encoding="utf-8"))["kernels"]
    rows = {row["facts"]["problem"]: row["config"] for kernel in kernels for row in kernel["rows"]}
    with _without_gpu(kernel) as program:
        try:
            loader = module_of(folder / "gemmtune_triton.py")
            loader.load(kernel, device=device.name)
        except STOPS:
            raise
        except Exception as error:  # whatever stops a program at its start
            return (DryLaunch(None, f"the loader refuses: {account(error)}"),) * len(cases)
        return tuple(_launched(definition, sizes, program, rows[name], loader) for name, sizes in cases.items())


@dataclass(slots=True)
class _Program:
    """Kernel of a program whose launches end before the GPU."""

    kernel: Any
    tuner: Any
    benchmarked: int = 0
    """Configs that the autotuner timed for the launch under way."""
    launched: bool = False
    """Whether the launch under way came through all decorators."""


def _launched(
    definition: Definition,
    sizes: Mapping[str, int],
    program: _Program,
    row: Mapping[str, Any],
    loader: Any,  # noqa: ANN401
) -> DryLaunch:
    """Launch one case and compare its config with the row's."""
    if fault := definition.reference_fault(sizes):
        return DryLaunch(None, fault)
    program.benchmarked, program.launched = 0, False
    before = loader.report()
    positional, named = _call(definition, sizes)
    try:
        program.kernel[lambda meta: definition.grid(sizes, meta)](*positional, **named)
    except STOPS:
        raise
    except Exception as error:  # the kernel's decorators and the class are the user's
        return DryLaunch(None, f"the launch fails: {error if isinstance(error, ProblemError) else account(error)}")
    if not program.launched:
        return DryLaunch(None, "the kernel's decorators end the launch before the kernel")
    ran = program.tuner.best_config.all_kwargs()
    config = Config({name: value for name, value in ran.items() if isinstance(value, bool | int | float | str)})
    if program.benchmarked:
        missed = next((key for key, count in loader.report().items() if count > before.get(key, 0)), "its key")
        return DryLaunch(config, f"no row serves {missed}: Triton benchmarks {program.benchmarked} configs")
    differing = (name for name, value in row.items() if ran.get(name, OPTIONS.get(name)) != param_value(value))
    if name := next(differing, ""):
        return DryLaunch(config, f"runs {name}={ran.get(name)!r}, and its row has {name}={row[name]!r}")
    return DryLaunch(Config(row))


def _call(definition: Definition, sizes: Mapping[str, int]) -> tuple[list[object], dict[str, object]]:
    """Return what a program passes: the first arguments by position, those behind a gap and constants by name."""
    arguments = definition.tensors(sizes)
    constant = {param.name for param in definition.jit.params if param.is_constexpr}
    positional: list[object] = []
    for name in definition.argument_names:
        if name not in arguments or name in constant:
            break
        positional.append(arguments[name])
    return positional, dict([*arguments.items()][len(positional) :])


@contextmanager
def _without_gpu(kernel: Any) -> Iterator[_Program]:  # noqa: ANN401 (Triton has no types)
    """Replace what a kernel's launch needs a GPU for; give back its autotuner as it was."""
    *_, jit = layers(kernel)
    tuner = autotuner_of(kernel)
    program = _Program(kernel, tuner)

    def launch(*arguments: object, **named: object) -> Any:  # noqa: ANN401 (a kernel)
        grid: Any = named["grid"]
        grid({**dict(zip(jit.arg_names, arguments, strict=False)), **named})
        program.launched = True
        return MagicMock()  # wrappers of launches look at the kernel

    def bench(*_: object, **__: object) -> list[float]:
        program.benchmarked += 1
        return [1.0, 1.0, 1.0]

    kept = dict(vars(tuner))
    with ExitStack() as patches:
        patches.enter_context(patch.object(jit, "run", launch))
        tuner._bench = bench
        tuner.check_disk_cache = lambda _key, _configs, benchmark: benchmark()
        try:
            yield program
        finally:
            vars(tuner).clear()
            vars(tuner).update(kept)
