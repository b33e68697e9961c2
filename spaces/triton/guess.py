"""Expectation of an own kernel's configs before one was measured, learned from sweeps of public kernels."""

import csv
import gzip
import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.search import Guess
from gemmtune.engine.records.task import Task
from gemmtune.spaces.triton.decorators import OPTIONS
from gemmtune.spaces.triton.kind import definition_of

Reals = NDArray[np.float64]
"""Numbers of configs, shape (configs, numbers) or (configs,)."""
Forest = Callable[[Reals], Reals]
"""Function from traits to the slowness to count on."""
SWEEPS = Path(__file__).with_name("sweeps.csv.gz")
"""Every config of 27 cases of 14 public kernels on an H100; see experiments/kernel-sweeps."""
_SWEPT_SMS = 132
_SMALLEST_BLOCK = 16
"""Smallest maximum of a parameter that may be a side of a block."""
_REGISTERS = 256
"""Registers of a thread without `maxnreg`."""
_MAX_SLOWNESS = 1.0
"""Cap on the natural logarithm of a time over its case's best; a failure counts as the cap."""
_TREES, _LEAF, _SHARE = 20, 5, 0.5
_TRUST = 0.7
"""Share of the slowness to count on: the kernel may be of another family than all that were swept."""
SHAPES = 3
"""Number of traits, the first ones, by which configs are alike."""


class Sweep(NamedTuple):
    """Every config of one case of a kernel."""

    kernel: str
    """Name of the kernel's class."""
    least_bytes: int
    """Bytes that one launch must move."""
    configs: tuple[Config, ...]
    """Configs that were measured."""
    programs: tuple[int, ...]
    """Programs to launch, per config."""
    times_ns: tuple[float, ...]
    """Time of a launch per config, infinite for a failure."""


def guess(task: Task, configs: Sequence[Config]) -> Guess | None:
    """Return what the sweeps let expect of a task's configs; None where the kernel's class cannot say its grid."""
    try:
        definition, sizes = definition_of(task.problem), task.problem.sizes
        arguments = definition.tensors(sizes)
        grids = [definition.grid(sizes, definition.values(arguments, config)) for config in configs]
    except ProblemError:
        return None
    found = traits(configs, [math.prod(grid) for grid in grids], task.problem.min_bytes, task.device.sm_count)
    return Guess(_forest()(found), found[:, :SHAPES])


def traits(configs: Sequence[Config], programs: Sequence[int], least_bytes: int, sm_count: int) -> Reals:
    """Return numbers of configs that compare between kernels, shape (configs, traits); logarithms are to base 2.

    A parameter of positive integers, at least one of 16 or more, counts as a side of the program's block.

    Args:
        configs: configs of one task, at least one.
        programs: programs to launch, per config.
        least_bytes: bytes that one launch must move.
        sm_count: number of the device's SMs.
    """
    names = [name for name in configs[0] if name not in OPTIONS and _is_side([config[name] for config in configs])]
    rows = []
    for config, count in zip(configs, programs, strict=True):
        warps, stages, registers = (_option(config, name) for name in ("num_warps", "num_stages", "maxnreg"))
        sides = [math.log2(int(config[name])) for name in names] or [0.0]
        block, threads, waves = sum(sides), math.log2(warps * 32), count / sm_count
        share = math.log2(max(1, least_bytes) / count)  # bytes of a program
        shapes = (block, block - threads, block + math.log2(stages))
        options = (threads, stages, registers, registers * warps, max(sides), min(sides), len(names))
        launch = (waves / math.ceil(waves), math.log2(waves), math.log2(waves) + threads, share, share - threads)
        rows.append((*shapes, *options, *launch))
    return np.array(rows)


@cache
def _forest() -> Forest:
    return fit(sweeps())


def fit(known: Sequence[Sweep]) -> Forest:
    """Fit trees to sweeps."""
    from sklearn.ensemble import ExtraTreesRegressor

    rows = [traits(sweep.configs, sweep.programs, sweep.least_bytes, _SWEPT_SMS) for sweep in known]
    slowness = [np.minimum(np.log(np.array(s.times_ns) / min(s.times_ns)), _MAX_SLOWNESS) for s in known]
    model = ExtraTreesRegressor(_TREES, min_samples_leaf=_LEAF, max_features=_SHARE, random_state=0)
    model.fit(np.vstack(rows), np.concatenate(slowness))
    return lambda found: _TRUST * model.predict(found)


def sweeps() -> list[Sweep]:
    """Return the sweeps that ship with gemmtune, in the order of the file."""
    with gzip.open(SWEEPS, "rt", encoding="utf-8", newline="") as file:
        cases = [list(lines) for _, lines in groupby(csv.DictReader(file), lambda line: (line["kernel"], line["case"]))]
    return [
        Sweep(
            kernel=lines[0]["kernel"],
            least_bytes=int(lines[0]["bytes"]),
            configs=tuple(Config.from_json(line["config"]) for line in lines),
            programs=tuple(int(line["programs"]) for line in lines),
            times_ns=tuple(float(line["time_ns"] or math.inf) for line in lines),
        )
        for lines in cases
    ]


def _is_side(values: Sequence[object]) -> bool:
    whole = [value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 0]
    return len(whole) == len(values) and max(whole) >= _SMALLEST_BLOCK


def _option(config: Config, name: str) -> int:
    value = config.get(name)
    return value if isinstance(value, int) and value > 0 else OPTIONS[name] or _REGISTERS
