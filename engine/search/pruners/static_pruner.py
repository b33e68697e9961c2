"""Drops what its own binary shows cannot win."""

from __future__ import annotations

from collections.abc import Sequence

from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.pruner import Candidate, Pruner

__all__ = ["MAX_SPILL_BYTES", "StaticPruner"]

MAX_SPILL_BYTES = 64
"""Local memory a thread may use: 16 registers of 4 bytes.

Inductor gives a template that spills more an infinite time without running it (`spill_threshold` in
torch/_inductor/config.py, applied by `CachingAutotuner.bench` in torch/_inductor/runtime/triton_heuristics.py; torch
2.11 and 2.13), so a faster one could not be deployed there either.
"""


class StaticPruner(Pruner):
    """Drops a built candidate that spills more registers than Inductor would benchmark."""

    def judge(self, candidate: Candidate, history: Sequence[Measurement]) -> Verdict:
        """No where the spills pass `MAX_SPILL_BYTES`; yes before the build, and where the resources are unknown."""
        resources = candidate.artifact.resources if candidate.artifact else None
        if resources is None or resources.spill_bytes <= MAX_SPILL_BYTES:
            return Verdict.yes()
        return Verdict.no("spills", f"{resources.spill_bytes} B a thread spilled > {MAX_SPILL_BYTES} B")
