"""Rehearse the campaign without a GPU, on the recorded problems and their landscapes."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import choose

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes
from gemmtune.engine.toolchain.gpu_info import present_device

HERE = Path(__file__).parent


@cache
def gpu() -> Device | None:
    return present_device()


def campaign() -> tuple[str, ...]:
    """Return the arguments of `gemmtune tune`: the campaign file; without a GPU, its budget and batch on recordings."""
    if gpu() is not None:
        return (str(HERE / "campaign.toml"),)
    return ("--budget", str(choose.BUDGET), "--batch", str(choose.BATCH))


def truth_names() -> list[str]:
    """Return the names of the swept problems."""
    return [c.name for c in choose.truths()] if gpu() is not None else [x.name for x in _recorded()[:3]]


def truths(out: Path) -> dict[str, Landscape]:
    """Return swept landscapes by problem: those in OUT by truth.py, then those kept with the experiment."""
    found: dict[str, Landscape] = {}
    for folder in (HERE / "truth", out / "truth"):
        for path in sorted(folder.glob("*.csv.gz")):
            found |= {landscape.name: landscape for landscape in read_landscapes(path)}
    return found if gpu() is not None or found else {x.name: x for x in _recorded()}


def range_of(problem: Problem) -> str:
    """Return the range that m lies in, with the recorded m in between."""
    return next(name for name, sizes in choose.RANGES.items() if problem.m <= sizes[-1])


@cache
def _recorded() -> tuple[Landscape, ...]:
    return tuple(x for path in embedded("triton_mm") for x in read_landscapes(path))
